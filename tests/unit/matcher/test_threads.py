"""One writer and many readers: readers never fail, and never miss what is there all the time."""

import pytest

from matcher import PatternIndex, TopicIndex
from tests.support.threads import write_with_readers

ROUNDS = 300
PREFIXED = "a.bcdefghijklmno"
ASKED = [
    # a dialect, a topic, patterns that match it and stay, patterns that come and go
    (
        "wamp",
        PREFIXED,
        [(PREFIXED, "exact"), ("a.", "wildcard"), ("a", "prefix"), (".bcdefghijklmno", "wildcard"), ("", "prefix")],
        [*((PREFIXED[:size], "prefix") for size in range(2, len(PREFIXED))), (".", "wildcard"), ("b.c.", "wildcard")],
    ),
    (
        "lite",
        "a__b__c__b__c",
        [("**__c", None), ("a__**", None), ("a__**__b__*", None), ("a__*__c__*__c", None), ("**__b__**__c", None)],
        [("**", None), ("a__**__c", None), ("**__**__c", None), ("**__b__**", None), ("a__*__*__**__c", None)],
    ),
]


@pytest.mark.rule("index-threads")
@pytest.mark.usefixtures("frequent_switches")
@pytest.mark.parametrize(("dialect", "topic", "staying", "passing"), ASKED, ids=["prefixes", "inner"])
def test_readers_of_a_pattern_index(
    dialect: str, topic: str, staying: list[tuple[str, str | None]], passing: list[tuple[str, str | None]]
) -> None:
    index: PatternIndex[str] = PatternIndex(dialect, allow_inner_multi=dialect == "lite")
    for pattern, policy in staying:
        assert index.add(pattern, "stays", policy=policy)

    def write() -> None:
        for _ in range(ROUNDS):
            for pattern, policy in passing + staying:
                index.add(pattern, "passes", policy=policy)
            for pattern, policy in passing + staying:
                index.remove(pattern, "passes", policy=policy)

    def read() -> None:
        assert index.match(topic).count("stays") == len(staying)
        assert sum(value == "stays" for _, value in index.match_patterns(topic)) == len(staying)

    write_with_readers(write, read)
    assert sorted(index.match(topic)) == ["stays"] * len(staying)


@pytest.mark.rule("index-threads")
@pytest.mark.usefixtures("frequent_switches")
def test_readers_of_a_topic_index() -> None:
    """Topics come and go below branches that stay."""
    index = TopicIndex(allow_inner_multi=True)
    staying = {"a__b", "a__b__c", "a__d", "x__b"}
    passing = [
        "a",
        "x__c",
        "y",
        "y__z",
        *(f"{parent}__{number}" for parent in ("a", "a__b", "a__b__c") for number in range(9)),
    ]
    for topic in staying:
        index.add(topic)

    def write() -> None:
        for number in range(ROUNDS):
            for topic in passing:
                index.add(topic)
                index.add(f"{topic}__{number}")
            for topic in passing:
                index.remove(topic)
                index.remove(f"{topic}__{number}")

    def read() -> None:
        assert staying <= set(index.expand("**"))
        assert {"a__b", "a__d"} <= set(index.expand("a__*"))
        assert {"a__b__c"} <= set(index.expand("a__**__c"))
        assert {"a__b", "x__b"} <= set(index.expand("*__b"))
        assert "x__b" in index.expand("**__b")
        assert staying <= set(index)
        assert all(topic in index for topic in staying)

    write_with_readers(write, read)
    assert set(index.expand("**")) == staying
