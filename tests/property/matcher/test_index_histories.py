"""Both indexes equal brute force, in both directions, after any history of additions and removals, in each dialect."""

from collections.abc import Iterator
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import matcher
from matcher import PatternIndex, TopicIndex
from matcher.batch import FlatPatterns, FlatTopics
from tests.support.definitions import Definition, lite, mqtt, nats, wamp

Strategy = st.SearchStrategy


class Case(NamedTuple):
    """A dialect, small alphabets that make its patterns and topics meet, and its definition."""

    dialect: str
    names: list[str]
    wildcards: list[str]
    holds: Definition
    policies: tuple[str | None, ...] = (None,)
    inner: bool = False

    @property
    def topics(self) -> Strategy[str]:
        """Topics, invalid ones among them."""
        separator = matcher.get_dialect(self.dialect).separator
        return st.lists(st.sampled_from(self.names + self.wildcards), max_size=5).map(separator.join)

    @property
    def patterns(self) -> Strategy[tuple[str, str | None]]:
        """Valid patterns, with a policy where the dialect has them."""
        separator = matcher.get_dialect(self.dialect).separator
        texts = st.lists(st.sampled_from(self.names + self.wildcards * 2), min_size=1, max_size=5).map(separator.join)
        return st.tuples(texts, st.sampled_from(self.policies)).filter(self.parses)

    def parses(self, pattern: tuple[str, str | None]) -> bool:
        """Return True if the dialect accepts the pattern."""
        try:
            self.parsed([pattern])
        except matcher.InvalidPattern:
            return False
        return True

    def parsed(self, patterns: list[tuple[str, str | None]]) -> list[matcher.Pattern]:
        """Return the patterns as the dialect parses them."""
        parse = matcher.get_dialect(self.dialect).parse
        return [parse(text, policy=policy, allow_inner_multi=self.inner) for text, policy in patterns]

    def oracle(self, pattern: tuple[str, str | None], topic: str) -> bool:
        """Return True if the pattern matches the topic by definition."""
        return self.holds(*pattern, topic)


CASES = [
    Case("lite", ["a", "b", "_", "", "a_"], ["*", "**"], lite),
    Case("lite", ["a", "b", "_", "", "a_"], ["*", "**"], lite, inner=True),
    Case("mqtt", ["a", "b", "", "$", "$a"], ["+", "#"], mqtt),
    Case("nats", ["a", "b", "", "**", "a>"], ["*", ">"], nats),
    Case("wamp", ["a", "b", "ab", ""], ["*", "**", "a*"], wamp, (None, "exact", "prefix", "wildcard")),
]


@pytest.fixture(params=[False, True], ids=["as-is", "small"], scope="module")
def _bounds(request: pytest.FixtureRequest) -> Iterator[None]:
    """The bounds as they are, and so small that a few segments exceed them."""
    with pytest.MonkeyPatch.context() as patch:
        if request.param:
            for module in ("node", "patterns", "topics"):
                patch.setattr(f"matcher.index.{module}.MAX_DEPTH", 2)
            patch.setattr("matcher.index.patterns.BLOCK_BITS", 12)
        yield


each_dialect = pytest.mark.parametrize("case", CASES, ids=[f"{c.dialect}{'-inner' * c.inner}" for c in CASES])


def histories(pool: list[int]) -> Strategy[list[tuple[bool, int]]]:
    return st.lists(st.tuples(st.booleans(), st.sampled_from(pool)), max_size=30)


@pytest.mark.rule("lite-wildcards", "mqtt-wildcards", "nats", "wamp")
@each_dialect
@given(data=st.data())
@settings(max_examples=200)
def test_matches_is_the_definition(case: Case, data: st.DataObject) -> None:
    """One check gives what trying all ways gives."""
    pattern, topic = data.draw(case.patterns), data.draw(case.topics)
    got = matcher.matches(pattern[0], topic, case.dialect, policy=pattern[1], allow_inner_multi=case.inner)
    assert got == case.oracle(pattern, topic)


@pytest.mark.usefixtures("_bounds")
@each_dialect
@given(data=st.data())
@settings(max_examples=100)
def test_pattern_index_is_brute_force(case: Case, data: st.DataObject) -> None:
    """The index tells exactly the pairs that match, no more and no fewer, and counts them."""
    pool = data.draw(st.lists(st.tuples(case.patterns, st.integers(0, 1)), min_size=1, max_size=6, unique=True))
    index: PatternIndex[tuple[int, str | None]] = PatternIndex(case.dialect, allow_inner_multi=case.inner)
    pairs: set[tuple[tuple[str, str | None], int]] = set()
    for adds, number in data.draw(histories(list(range(len(pool))))):
        pair = pool[number]
        (text, policy), value = pair
        changed = (index.add if adds else index.remove)(text, (value, policy), policy=policy)
        assert changed == ((pair in pairs) is not adds)
        (pairs.add if adds else pairs.discard)(pair)
    assert len(index) == len(pairs)
    for topic in data.draw(st.lists(case.topics, max_size=8)):
        expected = [(text, (value, policy)) for (text, policy), value in pairs if case.oracle((text, policy), topic)]
        assert sorted(index.match_patterns(topic), key=repr) == sorted(expected, key=repr)
        assert sorted(index.match(topic), key=repr) == sorted((value for _, value in expected), key=repr)


@pytest.mark.usefixtures("_bounds")
@each_dialect
@given(data=st.data())
@settings(max_examples=100)
def test_topic_index_is_brute_force(case: Case, data: st.DataObject) -> None:
    """The index tells exactly the topics that match, each once, and counts them."""
    pool = data.draw(st.lists(case.topics, min_size=1, max_size=8, unique=True))
    index = TopicIndex(case.dialect, allow_inner_multi=case.inner)
    topics: set[str] = set()
    for adds, number in data.draw(histories(list(range(len(pool))))):
        topic = pool[number]
        assert (index.add if adds else index.remove)(topic) == ((topic in topics) is not adds)
        (topics.add if adds else topics.discard)(topic)
    assert len(index) == len(topics)
    assert [topic for topic in pool if topic in index] == [topic for topic in pool if topic in topics]
    patterns = data.draw(st.lists(case.patterns, max_size=8))
    for pattern in patterns:
        expected = [topic for topic in topics if case.oracle(pattern, topic)]
        assert sorted(index.expand(pattern[0], policy=pattern[1])) == sorted(expected)
    expected = [topic for topic in topics if any(case.oracle(pattern, topic) for pattern in patterns)]
    assert set(index.expand_any(case.parsed(patterns))) == set(expected)


@each_dialect
@given(data=st.data())
@settings(max_examples=50)
def test_expand_is_the_union_in_order(case: Case, data: st.DataObject) -> None:
    """`expand` gives each topic that some pattern matches once, in order of first occurrence."""
    patterns, topics = data.draw(st.lists(case.patterns, max_size=4)), data.draw(st.lists(case.topics, max_size=12))
    expected = [topic for topic in dict.fromkeys(topics) if any(case.oracle(pattern, topic) for pattern in patterns)]
    assert matcher.expand(case.parsed(patterns), topics, case.dialect) == expected


@each_dialect
@given(data=st.data())
@settings(max_examples=100)
def test_batches_are_brute_force(case: Case, data: st.DataObject) -> None:
    """Flat arrays, as built and as read from their bytes, tell exactly the pairs that match."""
    texts, topics = data.draw(st.lists(case.patterns, max_size=8)), data.draw(st.lists(case.topics, max_size=12))
    patterns = case.parsed(texts)
    expected = [
        (row, number)
        for row, topic in enumerate(topics)
        for number, pattern in enumerate(texts)
        if case.oracle(pattern, topic)
    ]
    flat = FlatPatterns(patterns, case.dialect)
    for flat_patterns in (flat, FlatPatterns.from_bytes(flat.to_bytes())):
        rows, numbers = flat_patterns.match_batch(topics)
        assert sorted(zip(rows.tolist(), numbers.tolist(), strict=True)) == expected
    flat_topics = FlatTopics.from_bytes(FlatTopics(topics, case.dialect).to_bytes())
    numbers, rows = flat_topics.expand_batch(patterns)
    assert sorted(zip(rows.tolist(), numbers.tolist(), strict=True)) == expected
