"""A new dialect is one file: the matcher, the job, the consumers and the console need no other change."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]

COLONS = '''
"""`:` separates segments, `?` is one segment, a final `...` one or more."""

from typing import ClassVar

from matcher.dialects import Dialect, Flaw
from matcher.pattern import MANY, ONE, Pattern, Tail


class Colons(Dialect):
    """Names with colons."""

    name: ClassVar[str] = "colons"
    separator: ClassVar[str] = ":"
    wildcards: ClassVar[str] = "?."
    catch_all: ClassVar[str] = "..."
    policies: ClassVar[tuple[str, ...]] = ("plain",)
    has_inner_multi: ClassVar[bool] = True

    def parse(self, text, *, policy=None, allow_inner_multi=False):
        parts = text.split(":")
        tail = Tail.SOME if parts[-1] == "..." else Tail.END
        kinds = {"?": ONE, "...": MANY}
        segments = tuple(kinds.get(part, part) for part in (parts[:-1] if tail is Tail.SOME else parts))
        if MANY in segments and not allow_inner_multi:
            raise self._invalid(text, 0, "'...' is not the last segment", "move it to the end")
        literal = text if tail is Tail.END and not {ONE, MANY} & set(segments) else None
        return Pattern(text, segments, tail, literal, policy, MANY in segments)

    def split(self, topic):
        return topic.split(":") if topic else None

    def flaw_of_topic(self, topic):
        return None if topic else Flaw(0, "the topic is empty", "give it a name")
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
