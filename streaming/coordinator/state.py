"""State of one coordinator bucket, the changes of a micro-batch, and both as journal entries."""

from collections.abc import Iterable, MutableMapping
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Final, NamedTuple

from sortedcontainers import SortedList

from streaming.coordinator.leases import ClientLease, LeaseIndexes, Leases, lease_of
from streaming.records.model import End, Place
from streaming.records.subscribers import ClientKey
from streaming.storage.journal import Journal, overlay


class GroupBinding(NamedTuple):
    """Binding of a group to its parent topic.

    Attributes:
        parent: the parent topic.
        place: of the event that bound the group.
        notified: other parents, to which the end of the group was written.
    """

    parent: str
    place: Place
    notified: frozenset[str] = frozenset()


_LEASE_BYTES: Final = 650
"""Memory of a lease without its texts, as `tracemalloc` measures it, in bytes."""

PendingKey = tuple[ClientKey, str]
"""A client and a parent."""


class PendingEnd(NamedTuple):
    """End of a client on a parent whose records the job has not yet read back.

    Attributes:
        as_of: place of the request that ended the client, or of its last request before its lease expired.
        expired: its lease has expired.
        forgets: the client's versions are dropped.
        through: place of the last request that was written.
        later_count: number of the client's requests and ends on this parent since the end, all of which were written.
    """

    as_of: Place
    expired: bool
    forgets: bool
    through: Place
    later_count: int = 0


@dataclass(slots=True)
class CoordinatorState:
    """Groups, clients and alarms of one bucket.

    Attributes:
        bindings: by group.
        leases: by client.
        alarms: shards to wake, by time in milliseconds since the epoch.
        clock: time of the last tick, in milliseconds since the epoch.
        pending: ends that were written and not yet read back.
    """

    bindings: dict[str, GroupBinding] = field(default_factory=dict)
    leases: MutableMapping[ClientKey, ClientLease] = field(default_factory=Leases)
    alarms: dict[int, frozenset[tuple[str, int]]] = field(default_factory=dict)
    clock: int = 0
    pending: dict[PendingKey, PendingEnd] = field(default_factory=dict)
    indexes: LeaseIndexes = field(init=False, repr=False, compare=False)
    _alarm_times: "SortedList[int] | None" = field(default=None, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        self.indexes = LeaseIndexes(self.leases)

    def __bool__(self) -> bool:
        return bool(self.bindings or self.leases or self.alarms or self.clock or self.pending)

    @property
    def clients(self) -> int:
        """Number of clients in session; others are remembered for their versions."""
        if isinstance(self.leases, Leases):
            return self.leases.present
        return sum(bool(lease.parents) for lease in self.leases.values())

    def memory_bytes(self, text_bytes: int) -> int:
        """Return the estimated memory of the state, in bytes.

        Args:
            text_bytes: size of its journal, which has all names.
        """
        return 2 * text_bytes + (self.clients + len(self.pending)) * _LEASE_BYTES

    def alarms_until(self, time: int) -> list[int]:
        """Return the times of the alarms up to a time, in milliseconds since the epoch."""
        if self._alarm_times is None:
            self._alarm_times = SortedList(self.alarms)
        return list(self._alarm_times.irange(maximum=time))

    def apply(self, delta: "CoordinatorDelta") -> None:
        """Apply the changes of a micro-batch."""
        for key, lease in delta.leases.items():
            self.indexes.change(key, lease)
        if self._alarm_times is not None:
            for time, shards in delta.alarms.items():
                if shards is None:
                    self._alarm_times.discard(time)
                elif time not in self.alarms:
                    self._alarm_times.add(time)
        overlay(
            (
                (self.bindings, delta.bindings),
                (self.leases, delta.leases),
                (self.alarms, delta.alarms),
                (self.pending, delta.pending),
            )
        )
        self.clock = delta.clock


@dataclass(slots=True)
class CoordinatorDelta:
    """Changes of a micro-batch to a bucket (see `CoordinatorState`); None removes a key."""

    clock: int
    bindings: dict[str, GroupBinding | None] = field(default_factory=dict)
    leases: dict[ClientKey, ClientLease | None] = field(default_factory=dict)
    alarms: dict[int, frozenset[tuple[str, int]] | None] = field(default_factory=dict)
    pending: dict[PendingKey, PendingEnd | None] = field(default_factory=dict)


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
    ends, later = forgets, through  # a former release kept the written requests
    last = later[-1][0] if later else as_of
    is_forgotten = any(len(end) > _FORGETS and end[_FORGETS] for _, end in ends)
    return PendingEnd(Place(*as_of), expired, is_forgotten, Place(*last), len(later))
