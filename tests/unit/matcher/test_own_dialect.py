"""A dialect of one's own: what is not asked of it is done for it."""

from typing import ClassVar

import pytest

import matcher
from matcher import Dialect, InvalidTopic, Pattern, PatternIndex, TopicIndex, UnknownDialect, get_dialect
from matcher.batch import FlatPatterns, FlatTopics
from matcher.dialects import Flaw
from matcher.pattern import MANY, ONE, Segment, Tail


class Paths(Dialect):
    """`?` is one segment, `...` inside one or more, at the end zero or more; names with a dot in front are hidden."""

    name: ClassVar[str] = "paths"
    separator: ClassVar[str] = "/"
    reserved: ClassVar[str] = "."
    rest_may_be_empty: ClassVar[bool] = True

    def parse(self, text: str, *, policy: str | None = None, allow_inner_multi: bool = False) -> Pattern:
        """Read a pattern."""
        self._refuse_options(policy, allow_inner_multi=allow_inner_multi)
        *parts, last = text.split("/")
        kinds: dict[str, Segment] = {"?": ONE, "...": MANY}
        segments = tuple(kinds.get(part, part) for part in (parts if last == "..." else [*parts, last]))
        literal = text if set(text.split("/")).isdisjoint(kinds) else None
        return Pattern(text, segments, Tail.ANY if last == "..." else Tail.END, literal, has_many=MANY in segments)

    def split(self, topic: str) -> list[str] | None:
        """Split at the slash."""
        return topic.split("/") if topic else None

    def flaw_of_topic(self, topic: str) -> Flaw | None:
        """Refuse the empty topic."""
        return None if topic else Flaw(0, "it is empty", "name it")


PAIRS = [
    # pattern, topic, whether they match
    ("a/...", "a", True),
    ("a/...", "a/b/c", True),
    ("a/.../z", "a/b/c/z", True),
    ("a/.../z", "a/z", False),
    ("a/.../z/...", "a/b/z", True),
    ("a/.../z/...", "a/b/z/c", True),
    ("a/.../z/...", "a/z", False),
    ("...", ".a", False),
    (".../z", ".a/z", False),
    (".a/.../z", ".a/b/z", True),
    (".a/?", ".a/z", True),
    ("?/z", ".a/z", False),
    ("?/z", "a/z", True),
]


@pytest.mark.parametrize(("pattern", "topic", "expected"), PAIRS)
def test_both_indexes_serve_it(pattern: str, topic: str, *, expected: bool) -> None:
    """Inner wildcards, an empty rest and hidden topics work together, though no dialect of the package has all."""
    dialect = Paths()
    patterns: PatternIndex[int] = PatternIndex(dialect)
    patterns.add(pattern, 1)
    topics = TopicIndex(dialect)
    topics.add(topic)
    assert dialect.matches(dialect.parse(pattern), topic) is expected
    assert patterns.match(topic) == [1] * expected
    assert topics.expand(pattern) == [topic] * expected


def test_functions_and_batches_take_it() -> None:
    dialect = Paths()
    assert matcher.matches("a/...", "a/b/c", dialect)
    assert matcher.is_valid("a/...", dialect)
    assert matcher.expand(["a/?"], ["a/b", "b"], dialect) == ["a/b"]
    assert FlatTopics(["a/b", "b"], dialect).expand("a/?").tolist() == [0]
    patterns = FlatPatterns(["a/?", ".../z"], dialect)
    assert sorted(zip(*(each.tolist() for each in patterns.match_batch(["a/b", "x/y/z"])), strict=True)) == [
        (0, 0),
        (1, 1),
    ]
    for index in (patterns, FlatTopics(["a/b"], dialect)):
        with pytest.raises(UnknownDialect, match="no dialect is named 'paths'"):
            index.to_bytes()


def test_it_goes_by_itself_not_by_name() -> None:
    """Only the dialects of the package have names that functions know."""
    dialect = Paths()
    assert get_dialect(dialect) is dialect
    with pytest.raises(UnknownDialect, match="no dialect is named 'paths'"):
        get_dialect("paths")
    with pytest.raises(InvalidTopic, match="it is empty; name it"):
        dialect.validate_topic("")
