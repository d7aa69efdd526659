"""State of one coordinator bucket, and a micro-batch's changes to it."""

from collections.abc import MutableMapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from sortedcontainers import SortedList

from streaming.coordinator.indexes import LeaseIndexes
from streaming.coordinator.leases import ClientLease, Leases
from streaming.events.model import Place
from streaming.state.notes import NO_VERSIONS, Versions
from streaming.storage.journal import overlay
from streaming.subscription.subscribers import ClientKey

__all__ = [
    "NO_VERSIONS",
    "ClientLease",
    "CoordinatorDelta",
    "CoordinatorState",
    "GroupBinding",
    "PendingEnd",
    "PendingKey",
    "Versions",
]


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
    """End of a client on a parent of which the job has not yet read back all that it wrote.

    Attributes:
        as_of: place of the request that ended the client, or of its last one before its lease expired.
        expired: its lease has expired.
        forgets: the client's versions count no more.
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
        overlay(self.bindings, delta.bindings)
        for key, lease in delta.leases.items():
            self.indexes.change(key, lease)
        overlay(self.leases, delta.leases)
        if self._alarm_times is not None:
            for time, shards in delta.alarms.items():
                if shards is None:
                    self._alarm_times.discard(time)
                elif time not in self.alarms:
                    self._alarm_times.add(time)
        overlay(self.alarms, delta.alarms)
        overlay(self.pending, delta.pending)
        self.clock = delta.clock


@dataclass(slots=True)
class CoordinatorDelta:
    """Changes of a micro-batch to a bucket (see `CoordinatorState`); None removes a key."""

    clock: int
    bindings: dict[str, GroupBinding | None] = field(default_factory=dict)
    leases: dict[ClientKey, ClientLease | None] = field(default_factory=dict)
    alarms: dict[int, frozenset[tuple[str, int]] | None] = field(default_factory=dict)
    pending: dict[PendingKey, PendingEnd | None] = field(default_factory=dict)
