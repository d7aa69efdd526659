"""Coordinator state as journal entries, and back."""

from collections.abc import Iterable
from itertools import chain
from typing import Any

from streaming.coordinator.leases import lease_of
from streaming.coordinator.state import (
    CoordinatorDelta,
    CoordinatorState,
    GroupBinding,
    PendingEnd,
)
from streaming.events.model import End, Place
from streaming.storage.journal import Journal
from streaming.subscription.subscribers import ClientKey

_FORGETS = End._fields.index("forgets")


def append(journal: Journal, state: CoordinatorState, delta: CoordinatorDelta) -> Journal:
    """Return the journal with one more change.

    Args:
        journal: of the state before the change.
        state: to which the delta was applied.
        delta: the change.
    """
    return journal.append(_encode(delta), lambda: _encode_whole(state)) if state else journal.cleared()


def replay(state: CoordinatorState, changes: Iterable[Any]) -> None:
    """Apply changes of a journal to an empty state, or to the state that the journal amounts to before them."""
    for change in changes:
        state.apply(_decode(change))


def _encode_whole(state: CoordinatorState) -> list[Any]:
    return _encode(
        CoordinatorDelta(state.clock, dict(state.bindings), dict(state.leases), dict(state.alarms), dict(state.pending))
    )


def _encode(delta: CoordinatorDelta) -> list[Any]:
    return [
        delta.clock,
        [
            (group, binding and (binding.parent, binding.place, sorted(binding.notified)))
            for group, binding in delta.bindings.items()
        ],
        list(delta.leases.items()),
        [(time, shards if shards is None else sorted(shards)) for time, shards in delta.alarms.items()],
        list(delta.pending.items()),
    ]


def _decode(change: Any) -> CoordinatorDelta:
    clock, bindings, leases, alarms, *pending = change  # a former release wrote no pending ends
    return CoordinatorDelta(
        clock,
        {
            group: None if binding is None else GroupBinding(binding[0], Place(*binding[1]), frozenset(binding[2]))
            for group, binding in bindings
        },
        {ClientKey(*key): None if lease is None else lease_of(*lease) for key, lease in leases},
        {time: None if shards is None else frozenset(shards) for time, shards in alarms},
        {
            (ClientKey(*client), parent): None if fields is None else _pending(*fields)
            for (client, parent), fields in chain.from_iterable(pending)
        },
    )


def _pending(as_of: tuple[int, ...], expired: bool, forgets: Any, through: Any, *count: int) -> PendingEnd:  # noqa: FBT001 - a field
    if count:
        return PendingEnd(Place(*as_of), expired, forgets, Place(*through), *count)
    ends, later = forgets, through  # a former release kept what it had written, to write it again
    last = later[-1][0] if later else as_of
    is_forgotten = any(len(end) > _FORGETS and end[_FORGETS] for _, end in ends)
    return PendingEnd(Place(*as_of), expired, is_forgotten, Place(*last), len(later))
