"""TopicIndex: membership, expansion, and what removal leaves."""

import pytest

from matcher import TopicIndex
from matcher.pattern import Automaton


def index_of(*topics: str) -> TopicIndex:
    index = TopicIndex(allow_inner_multi=True)
    for topic in topics:
        index.add(topic)
    return index


TOPICS = ["a", "b", "*", "a__b", "a__", "a__b__c", ""]


def test_membership_follows_addition_and_removal() -> None:
    """`in`, `len` and the answers of `add` and `remove` agree, for a topic that nothing can match as well."""
    index = TopicIndex()
    for topic in ("a__b", ""):
        assert index.add(topic)
        assert not index.add(topic)
        assert topic in index
    assert len(index) == 2
    assert "a" not in index
    assert None not in index
    for topic in ("a__b", ""):
        assert index.remove(topic)
        assert not index.remove(topic)
        assert topic not in index
    assert len(index) == 0
    assert not index._root.children


@pytest.mark.rule("eager")
def test_only_branches_that_can_match_are_visited(monkeypatch: pytest.MonkeyPatch) -> None:
    """A literal after an inner `**` is looked up, not searched for, until a wildcard makes it necessary."""
    visited = []
    index = index_of("a__x__y", "b__x__y", "c__x__y")

    def spy(_automaton: Automaton, _state: int, segment: str) -> int:
        visited.append(segment)
        return 0

    monkeypatch.setattr(Automaton, "step", spy)
    index.expand("a__**__y")
    assert visited == ["a"]


def test_iteration_yields_each_topic_once() -> None:
    """Also topics that nothing matches, and those that are longer than the trie is deep."""
    topics = {*TOPICS, "__".join(["deep"] * 40), "a__b__c__d"}
    index = index_of(*topics)
    assert sorted(index) == sorted(topics)
    for topic in index:
        index.remove(topic)
    assert list(index) == []
