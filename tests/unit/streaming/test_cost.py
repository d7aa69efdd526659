"""The work of a micro-batch grows with its events, and not with their square."""

import sys
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Any

import pytest

from streaming.events.columns import Event
from streaming.events.model import Source
from streaming.state import Shard, ShardState
from tests.support.builders import EXCLUSIVE, LITERAL, WILD, add, created, drop, replace
from tests.support.story import expanded

FEW = 60
"""Number of events of the smaller micro-batch."""

MOST_GROWTH = 2.3
"""Growth of the number of calls when the input doubles. Sorting and binary searches are a little more than linear."""

Make = Callable[[int], Sequence[Event]]


def topics(count: int) -> list[Event]:
    return [created(f"t{number}") for number in range(count)]


def calls(before: Sequence[Event], events: Sequence[Event]) -> int:
    """Count the calls of one micro-batch on a shard, those of built-in functions included."""
    state, shard = ShardState(), Shard("p")
    state.apply(expanded(state, sourced(before, 0), shard).delta)
    count = 0

    def profile(_: FrameType, event: str, __: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    batch = sourced(events, 1_000_000)
    sys.setprofile(profile)
    try:
        state.apply(expanded(state, batch, shard).delta)
    finally:
        sys.setprofile(None)
    return count


def sourced(events: Sequence[Event], first: int) -> list[tuple[Source, Event]]:
    return [(Source("s", 0, first + at, 0, 1_000 + at), event) for at, event in enumerate(events)]


CASES: dict[str, tuple[Make, Make]] = {
    "names of one client, one by one": (
        lambda n: [LITERAL, *topics(n)],
        lambda n: [add(f"t{each}") for each in range(n)],
    ),
    "patterns of one client, one by one": (
        lambda n: [WILD, *(created(f"t{each}__x") for each in range(n))],
        lambda n: [add(f"t{each}__*") for each in range(n)],
    ),
    "in an exclusive group": (
        lambda n: [EXCLUSIVE, *topics(n)],
        lambda n: [add(f"t{each}") for each in range(n)],
    ),
    "names are dropped one by one": (
        lambda n: [WILD, *topics(n), replace(*(f"t{each}" for each in range(n)))],
        lambda n: [drop(f"t{each}") for each in range(n)],
    ),
    "names come and go": (
        lambda n: [WILD, *topics(n)],
        lambda n: [make(f"t{each}") for each in range(n // 2) for make in (add, drop)],
    ),
    "the same entry again and again": (
        lambda n: [WILD, *topics(n)],
        lambda n: [add("*") for _ in range(n)],
    ),
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
}


@pytest.mark.parametrize("name", CASES)
def test_the_work_of_a_micro_batch_is_linear_in_its_events(name: str) -> None:
    before, events = CASES[name]
    few, many = (calls(before(count), events(count)) for count in (FEW, 2 * FEW))
    assert many <= MOST_GROWTH * few, (few, many, many / few)
