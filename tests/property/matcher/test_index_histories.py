"""Both indexes equal brute force, in both directions, after any history of additions and removals."""

from functools import cache

from hypothesis import given, settings
from hypothesis import strategies as st

import matcher
from matcher import PatternIndex, TopicIndex

NAMES = st.sampled_from(["a", "b", "*", "_", "", "**", "a_"])
TOPICS = st.lists(NAMES, min_size=0, max_size=5).map("__".join)
PATTERNS = (
    st.lists(st.sampled_from(["a", "b", "_", "*", "**", "a_"]), min_size=1, max_size=5)
    .map("__".join)
    .filter(lambda text: matcher.is_valid(text, allow_inner_multi=True))
)
PATTERN_HISTORIES = st.lists(st.tuples(st.booleans(), PATTERNS, st.integers(0, 2)), max_size=25)
TOPIC_HISTORIES = st.lists(st.tuples(st.booleans(), TOPICS), max_size=25)


def oracle(pattern: str, topic: str) -> bool:
    """The definition of `lite`, tried in every way there is."""
    wanted, have = tuple(pattern.split("__")), tuple(topic.split("__"))

    @cache
    def holds(i: int, j: int) -> bool:
        if i == len(wanted):
            return j == len(have)
        if j == len(have):
            return False
        if wanted[i] == "**":
            return holds(i + 1, j + 1) or holds(i, j + 1)
        return wanted[i] in ("*", have[j]) and holds(i + 1, j + 1)

    return topic != "" and holds(0, 0)


@given(PATTERNS, TOPICS)
@settings(max_examples=500)
def test_matches_is_the_definition(pattern: str, topic: str) -> None:
    """One check gives what trying all ways gives."""
    assert matcher.matches(pattern, topic, allow_inner_multi=True) == oracle(pattern, topic)


@given(PATTERN_HISTORIES, st.lists(TOPICS, max_size=8))
def test_pattern_index_is_brute_force(history: list[tuple[bool, str, int]], topics: list[str]) -> None:
    """The index tells exactly the pairs that match, no more and no fewer, and counts them."""
    index: PatternIndex[int] = PatternIndex(allow_inner_multi=True)
    pairs: set[tuple[str, int]] = set()
    for adds, pattern, value in history:
        pair = (pattern, value)
        assert (index.add if adds else index.remove)(pattern, value) == ((pair in pairs) is not adds)
        (pairs.add if adds else pairs.discard)(pair)
    assert len(index) == len(pairs)
    for topic in topics:
        expected = sorted(pair for pair in pairs if oracle(pair[0], topic))
        assert sorted(index.match_patterns(topic)) == expected
        assert sorted(index.match(topic)) == sorted(value for _, value in expected)


@given(TOPIC_HISTORIES, st.lists(PATTERNS, max_size=8))
def test_topic_index_is_brute_force(history: list[tuple[bool, str]], patterns: list[str]) -> None:
    """The index tells exactly the topics that match, each once, and counts them."""
    index = TopicIndex(allow_inner_multi=True)
    topics: set[str] = set()
    for adds, topic in history:
        assert (index.add if adds else index.remove)(topic) == ((topic in topics) is not adds)
        (topics.add if adds else topics.discard)(topic)
    assert len(index) == len(topics)
    assert all(topic in index for topic in topics)
    for pattern in patterns:
        assert sorted(index.expand(pattern)) == sorted(topic for topic in topics if oracle(pattern, topic))


@given(st.lists(PATTERNS, max_size=4), st.lists(TOPICS, max_size=12))
def test_expand_is_the_union_in_order(patterns: list[str], topics: list[str]) -> None:
    """`expand` gives each topic that some pattern matches once, in order of first occurrence."""
    expected = [topic for topic in dict.fromkeys(topics) if any(oracle(pattern, topic) for pattern in patterns)]
    assert matcher.expand(patterns, topics, allow_inner_multi=True) == expected
