"""The work of a micro-batch grows with its events, and not with their square."""

import gc
import sys
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Any

import pytest

from streaming.records import columns
from streaming.records.model import DEADLINE_STEP_MS, Source, Stream
from streaming.state import Shard, ShardState
from streaming.tuning import DEFAULT_TUNING, Tuning
from tests.support.events import (
    EXCLUSIVE,
    LITERAL,
    MQTT,
    WILD,
    Event,
    add,
    created,
    deleted,
    drop,
    exclusive,
    leave,
    parsed,
    quota,
    replace,
    stream_of,
    told,
    wake,
    wildcard,
)
from tests.support.story import concat, expanded

FEW = 60
"""Number of events of the smaller micro-batch."""

MOST_GROWTH = 2.3
"""Growth of the number of calls when the input doubles. Sorting and binary searches are a little more than linear."""

Make = Callable[[int], Sequence[Event]]


def topics(count: int) -> list[Event]:
    return [created(f"t{number}") for number in range(count)]


def wild(count: int, **attributes: Any) -> list[Event]:
    """A client of a wildcard group for each number, which asks for everything with one segment."""
    return [wildcard(**attributes), *(replace("*", client=f"c{each}") for each in range(count))]


def calls(before: Sequence[Event], events: Sequence[Event]) -> int:
    """Count the calls of a micro-batch on a shard to which other events happened before."""
    state, shard = ShardState(), Shard("p")
    requests = [event for event in before if stream_of(event) is not Stream.TOPICS]
    state.apply(expanded(state, concat(sourced(requests, 0)), shard).delta)
    created_topics = [event for event in before if stream_of(event) is Stream.TOPICS]
    state.apply(expanded(state, concat(sourced(created_topics, 10_000)), shard).delta)
    first: list[Event] = [wildcard(group="other"), replace("*", group="other", client="o"), wake(1)]
    second: list[Event] = [replace(group="other")]
    for warms in (first, second):
        state.apply(expanded(state, sourced(warms, 20_000), shard).delta)  # indexes are built
    return counted(state, concat(sourced(events, 1_000_000)))


def counted(
    state: ShardState,
    batch: Sequence[tuple[Source, columns.Event]],
    tuning: Tuning = DEFAULT_TUNING,
    shard: Shard = Shard("p"),  # noqa: B008 - it is frozen
) -> int:
    """Count the calls of one micro-batch on a shard, those of built-in functions included."""
    count = 0

    def profile(_: FrameType, event: str, __: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    gc.disable()  # it calls what other tests have left
    sys.setprofile(profile)
    try:
        state.apply(expanded(state, batch, shard, tuning).delta)
    finally:
        sys.setprofile(None)
        gc.enable()
    return count


def shard_after(
    *batches: Sequence[Event],
    tuning: Tuning = DEFAULT_TUNING,
    shard: Shard = Shard("p"),  # noqa: B008 - it is frozen
) -> ShardState:
    state = ShardState()
    for at, batch in enumerate(batches):
        state.apply(expanded(state, sourced(batch, 10_000 * at), shard, tuning).delta)
    return state


def sourced(events: Sequence[Event], first: int) -> list[tuple[Source, columns.Event]]:
    return [(Source("s", 0, first + at, 0, 1_000 + at), parsed(event)) for at, event in enumerate(events)]


CASES: dict[str, tuple[Make, Make]] = {
    "names of one client, one by one": (
        lambda n: [LITERAL, *topics(n)],
        lambda n: [add(f"t{each}") for each in range(n)],
    ),
    "patterns of one client, one by one": (
        lambda n: [WILD, *(created(f"t{each}__x") for each in range(n))],
        lambda n: [add(f"t{each}__*") for each in range(n)],
    ),
    "in an exclusive group": (lambda n: [EXCLUSIVE, *topics(n)], lambda n: [add(f"t{each}") for each in range(n)]),
    "names are dropped one by one": (
        lambda n: [WILD, *topics(n), replace(*(f"t{each}" for each in range(n)))],
        lambda n: [drop(f"t{each}") for each in range(n)],
    ),
    "names come and go": (
        lambda n: [WILD, *topics(n)],
        lambda n: [make(f"t{each}") for each in range(n // 2) for make in (add, drop)],
    ),
    "the same entry again and again": (lambda n: [WILD, *topics(n)], lambda n: [add("*") for _ in range(n)]),
    "two clients take the same entry from each other": (
        lambda n: [EXCLUSIVE, *topics(n)],
        lambda n: [add("*", client="cd"[each % 2]) for each in range(n)],
    ),
    "the same entry again and again, and others": (
        lambda n: [EXCLUSIVE, *topics(n)],
        lambda n: [make for each in range(n // 2) for make in (add("*"), add(f"t{each}"))],
    ),
    "many clients with one request": (
        lambda n: [WILD, *topics(n)],
        lambda n: [add(f"t{each}", client=f"c{each}") for each in range(n)],
    ),
    "many clients of an exclusive group": (
        lambda n: [EXCLUSIVE, *topics(n)],
        lambda n: [add(f"t{each}", client=f"c{each}") for each in range(n)],
    ),
    "many clients of an exclusive group and one topic": (
        lambda _: [EXCLUSIVE, *topics(1)],
        lambda n: [add("t0", client=f"c{each}") for each in range(n)],
    ),
    "many clients with several requests": (
        lambda n: [WILD, *topics(n)],
        lambda n: [add(f"t{(7 * each + at) % n}", client=f"c{each}") for each in range(n // 4) for at in range(4)],
    ),
    "many patterns that match one topic": (
        lambda _: [EXCLUSIVE, created("__".join("a" * 8))],
        lambda n: [add("__".join("a*"[each >> at & 1] for at in range(8))) for each in range(n)],
    ),
    "names no valid topic has, and names there are": (
        lambda n: [WILD, *topics(n), replace(*(f"t{each}" for each in range(n)))],
        lambda n: [drop(f"u{each}") for each in range(n)],
    ),
    "deadlines that are over one after the other": (
        lambda n: [*wild(1), *(created(f"t{each}", ttlMs=1 + each * DEADLINE_STEP_MS) for each in range(n))],
        lambda n: [wake(20_000 + each * DEADLINE_STEP_MS) for each in range(n)],
    ),
    "a topic that comes and goes": (
        lambda _: wild(1),
        lambda n: [make("t") for _ in range(n) for make in (created, deleted)],
    ),
    "topics that are deleted and created again": (
        lambda n: [*wild(1), *topics(n)],
        lambda n: [make(f"t{each}") for each in range(n) for make in (deleted, created)],
    ),
    "group events, each with one client": (
        lambda n: [*topics(3), *(replace("*", client="c", group=f"g{each}") for each in range(n))],
        lambda n: [wildcard(group=f"g{each}") for each in range(n)],
    ),
    "events of one group": (lambda n: [*wild(1), *topics(n)], lambda n: [*[WILD, LITERAL] * (n // 2), LITERAL]),
    "selectors of one group": (
        lambda n: [*wild(1), *(created(f"t{each}", tags="x") for each in range(n))],
        lambda n: [add("*", tag=f"x{each}" if each < n - 1 else "y") for each in range(n)],
    ),
    "a group event and requests of its clients": (
        lambda n: [*wild(n), *topics(3)],
        lambda n: [exclusive(), *(add("t1", client=f"c{each}") for each in range(n))],
    ),
    "clients that end": (
        lambda n: [*wild(n), *topics(3)],
        lambda n: [told(1_000_000, client=f"c{each}") for each in range(n)],
    ),
    "the end of a client that asks again and again": (
        lambda n: [*wild(n), *topics(3)],
        lambda n: [
            *(add(f"t{each}", client="c0") for each in range(n)),
            told(999_999, *((1_000_000 + each, add(f"t{each}", client="c0")) for each in range(n)), client="c0"),
        ],
    ),
    "clients that end and ask again": (
        lambda n: [*wild(n), *topics(3)],
        lambda n: [
            *(add("t1", client=f"c{each}") for each in range(n)),
            *(told(999_999, (1_000_000 + each, add("t1", client=f"c{each}")), client=f"c{each}") for each in range(n)),
        ],
    ),
    "names of a client with less topics than its quota": (
        lambda _: [quota(2 * FEW + 20), *topics(4 * FEW)],
        lambda n: [make(f"t{each}") for each in range(n // 2) for make in (add, drop)] + [add("t0")],
    ),
    "requests that are refused": (
        lambda n: [quota(1), *(add(f"q{each}") for each in range(n)), *topics(8)],
        lambda n: [make("*") for _ in range(n // 2) for make in (add, replace)],
    ),
    "clients at their quota": (lambda n: [*wild(n, quota=4), *topics(8)], lambda _: [deleted("t1")]),
    "clients beyond their quota, and many new topics": (
        lambda n: [*wild(n, quota=4), *topics(8)],
        lambda _: [created(f"u{each}") for each in range(40)],
    ),
    "MQTT clients within their quota, each with a topic": (
        lambda n: [quota(0, group="h"), WILD, *topics(8 * n)],
        lambda n: [add(f"t{each}", client=f"c{each}", notation=MQTT) for each in range(n)],
    ),
    "many clients with one pattern, and one client with many names": (
        lambda n: [
            *wild(n, model="Exclusive"),
            *topics(n),
            replace(*(f"t{each}" for each in range(n)), client="d"),
        ],
        lambda _: [add("*", client="c1"), leave(client="d")],
    ),
    "clients at their quota, each with a topic of its own": (
        lambda n: [quota(0), *(add(f"t{each}", client=f"c{each}") for each in range(n))],
        topics,
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_the_work_of_a_micro_batch_is_linear_in_its_events(name: str) -> None:
    before, events = CASES[name]
    few, many = (calls(before(count), events(count)) for count in (FEW, 2 * FEW))
    assert many <= MOST_GROWTH * few, (few, many, many / few)


def test_topics_that_go_during_many_backfills_cost_each_backfill_once() -> None:
    tuning, found = Tuning(backfill_topics=1), list[int]()
    for clients in (FEW, 2 * FEW):
        groups = [quota(-1, group=f"g{each}") for each in range(clients)]
        requests = [replace("*", group=f"g{each}") for each in range(clients)]
        state = shard_after([*groups, *topics(20)], requests, tuning=tuning)
        assert len(state.backfills) == clients
        gone = [deleted(f"t{each}") for each in range(10, 20)]
        found.append(counted(state, sourced(gone, 100_000), tuning))
    few, many = found
    assert many <= MOST_GROWTH * few, (few, many, many / few)


UNRELATED: dict[str, tuple[Sequence[Event], Sequence[Event]]] = {
    "a group event": ([WILD, replace("*"), created("t")], [LITERAL]),
    "a topic that is over": ([WILD, replace("*"), created("t", ttlMs=1)], [wake(60_000)]),
    "a request": ([WILD, created("t")], [replace("*")]),
    "an exclusive group": ([EXCLUSIVE, created("t"), replace("*")], [replace("t", client="d")]),
}


@pytest.mark.parametrize("name", UNRELATED)
def test_other_clients_groups_topics_and_deadlines_cost_nothing(name: str) -> None:
    before, events = UNRELATED[name]

    def strangers(count: int) -> list[Event]:
        found: list[Event] = []
        for each in range(count):
            found += [exclusive(group=f"h{each}"), replace(f"u{each}", group=f"h{each}", client=f"c{each}")]
            found.append(created(f"v__{each}", ttlMs=3_600_000 + each * DEADLINE_STEP_MS))
        return found

    few, many = (calls([*strangers(count), *before], events) for count in (FEW, 2 * FEW))
    assert many <= few + FEW // 10, (few, many)


STEPS: dict[str, tuple[Sequence[Event], Sequence[Event]]] = {
    "a client of an exclusive group": ([exclusive(quota=-1), replace("*", client="d")], [replace("*")]),
    "a group that becomes exclusive": ([quota(-1), replace("*"), replace("*", client="d")], [exclusive(quota=-1)]),
    "a selector": ([quota(-1), replace("*")], [add("z", tag="x")]),
    "several requests of a client": ([quota(-1), replace("q__*")], [add("*"), add("**"), drop("*")]),
}


@pytest.mark.parametrize("name", STEPS)
def test_a_micro_batch_visits_a_bounded_number_of_topics(name: str) -> None:
    """Another topic costs at most two calls: it is found in an index, and compared in a later step."""
    tuning, found = Tuning(backfill_topics=5), list[tuple[int, int, int]]()
    before, events = STEPS[name]
    for count in (4 * FEW, 8 * FEW):
        state = shard_after(topics(count), before, tuning=Tuning(backfill_topics=1 << 62))
        first = counted(state, sourced(events, 100_000), tuning)
        assert state.backfills
        later = counted(state, sourced([wake(0)], 200_000), tuning)
        again = counted(state, sourced(events, 300_000), tuning)
        found.append((first, later, again))
    few, many = found
    assert all(more < less + 8 * FEW for less, more in zip(few, many, strict=True)), (few, many)


AT_QUOTA: dict[str, tuple[Sequence[Event], Sequence[Event]]] = {
    "a request": ([quota(3)], [replace("*")]),
    "another request": ([quota(3), replace("*")], [replace("**", "*")]),
    "requests of several clients": ([quota(3)], [replace("*", client="c"), replace("*", client="d")]),
    "a client that leaves": ([quota(3), replace("*")], [leave()]),
    "a deleted topic": ([quota(3), replace("*")], [deleted("t0")]),
    "a topic that is created again": ([quota(3), replace("*")], [deleted("t0"), created("t0")]),
    "a new topic": ([quota(3), replace("*")], [created("new")]),
    "another quota": ([quota(3), replace("*")], [quota(5)]),
}


CALLS_PER_MATCH = {"another request": 5, "a client that leaves": 1}
"""Calls to find a topic beyond the quota in an index; to compare it would cost 13 or more. Other events need none."""


@pytest.mark.parametrize("name", AT_QUOTA)
def test_a_client_at_its_quota_costs_as_much_as_it_may_hold(name: str) -> None:
    found, shard = list[int](), Shard("p", cap_requests=True)
    before, events = AT_QUOTA[name]
    for count in (4 * FEW, 8 * FEW):
        warm = [replace("q__*", client="w"), deleted("t1")]  # indexes are built
        state = shard_after(topics(count), before, warm, shard=shard)
        found.append(counted(state, sourced(events, 100_000), shard=shard))
    few, many = found
    assert many <= few + FEW // 10 + 4 * FEW * CALLS_PER_MATCH.get(name, 0), (few, many)


def of_many(clients: int) -> list[Event]:
    return [replace("*", client=f"c{each}") for each in range(clients)]


SHARED: dict[str, tuple[Event, Sequence[Event]]] = {
    "a request": (quota(3, model="Exclusive"), [replace("*", client="new")]),
    "a client that leaves": (quota(3, model="Exclusive"), [leave(client="c1")]),
    "several clients that leave": (quota(3, model="Exclusive"), [leave(client="c1"), leave(client="c2")]),
    "another quota": (quota(3, model="Exclusive"), [quota(5, model="Exclusive")]),
    "a group that becomes exclusive": (quota(3), [quota(3, model="Exclusive")]),
    "a group that is no longer exclusive": (quota(3, model="Exclusive"), [quota(3)]),
    "a selector": (quota(3), [add("z", tag="x", client="c1")]),
}

CALLS_PER_CLIENT = 1_500
"""Calls for another client that holds three topics; to compare all 240 topics for each would cost 15,000 or more."""


@pytest.mark.parametrize("name", SHARED)
def test_clients_at_their_quota_that_want_the_same_topics_cost_as_much_as_they_may_hold(name: str) -> None:
    found, shard = list[int](), Shard("p", cap_requests=True)
    group, events = SHARED[name]
    for count in (FEW, 2 * FEW):
        state = shard_after(topics(4 * FEW), [group, *of_many(count)], [deleted("t1")], shard=shard)
        found.append(counted(state, sourced(events, 100_000), shard=shard))
    few, many = found
    assert many <= few + FEW * CALLS_PER_CLIENT, (few, many)
