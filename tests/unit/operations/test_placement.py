"""Predicted contents of shards: equal to those in a job with the same routing."""

from collections import Counter
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streaming.expansion import apply_events
from streaming.operations.advise.inventory import Holding
from streaming.operations.advise.rule import Spread, sizes
from streaming.records.model import LITE, NO_METADATA, GroupEvent, Notation, Source, SubscriptionRequest
from streaming.records.routing import Routing
from streaming.state import Shard, ShardState
from streaming.tuning import DEFAULT_TUNING
from tests.support.builders import MQTT, NATS, WAMP, WILD, replace
from tests.support.states import encode

COUNTS = [1, 2, 4, 8]

segments = st.sampled_from(["a", "b", "", "é", "__"])
topics = st.lists(st.lists(segments, min_size=1, max_size=4).map("__".join), max_size=30, unique=True)
pieces = st.sampled_from(["a", "b", "c", "*", "**", "+", "#", ">"])
entries = st.lists(st.lists(st.lists(pieces, min_size=1, max_size=3).map(tuple), max_size=5, unique=True), max_size=5)
notations = st.sampled_from([LITE, LITE, MQTT, NATS, WAMP])
SEPARATORS = {"lite": "__", "mqtt": "/", "nats": ".", "wamp": "."}


def shard_after(
    requests: list[SubscriptionRequest], number: int = 0, routing: Routing | None = None, group: GroupEvent = WILD
) -> ShardState:
    """Return a shard after these requests."""
    found = ShardState()
    asks = [(Source("subscriptions", 0, offset, 0, 0), request) for offset, request in enumerate(requests)]
    found.apply(
        apply_events(
            found,
            [(Source("groups", 0, 0, 0, 0), group), *asks],
            Shard("p", number, routing or Routing()),
            DEFAULT_TUNING,
        ).delta
    )
    return found


@st.composite
def requests(draw: st.DrawFn) -> list[SubscriptionRequest]:
    """Draw requests, each of a client of its own."""
    made = []
    for number, texts in enumerate(draw(entries)):
        notation: Notation = draw(notations)
        joined = [SEPARATORS[notation.dialect].join(parts) for parts in texts]
        made.append(replace(*joined, client=f"c{number}", notation=notation))
    return made


@given(names=topics, made=requests(), depth=st.integers(0, 3), shards=st.sampled_from(COUNTS))
def test_topics_and_patterns_stand_where_the_job_puts_them(
    names: list[str], made: list[SubscriptionRequest], depth: int, shards: int
) -> None:
    routing = Routing({"p": shards}, depth)
    placement = Spread(Holding(dict.fromkeys(names, NO_METADATA), shard_after(made)), depth).placed(shards)

    lives_in = Counter(routing.shard_of("p", name) for name in names)
    assert placement.topics.tolist() == [lives_in[number] for number in range(shards)]
    assert placement.topics.sum() == len(names)
    assert placement.fullest == max(lives_in.values(), default=0)
    assert placement.skew == pytest.approx(placement.fullest * shards / len(names) if names else 1)

    kept = [list(Holding({}, shard_after(made, number, routing)).entries()) for number in range(shards)]
    assert placement.patterns.tolist() == list(map(len, kept))
    distinct = list(Holding({}, shard_after(made)).entries())
    assert placement.entries == len(distinct)
    assert placement.replicas == pytest.approx(sum(map(len, kept)) / len(distinct) if distinct else 1)
    if shards > 1:
        everywhere = [entry for entry in distinct if all(entry in shard for shard in kept)]
        assert placement.everywhere == len(everywhere)


def test_the_largest_prefix_is_what_most_topics_share() -> None:
    names = ["eu__a__1", "us__a__1", "eu__a__2", "eu__b__1", "us__a__2"]
    holding = Holding(dict.fromkeys(names, NO_METADATA), ShardState())
    assert Spread(holding, 1).largest_prefix() == ("eu", 3)
    assert Spread(holding, 2).largest_prefix() in [("eu__a", 2), ("us__a", 2)]
    assert Spread(holding, 0).largest_prefix()[1] == 1


@pytest.mark.parametrize("clients", [10, 5_000])
@pytest.mark.parametrize("shards", [1, 8])
def test_the_bytes_are_about_those_of_the_real_state(clients: int, shards: int) -> None:
    """Within a tenth, for the largest shard."""
    random = Random(3)
    names = [f"{random.choice('abcdefghijklmnop')}__tenant{number}__created" for number in range(20_000)]
    made = [
        replace(
            *(f"{random.choice('abcdefgh*')}__tenant{random.randrange(10_000)}__*" for _ in range(3)), client=f"c{n}"
        )
        for n in range(clients)
    ]
    routing = Routing({"p": shards}, 1)
    holding = Holding(dict.fromkeys(names, NO_METADATA), shard_after(made))
    real = []
    for number in range(shards):
        shard = shard_after(made, number, routing)
        shard.topics = {name: NO_METADATA for name in names if routing.shard_of("p", name) == number}
        real.append(len(encode(shard) or b""))
    assert Spread(holding, 1).placed(shards).largest_bytes(sizes(holding)) == pytest.approx(max(real), rel=0.1)


def test_nothing_has_the_bytes_of_nothing() -> None:
    holding = Holding({}, ShardState())
    assert sizes(holding) == (0, 0, 0)
    assert Spread(holding, 1).placed(1).largest_bytes(sizes(holding)) == 0
