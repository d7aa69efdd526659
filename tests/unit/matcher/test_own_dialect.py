"""A dialect of one's own: an instance serves the matcher, a file serves matcher, job, consumers and console."""

import inspect
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import ClassVar

import pytest

import matcher
from matcher import Dialect, InvalidTopic, Pattern, PatternIndex, TopicIndex, UnknownDialect, get_dialect
from matcher.batch import FlatPatterns, FlatTopics
from matcher.dialects import Flaw
from matcher.pattern import MANY, ONE, Segment, Tail


class Colons(Dialect):
    """`?` is one segment, `...` inside one or more, at the end zero or more; names with a dot in front are hidden."""

    name: ClassVar[str] = "colons"
    separator: ClassVar[str] = ":"
    wildcards: ClassVar[str] = "?."
    catch_all: ClassVar[str] = "..."
    policies: ClassVar[tuple[str, ...]] = ("plain",)
    reserved: ClassVar[str] = "."
    rest_may_be_empty: ClassVar[bool] = True
    has_inner_multi: ClassVar[bool] = True

    def parse(self, text: str, *, policy: str | None = None, allow_inner_multi: bool = False) -> Pattern:
        parts = text.split(":")
        tail = Tail.ANY if parts[-1] == "..." else Tail.END
        kinds: dict[str, Segment] = {"?": ONE, "...": MANY}
        segments = tuple(kinds.get(part, part) for part in (parts[:-1] if tail is Tail.ANY else parts))
        if MANY in segments and not allow_inner_multi:
            raise self._invalid(text, 0, "'...' is not the last segment", "move it to the end")
        literal = text if kinds.keys().isdisjoint(parts) else None
        return Pattern(text, segments, tail, literal, policy, has_many=MANY in segments)

    def split(self, topic: str) -> list[str] | None:
        return topic.split(":") if topic else None

    def flaw_of_topic(self, topic: str) -> Flaw | None:
        return None if topic else Flaw(0, "it is empty", "name it")


PAIRS = [
    # pattern, topic, whether they match
    ("a:...", "a", True),
    ("a:...", "a:b:c", True),
    ("a:...:z", "a:b:c:z", True),
    ("a:...:z", "a:z", False),
    ("a:...:z:...", "a:b:z", True),
    ("a:...:z:...", "a:b:z:c", True),
    ("a:...:z:...", "a:z", False),
    ("...", ".a", False),
    ("...:z", ".a:z", False),
    (".a:...:z", ".a:b:z", True),
    (".a:?", ".a:z", True),
    ("?:z", ".a:z", False),
    ("?:z", "a:z", True),
]


@pytest.mark.parametrize(("pattern", "topic", "expected"), PAIRS)
def test_both_indexes_serve_it(pattern: str, topic: str, *, expected: bool) -> None:
    """Inner wildcards, an empty rest and hidden topics work together, though no dialect of the package has all."""
    dialect = Colons()
    patterns: PatternIndex[int] = PatternIndex(dialect, allow_inner_multi=True)
    patterns.add(pattern, 1)
    topics = TopicIndex(dialect, allow_inner_multi=True)
    topics.add(topic)
    assert dialect.matches(dialect.parse(pattern, allow_inner_multi=True), topic) is expected
    assert patterns.match(topic) == [1] * expected
    assert topics.expand(pattern) == [topic] * expected


def test_functions_and_batches_take_it() -> None:
    dialect = Colons()
    assert matcher.matches("a:...", "a:b:c", dialect)
    assert matcher.is_valid("a:...", dialect)
    assert matcher.expand(["a:?"], ["a:b", "b"], dialect) == ["a:b"]
    assert FlatTopics(["a:b", "b"], dialect).expand("a:?").tolist() == [0]
    patterns = FlatPatterns(["a:?", "...:z"], dialect, allow_inner_multi=True)
    rows, numbers = patterns.match_batch(["a:b", "x:y:z"])
    assert sorted(zip(rows.tolist(), numbers.tolist(), strict=True)) == [(0, 0), (1, 1)]
    for index in (patterns, FlatTopics(["a:b"], dialect)):
        with pytest.raises(UnknownDialect, match="no dialect is named 'colons'"):
            index.to_bytes()


@pytest.mark.parametrize(("separator", "reserved"), [("->", "."), ("→", "é"), ("::", "$S"), ("---", "→→"), ("éé", "")])
def test_batches_take_any_separator_and_any_reserved_prefix(separator: str, reserved: str) -> None:
    class Own(Colons):
        def parse(self, text: str, *, policy: str | None = None, allow_inner_multi: bool = False) -> Pattern:
            pattern = super().parse(text.replace(separator, ":"), policy=policy, allow_inner_multi=allow_inner_multi)
            return pattern._replace(text=text, literal=pattern.literal and text)

        def split(self, topic: str) -> list[str] | None:
            return topic.split(separator) if topic else None

    Own.separator, Own.reserved = separator, reserved
    dialect = Own()
    patterns = [separator.join(each) for each in (["a", "?"], ["?", "b"], ["..."], ["a", "..."], ["a", "b"])]
    names = [["a", "b"], ["a", "", "b"], ["b"], ["a"], [f"{reserved}x", "b"], ["é", "b"], [reserved[:1], "b"]]
    topics = ["", separator, f"a{separator[0]}b", f"a{separator[-1]}b", *map(separator.join, names)]
    expected = {
        (row, number)
        for row, topic in enumerate(topics)
        for number, pattern in enumerate(patterns)
        if matcher.matches(pattern, topic, dialect)
    }
    rows, numbers = FlatPatterns(patterns, dialect).match_batch(topics)
    assert set(zip(rows.tolist(), numbers.tolist(), strict=True)) == expected
    numbers, rows = FlatTopics(topics, dialect).expand_batch(patterns)
    assert set(zip(rows.tolist(), numbers.tolist(), strict=True)) == expected


def test_a_dialect_of_ones_own_is_passed_as_an_instance_not_by_name() -> None:
    """Only the dialects of the package have names that functions know."""
    dialect = Colons()
    assert get_dialect(dialect) is dialect
    with pytest.raises(UnknownDialect, match="no dialect is named 'colons'"):
        get_dialect("colons")
    with pytest.raises(InvalidTopic, match="it is empty; name it"):
        dialect.validate_topic("")


ROOT = Path(__file__).parents[3]

COLONS = f'''
"""`:` separates segments, `?` is one segment, `...` several."""

from typing import ClassVar

from matcher.dialects import Dialect, Flaw
from matcher.pattern import MANY, ONE, Pattern, Segment, Tail


{inspect.getsource(Colons)}
'''

MATCHER = """
import matcher
assert [*matcher.DIALECTS] == ["lite", "colons", "mqtt", "nats", "wamp"]
assert matcher.matches("a:?", "a:b", "colons") and not matcher.matches("a:?", "a__b", "colons")
assert matcher.matches("a:...:z", "a:b:c:z", "colons", allow_inner_multi=True)
assert matcher.explain("a:?", "a:b", "colons").matched
from matcher.batch import FlatPatterns, FlatTopics
assert FlatPatterns(["a:?"], "colons").match_batch(["x", "a:b"])[0].tolist() == [1]
assert FlatTopics(["x", "a:b"], "colons").expand("a:...").tolist() == [1]
assert len(FlatPatterns.from_bytes(FlatPatterns(["a:?"], "colons").to_bytes())) == 1
"""
JOB = """
import orjson
from streaming.records.model import Notation
from streaming.records.parsing import parse_subscription
from streaming.state.group import Shard
request = {"action": "COMPLETE_ADD", "clientId": "c", "group": "g", "topic": "p", "dialect": "colons",
           "policy": "plain", "liteTopicSet": ["a:?"]}
assert parse_subscription(orjson.dumps(request)).notation == Notation("colons", "plain", False)
assert Shard("p", inner_multi=True)._pattern_problem("a:...:z", Notation("colons")) is None
assert "not the last segment" in Shard("p")._pattern_problem("a:...:z", Notation("colons"))
from streaming.records.schema_models import SubscriptionRequestSchema
SubscriptionRequestSchema.model_validate(request)
"""
CONSUMER = """
from streaming.kafka.names import everything, is_everything, unmatchable
assert is_everything(everything("colons"), "colons")
assert "the character ':'" in unmatchable("a:?", "colons")
assert unmatchable("...", "colons") is None
"""
CONSOLE = """
from streaming.console.asking import SEPARATORS, likely_separator
assert SEPARATORS == ("__", ":", "/", ".")
assert likely_separator(["a:b", "a:c"]) == ":"
from click.testing import CliRunner
from streaming.cli import main
assert CliRunner().invoke(main, ["match", "--dialect", "colons", "a:?", "a:b"]).exit_code == 0
"""


@pytest.mark.parametrize("code", [MATCHER, JOB, CONSUMER, CONSOLE], ids=["matcher", "job", "consumer", "console"])
def test_a_new_dialect_takes_one_file(tmp_path: Path, code: str) -> None:
    shutil.copytree(ROOT / "matcher", tmp_path / "matcher", ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "matcher" / "dialects" / "colons.py").write_text(COLONS, encoding="utf-8")
    result = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT)])},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
