"""Indexes of patterns and topics: contents, order, and what removal leaves."""

import pytest

from matcher import InvalidPattern, PatternIndex, TopicIndex
from matcher.index.node import MAX_DEPTH
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


LONG = "__".join(["*"] * (MAX_DEPTH + 1))


@pytest.mark.parametrize(
    ("pattern", "policy"),
    [
        *((pattern, None) for pattern in ("a", "a__*", "a__**", "**", "*", "a__**__b", LONG, f"{LONG}__**")),
        *(("com.my", "prefix"), ("", "prefix"), ("com..x", "wildcard"), ("com", "exact")),
    ],
)
def test_removing_leaves_nothing_behind(pattern: str, policy: str | None) -> None:
    index: PatternIndex[str] = PatternIndex("wamp" if policy else "lite", allow_inner_multi=not policy)
    index.add(pattern, pattern, policy=policy)
    assert not index.remove(pattern, "other", policy=policy)
    assert index.remove(pattern, pattern, policy=policy)
    assert not index.remove(pattern, pattern, policy=policy)
    assert len(index) == 0
    assert not index._exact
    assert index._trie.is_empty
    assert index._prefixes.is_empty
    assert index._prefix_count == 0
    assert not index._inner.entries
    assert [block.patterns for block in index._inner._blocks.values()] == [()]


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


def test_iteration_yields_each_pair_once() -> None:
    """A pair may be removed meanwhile."""
    patterns = ["a", "a__*", "a__**", "**", "*", "a__**__b", LONG, f"{LONG}__**"]
    index = index_of(*patterns)
    assert sorted(index) == sorted(zip(patterns, patterns, strict=True))
    for pattern, value in list(index):
        index.remove(pattern, value)
    assert list(index) == []
    prefixes: PatternIndex[int] = PatternIndex("wamp")
    prefixes.add("com.my", 1, policy="prefix")
    prefixes.add("com.*.my*", 2)
    prefixes.add("com.my", 3)
    assert sorted(prefixes) == [("com.*.my*", 2), ("com.my", 1), ("com.my", 3)]


def test_topics_are_members_until_they_are_removed() -> None:
    """Topics that no pattern matches and topics longer than the trie is deep are members too."""
    index = TopicIndex(allow_inner_multi=True)
    topics = ["a", "b", "*", "a__b", "a__", "a__b__c", "", "__".join(["deep"] * 40), "a__b__c__d"]
    for topic in topics:
        assert index.add(topic)
        assert not index.add(topic)
        assert topic in index
    assert sorted(index) == sorted(topics)
    assert len(index) == len(topics)
    assert "c" not in index
    assert None not in index
    for topic in index:
        assert index.remove(topic)
        assert not index.remove(topic)
        assert topic not in index
    assert list(index) == []
    assert len(index) == 0
    assert not index._root.children


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
