"""State of groups and clients in the coordinator, over all parents."""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice
from typing import TypeVar

from streaming.coordinator import CoordinatorState
from streaming.records.model import Stream
from streaming.worker.inquiry.listing import PAGE_CHARACTERS
from streaming.worker.inquiry.model import EventPlace
from streaming.worker.inquiry.questions import Question

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class BindingFacts:
    """Binding of a group to its parent.

    Attributes:
        parent: the parent topic.
        place: of the event that bound it.
    """

    group: str
    parent: str
    place: EventPlace


@dataclass(frozen=True, slots=True)
class LeaseFacts:
    """A client, over all parents.

    Attributes:
        parents: on which it may be in session.
        place: of its last request.
        last_request: time of that, in milliseconds since the epoch.
    """

    group: str
    client: str
    parents: tuple[str, ...]
    place: EventPlace
    last_request: int


@dataclass(frozen=True, slots=True)
class Overview:
    """Groups and clients of one bucket that a question is about, up to its limit.

    Attributes:
        bindings: of groups.
        leases: of clients.
        clock: time of the last tick, in milliseconds since the epoch.
        client_timeout_ms: time without requests after which a client is ended; 0 for never.
    """

    bindings: tuple[BindingFacts, ...]
    leases: tuple[LeaseFacts, ...]
    clock: int
    client_timeout_ms: int


def overview(state: CoordinatorState, question: Question, client_timeout_ms: int) -> Overview:
    """Return the state of the group and the client of a question in a bucket."""
    group, client, limit = question.group, question.client, question.limit
    bound = ((name, len(name)) for name in state.bindings if group in (None, name))
    leased = (
        (key, sum(map(len, (*key, *lease.parents))))
        for key, lease in state.leases.items()
        if group in (None, key.group) and client in (None, key.client_id)
    )
    names, keys = _fitting(bound, limit), _fitting(leased, limit)
    return Overview(
        tuple(_binding(state, name) for name in names),
        tuple(
            LeaseFacts(
                *key,
                lease.parents,
                EventPlace(Stream.SUBSCRIPTIONS, lease.place.partition, lease.place.offset, lease.place.entry),
                lease.place.timestamp,
            )
            for key, lease in ((key, state.leases[key]) for key in keys)
        ),
        state.clock,
        client_timeout_ms,
    )


def _fitting(things: Iterable[tuple[T, int]], limit: int) -> list[T]:
    """Return the first items, given with their lengths, up to a number and up to `PAGE_CHARACTERS`."""
    found: list[T] = []
    characters = 0
    for thing, length in islice(things, limit):
        characters += length
        if found and characters > PAGE_CHARACTERS:
            break
        found.append(thing)
    return found


def _binding(state: CoordinatorState, name: str) -> BindingFacts:
    parent, place, _ = state.bindings[name]
    return BindingFacts(name, parent, EventPlace(Stream.GROUPS, place.partition, place.offset, place.entry))
