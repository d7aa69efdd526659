"""Routing of topics and patterns to shards."""

from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st

import matcher
from streaming.records.model import LITE, Notation
from streaming.records.routing import Routing
from tests.support.events import MQTT, NATS, WAMP

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


EXACT, PREFIX, WILD = (WAMP._replace(policy=policy) for policy in ("exact", "prefix", "wildcard"))
FOREIGN = [MQTT, NATS, WAMP, EXACT, PREFIX, WILD]
pieces = st.lists(st.sampled_from(["a", "b", "__", ".", "/", "+", "#", "*", ">", ""]), max_size=5).map("".join)


@pytest.mark.rule("shards")
@given(
    notated=st.tuples(st.sampled_from(FOREIGN), pieces, pieces) | st.tuples(st.just(LITE), patterns, topics),
    shards=st.integers(1, 5),
    depth=st.integers(0, 3),
)
def test_a_pattern_may_touch_the_shard_of_every_topic_that_it_matches(
    notated: tuple[Notation, str, str], shards: int, depth: int
) -> None:
    """A name may touch the shard of its topic. Separators of other dialects have nothing to do with routing."""
    notation, pattern, topic = notated
    routing, is_lite = Routing({"p": shards}, depth), notation == LITE
    shard = routing.shard_of("p", topic)
    if matcher.matches(pattern, topic, notation.dialect, policy=notation.policy, allow_inner_multi=is_lite):
        assert routing.may_touch("p", pattern, shard, notation)
    assert routing.may_touch("p", topic, shard)


@pytest.mark.parametrize(
    ("notation", "depth", "pattern", "count"),
    [
        *[(LITE, 1, "a__*", 1), (LITE, 1, "*__a", 5), (LITE, 1, "**", 5), (LITE, 2, "a__*", 5)],
        *[(LITE, 2, "a__b__**", 1), (LITE, 0, "a__b", 1), (LITE, 0, "a__*", 5), (LITE, 1, "a/+", 1)],
        (MQTT, 1, "a/b", 1),
        (MQTT, 1, "a__*", 1),
        (MQTT, 1, "a/+", 5),
        (MQTT, 1, "a/#", 5),
        (NATS, 1, "a.b", 1),
        (NATS, 1, "a.+", 1),
        (NATS, 1, "a__*", 1),
        (NATS, 1, "a.*", 5),
        (NATS, 1, "a.>", 5),
        (WAMP, 1, "a.b", 1),
        (WAMP, 1, "a.*", 5),
        (EXACT, 1, "a.*", 1),
        (PREFIX, 1, "a", 5),
        (WILD, 1, "a..b", 5),
        (WILD, 1, "a.b", 1),
    ],
)
def test_a_pattern_literal_in_the_routed_segments_goes_to_one_shard(
    notation: Notation, depth: int, pattern: str, count: int
) -> None:
    routing = Routing({"p": 5}, depth)
    assert sum(routing.may_touch("p", pattern, shard, notation) for shard in range(5)) == count
