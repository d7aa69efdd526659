"""Coordinator state as journal entries, and back."""

from collections.abc import Iterable
from typing import Any

from streaming.coordinator.state import ClientLease, CoordinatorDelta, CoordinatorState, GroupBinding
from streaming.events.model import Place
from streaming.storage.journal import Journal
from streaming.subscription.subscribers import ClientKey


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
    return _encode(CoordinatorDelta(state.clock, dict(state.bindings), dict(state.leases), dict(state.alarms)))


def _encode(delta: CoordinatorDelta) -> list[Any]:
    return [
        delta.clock,
        [
            (group, binding and (binding.parent, binding.place, sorted(binding.notified)))
            for group, binding in delta.bindings.items()
        ],
        list(delta.leases.items()),
        [(time, shards if shards is None else sorted(shards)) for time, shards in delta.alarms.items()],
    ]


def _decode(change: Any) -> CoordinatorDelta:
    clock, bindings, leases, alarms = change
    return CoordinatorDelta(
        clock,
        {
            group: None if binding is None else GroupBinding(binding[0], Place(*binding[1]), frozenset(binding[2]))
            for group, binding in bindings
        },
        {ClientKey(*key): None if lease is None else ClientLease(lease[0], Place(*lease[1])) for key, lease in leases},
        {time: None if shards is None else frozenset(shards) for time, shards in alarms},
    )
