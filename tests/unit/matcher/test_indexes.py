"""Indexes of patterns and topics: contents, order, and what removal leaves."""

import pytest

from matcher import InvalidPattern, PatternIndex, TopicIndex, get_dialect
from matcher.pattern import Automaton


def index_of(*patterns: str) -> PatternIndex[str]:
    index: PatternIndex[str] = PatternIndex(allow_inner_multi=True)
    for pattern in patterns:
        index.add(pattern, pattern)
    return index


def test_a_value_comes_once_for_each_matching_pair() -> None:
    index: PatternIndex[str] = PatternIndex()
    index.add("pay__*", "c1")
    index.add("pay__**", "c1")
    index.add("pay__*", "c2")
    assert index.match("pay__refund") == ["c1", "c2", "c1"]
    assert index.match_patterns("pay__refund") == [("pay__*", "c1"), ("pay__*", "c2"), ("pay__**", "c1")]


def test_none_and_false_are_values_like_others() -> None:
    index: PatternIndex[bool | None] = PatternIndex()
    assert index.add("a", None)
    assert index.add("*", False)
    assert index.match("a") == [None, False]


def test_invalid_patterns_are_refused() -> None:
    index: PatternIndex[int] = PatternIndex()
    with pytest.raises(InvalidPattern):
        index.add("pay*", 1)
    with pytest.raises(InvalidPattern):
        index.remove("a__**__b", 1)
    assert len(index) == 0


@pytest.mark.rule("best-match")
def test_the_best_match_comes_first() -> None:
    """Exact, then one-segment wildcards (literals first, from the left), then multi-segment ones (longest first)."""
    index = index_of("**", "a__**", "*__*", "a__b__**", "*__b", "a__*", "a__b", "**__b")
    assert index.match("a__b") == ["a__b", "a__*", "*__b", "*__*", "a__**", "**", "**__b"]


@pytest.mark.rule("best-match")
@pytest.mark.parametrize(
    ("dialect", "policy", "size", "best_first"),
    [
        ("lite", None, 40, ["a__" * 35 + "**", "a__" * 34 + "**", "a__" * 33 + "**", "a__" * 32 + "**"]),
        ("lite", None, 34, ["a__" * 33 + "*", "a__" * 32 + "*__a", "a__" * 33 + "**"]),
        ("wamp", "prefix", 40, [".".join("a" * size) for size in (36, 34, 33, 32, 2)]),
    ],
    ids=["rest", "one", "prefix"],
)
def test_the_best_match_comes_first_among_long_patterns(
    dialect: str, policy: str | None, size: int, best_first: list[str]
) -> None:
    """Below the nodes of the trie as well."""
    for patterns in (best_first, best_first[::-1]):
        index: PatternIndex[str] = PatternIndex(dialect)
        for pattern in patterns:
            index.add(pattern, pattern, policy=policy)
        assert index.match(get_dialect(dialect).separator.join("a" * size)) == best_first


@pytest.mark.rule("eager")
def test_only_branches_that_can_match_are_visited(monkeypatch: pytest.MonkeyPatch) -> None:
    """A literal after an inner `**` is looked up, not searched for, until a wildcard makes it necessary."""
    visited = []
    index = TopicIndex(allow_inner_multi=True)
    for topic in ("a__x__y", "b__x__y", "c__x__y"):
        index.add(topic)

    def spy(_automaton: Automaton, _state: int, segment: str) -> int:
        visited.append(segment)
        return 0

    monkeypatch.setattr(Automaton, "step", spy)
    index.expand("a__**__y")
    assert visited == ["a"]
