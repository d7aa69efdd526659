"""Routing of topics and patterns to shards."""

from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st

import matcher
from streaming.records.model import LITE, Notation
from streaming.records.routing import Routing
from tests.support.builders import MQTT, NATS, WAMP

segments = st.sampled_from(["a", "b", "", "_", "é", "*"])
topics = st.lists(segments, min_size=1, max_size=4).map("__".join)
patterns = st.lists(st.sampled_from(["a", "b", "_", "é", "*", "**"]), min_size=1, max_size=4).map("__".join)


@pytest.mark.parametrize(
    ("depth", "topic", "routed"),
    [
        (0, "a__b__c", "a__b__c"),
        (1, "a__b__c", "a"),
        (2, "a__b__c", "a__b"),
        (9, "a__b__c", "a__b__c"),
        (1, "a___b", "a"),
        (2, "a___b", "a___b"),
        (2, "a_____b", "a__"),
        (1, "__a", ""),
        (2, "a__", "a__"),
        (1, "😀__b", "😀"),
    ],
)
def test_a_topics_first_segments_decide_its_shard(depth: int, topic: str, routed: str) -> None:
    assert Routing({"p": 7}, depth).shard_of("p", topic) == crc32(routed.encode()) % 7


def test_a_parent_without_configuration_has_one_shard() -> None:
    routing = Routing({"p": 7})
    assert routing.shard_count("q") == 1
    assert routing.shard_of("q", "anything") == 0
    assert routing.may_touch("q", "anything", 0)


@pytest.mark.rule("shards")
@given(pattern=patterns, topic=topics, shards=st.integers(1, 5), depth=st.integers(0, 3))
def test_a_pattern_may_touch_the_shard_of_every_topic_that_it_matches(
    pattern: str, topic: str, shards: int, depth: int
) -> None:
    """A name may touch the shard of the topic of this name."""
    routing = Routing({"p": shards}, depth)
    shard = routing.shard_of("p", topic)
    if matcher.matches(pattern, topic, allow_inner_multi=True):
        assert routing.may_touch("p", pattern, shard)
    assert routing.may_touch("p", topic, shard)


@pytest.mark.parametrize(
    ("depth", "pattern", "count"),
    [(1, "a__*", 1), (1, "*__a", 5), (1, "**", 5), (2, "a__*", 5), (2, "a__b__**", 1), (0, "a__b", 1), (0, "a__*", 5)],
)
def test_a_pattern_literal_in_the_routed_segments_goes_to_one_shard(depth: int, pattern: str, count: int) -> None:
    routing = Routing({"p": 5}, depth)
    assert sum(routing.may_touch("p", pattern, shard) for shard in range(5)) == count


EXACT, PREFIX, WILD = (WAMP._replace(policy=policy) for policy in ("exact", "prefix", "wildcard"))
FOREIGN = [MQTT, NATS, WAMP, EXACT, PREFIX, WILD]
pieces = st.lists(st.sampled_from(["a", "b", "__", ".", "/", "+", "#", "*", ">", ""]), max_size=5).map("".join)


@pytest.mark.rule("shards")
@given(
    pattern=pieces, topic=pieces, notation=st.sampled_from(FOREIGN), shards=st.integers(1, 5), depth=st.integers(0, 2)
)
def test_so_may_a_pattern_of_another_dialect(
    pattern: str, topic: str, notation: Notation, shards: int, depth: int
) -> None:
    """Separators of the dialect have nothing to do with those of routing."""
    routing = Routing({"p": shards}, depth)
    if matcher.matches(pattern, topic, dialect=notation.dialect, policy=notation.policy):
        assert routing.may_touch("p", pattern, routing.shard_of("p", topic), notation)


@pytest.mark.parametrize(
    ("notation", "pattern", "count"),
    [
        (LITE, "a/+", 1),
        (MQTT, "a/b", 1),
        (MQTT, "a__*", 1),
        (MQTT, "a/+", 5),
        (MQTT, "a/#", 5),
        (NATS, "a.b", 1),
        (NATS, "a.+", 1),
        (NATS, "a__*", 1),
        (NATS, "a.*", 5),
        (NATS, "a.>", 5),
        (WAMP, "a.b", 1),
        (WAMP, "a.*", 5),
        (EXACT, "a.*", 1),
        (PREFIX, "a", 5),
        (WILD, "a..b", 5),
        (WILD, "a.b", 1),
    ],
)
def test_a_literal_pattern_of_any_dialect_goes_to_one_shard(notation: Notation, pattern: str, count: int) -> None:
    routing = Routing({"p": 5})
    assert sum(routing.may_touch("p", pattern, shard, notation) for shard in range(5)) == count
