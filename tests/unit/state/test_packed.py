"""Clients that have left a shard are packed, because their versions are kept for a week."""

import gc
import tracemalloc

import pytest

from streaming.records.model import LITE
from streaming.records.subscribers import ClientKey
from streaming.state import ShardDelta, ShardState
from streaming.state.blocks import Block
from streaming.state.client import Client, LastRequest, Subscription
from tests.support.states import decode, encode

COUNT = 5_000


def key(number: int) -> ClientKey:
    """Return a client whose names have 22 characters."""
    return ClientKey(f"group-{number % 10}", f"client-{number:08}")


def came(number: int) -> tuple[Client, LastRequest]:
    """Return a client in session."""
    position = (1_000_000 + number) << 10
    subscription = Subscription(True, 1_700_000_000_000 + number, (Block(number, 3, position, LITE, ("a__*",)),))
    return Client(subscription, subscription), LastRequest(3, position, position, position, number, number)


def left(number: int) -> tuple[Client, LastRequest]:
    """Return a client that has left."""
    position = (2_000_000 + number) << 10
    subscription = Subscription(version=1_700_000_000_000 + number)
    return Client(subscription, subscription), LastRequest(3, position, position - 1024, -1, number, number)


def delta(clients: dict[ClientKey, tuple[Client, LastRequest]]) -> ShardDelta:
    """Return these changes of clients."""
    return ShardDelta(
        clients={key: client for key, (client, _) in clients.items()},
        last_requests={key: last for key, (_, last) in clients.items()},
        latest_order=COUNT,
    )


@pytest.mark.parametrize("by_replay", [True, False])
def test_clients_that_left_take_little_memory(*, by_replay: bool) -> None:
    """With the indexes over the shard."""
    made = ShardState()
    made.apply(delta({key(number): left(number) for number in range(COUNT)}))
    stored = encode(made)
    tracemalloc.start()
    state = decode(stored) if by_replay else ShardState()
    for number in range(0 if by_replay else COUNT):
        assert not state.interests.match("other")
        assert not state.clients_of("other")
        state.apply(delta({key(number): came(number)}))
        state.apply(delta({key(number): left(number)}))
    assert not state.clients_of("group-1")
    assert not state.interests.match("a__b")
    gc.collect()  # free lists of tuples
    taken, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert taken / COUNT < 150
    assert state == made
    assert encode(state) == stored


def test_clients_that_left_come_again() -> None:
    """Whether the state was kept or read again."""
    kept, read = ShardState(), ShardState()
    for number in range(400):
        some = {key(each % 90): (came, left)[each % 7 > 2](each) for each in range(number, number + 3)}
        for state in (kept, read):
            state.apply(delta(some))
        assert kept.interests.match("a__b").keys() == read.interests.match("a__b").keys()
        assert {*kept.clients_of("group-1")} == {*read.clients_of("group-1")}
        assert encode(kept) == encode(read)
        read = decode(encode(read))
        assert read == kept
