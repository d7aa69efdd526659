"""State of one coordinator bucket, and a micro-batch's changes to it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from streaming.events.model import Place
from streaming.storage.journal import overlay
from streaming.subscription.client import Mode
from streaming.subscription.subscribers import ClientKey


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


class Versions(NamedTuple):
    """Versions of the requests that a parent applied last for one client, by mode; None for none."""

    literal: int | None = None
    wildcard: int | None = None

    def of(self, mode: Mode) -> int | None:
        """Return the version under a mode."""
        return self.wildcard if mode is Mode.WILDCARD else self.literal


NO_VERSIONS = Versions()


class ClientLease(NamedTuple):
    """What a client has asked for.

    Attributes:
        parents: on which it may be in session.
        place: of its last request.
        versions: by parent, also where its session has ended: older requests stay stale there.
    """

    parents: tuple[str, ...]
    place: Place
    versions: Mapping[str, Versions] = {}


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
        count: number of the client's requests and ends on this parent since the end, all of which were written.
    """

    as_of: Place
    expired: bool
    forgets: bool
    through: Place
    count: int = 0


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
    leases: dict[ClientKey, ClientLease] = field(default_factory=dict)
    alarms: dict[int, frozenset[tuple[str, int]]] = field(default_factory=dict)
    clock: int = 0
    pending: dict[PendingKey, PendingEnd] = field(default_factory=dict)
    _clients: int | None = field(default=None, compare=False, repr=False)

    def __bool__(self) -> bool:
        return bool(self.bindings or self.leases or self.alarms or self.clock or self.pending)

    @property
    def clients(self) -> int:
        """Number of clients in session; others are remembered for their versions."""
        if self._clients is None:
            self._clients = sum(map(_is_in_session, self.leases.values()))
        return self._clients

    def memory_bytes(self, text_bytes: int) -> int:
        """Return the estimated memory of the state, in bytes.

        Args:
            text_bytes: size of its journal, which has all names.
        """
        return text_bytes + (len(self.leases) + len(self.pending)) * _LEASE_BYTES

    def apply(self, delta: "CoordinatorDelta") -> None:
        """Apply the changes of a micro-batch."""
        if self._clients is not None:
            self._clients += sum(
                _is_in_session(lease) - _is_in_session(self.leases.get(key)) for key, lease in delta.leases.items()
            )
        overlay(self.bindings, delta.bindings)
        overlay(self.leases, delta.leases)
        overlay(self.alarms, delta.alarms)
        overlay(self.pending, delta.pending)
        self.clock = delta.clock


def _is_in_session(lease: ClientLease | None) -> bool:
    return lease is not None and bool(lease.parents)


@dataclass(slots=True)
class CoordinatorDelta:
    """Changes of a micro-batch to a bucket (see `CoordinatorState`); None removes a key."""

    clock: int
    bindings: dict[str, GroupBinding | None] = field(default_factory=dict)
    leases: dict[ClientKey, ClientLease | None] = field(default_factory=dict)
    alarms: dict[int, frozenset[tuple[str, int]] | None] = field(default_factory=dict)
    pending: dict[PendingKey, PendingEnd | None] = field(default_factory=dict)
