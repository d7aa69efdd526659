"""Depth and cost: nothing recurses, nothing is exponential."""

from collections.abc import Sequence

import pytest

import matcher
from matcher import PatternIndex, TopicIndex
from matcher.index.node import Node

DEEP = 100_000


@pytest.mark.parametrize(
    ("pattern", "matching", "other"),
    [
        ("__".join(["a"] * DEEP), "__".join(["a"] * DEEP), "__".join(["a"] * (DEEP - 1))),
        ("__".join(["*"] * DEEP), "__".join(["a"] * DEEP), "__".join(["a"] * (DEEP + 1))),
        ("__".join(["*"] * DEEP + ["**"]), "__".join(["a"] * (DEEP + 1)), "__".join(["a"] * DEEP)),
        ("**__a__**__b__**", "__".join(["x", "a", "x", "b", *["a"] * DEEP]), "__".join(["a"] * DEEP)),
        ("__".join(["**"] * DEEP), "__".join(["a"] * DEEP), "__".join(["a"] * (DEEP - 1))),
    ],
    ids=["literal", "one", "tail", "inner", "many"],
)
def test_a_hundred_thousand_segments(pattern: str, matching: str, other: str) -> None:
    """Long patterns and topics are matched, indexed and removed without recursion and without delay."""
    patterns: PatternIndex[int] = PatternIndex(allow_inner_multi=True)
    topics = TopicIndex(allow_inner_multi=True)
    assert matcher.matches(pattern, matching, allow_inner_multi=True)
    assert not matcher.matches(pattern, other, allow_inner_multi=True)
    patterns.add(pattern, 1)
    topics.add(matching)
    topics.add(other)
    assert topics.expand(pattern) == [matching]
    if pattern.count("**") < DEEP:  # a trie of 100,000 staying nodes costs their product with the topic
        assert patterns.match(matching) == [1]
        assert patterns.match(other) == []
    assert patterns.remove(pattern, 1)
    assert topics.remove(matching)
    assert topics.remove(other)
    assert len(patterns) == len(topics) == 0


class CountingNode(Node[int]):
    """A node that counts how often a look-up visits it."""

    __slots__ = ()
    visits = 0

    def get(self, key: str, _default: object = None) -> Node[int] | None:  # type: ignore[override]
        """Count, then look up."""
        CountingNode.visits += 1
        return super().get(key)


@pytest.mark.parametrize("pattern_length", [20, 40])
def test_a_trie_visits_each_node_at_most_once_a_segment(pattern_length: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Many inner `**` over one repeated name: visits stay below segments times nodes."""
    monkeypatch.setattr("matcher.index.patterns.Node", CountingNode)
    monkeypatch.setattr("matcher.index.node.Node", CountingNode)
    index: PatternIndex[int] = PatternIndex(allow_inner_multi=True)
    index.add("__".join(["**", "a"] * pattern_length + ["b"]), 1)
    topic = ["a"] * (4 * pattern_length)
    nodes = 2 * pattern_length + 2
    CountingNode.visits = 0
    assert index.match("__".join(topic)) == []
    assert 0 < CountingNode.visits <= len(topic) * nodes


def test_without_inner_wildcards_each_node_is_visited_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """All 2**10 patterns over `a` and `*`: one visit a node, whatever the topic."""
    monkeypatch.setattr("matcher.index.patterns.Node", CountingNode)
    monkeypatch.setattr("matcher.index.node.Node", CountingNode)
    index: PatternIndex[int] = PatternIndex()
    for number in range(2**10):
        index.add("__".join("a*"[number >> bit & 1] for bit in range(10)), number)
    CountingNode.visits = 0
    assert len(index.match("__".join(["a"] * 10))) == 2**10
    assert CountingNode.visits <= 2**10


def test_one_run_of_an_inner_pattern_is_active_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """The automaton holds at most one run of positions between two `**`, so its work is segments times that run."""
    longest = 0
    advance = matcher.pattern.advance

    def spy(segments: Sequence[matcher.pattern.Segment], active: Sequence[int], segment: str) -> list[int]:
        nonlocal longest
        longest = max(longest, len(active))
        return advance(segments, active, segment)

    monkeypatch.setattr("matcher.pattern.advance", spy)
    pattern = "__".join((["**"] + ["a"] * 5) * 50 + ["b"])
    assert not matcher.matches(pattern, "__".join(["a"] * 1000), allow_inner_multi=True)
    assert 0 < longest <= 7
