"""State of one coordinator bucket, and a micro-batch's changes to it."""

from dataclasses import dataclass, field
from typing import NamedTuple

from streaming.events.model import Place
from streaming.storage.journal import overlay
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


class ClientLease(NamedTuple):
    """Parents on which a client has sent requests, and the place of its last one."""

    parents: tuple[str, ...]
    place: Place


@dataclass(slots=True)
class CoordinatorState:
    """Groups, clients and alarms of one bucket.

    Attributes:
        bindings: by group.
        leases: by client.
        alarms: shards to wake, by time in milliseconds since the epoch.
        clock: time of the last tick, in milliseconds since the epoch.
    """

    bindings: dict[str, GroupBinding] = field(default_factory=dict)
    leases: dict[ClientKey, ClientLease] = field(default_factory=dict)
    alarms: dict[int, frozenset[tuple[str, int]]] = field(default_factory=dict)
    clock: int = 0

    def __bool__(self) -> bool:
        return bool(self.bindings or self.leases or self.alarms or self.clock)

    def apply(self, delta: "CoordinatorDelta") -> None:
        """Apply the changes of a micro-batch."""
        overlay(self.bindings, delta.bindings)
        overlay(self.leases, delta.leases)
        overlay(self.alarms, delta.alarms)
        self.clock = delta.clock


@dataclass(slots=True)
class CoordinatorDelta:
    """Changes of a micro-batch to a bucket (see `CoordinatorState`); None removes a key."""

    clock: int
    bindings: dict[str, GroupBinding | None] = field(default_factory=dict)
    leases: dict[ClientKey, ClientLease | None] = field(default_factory=dict)
    alarms: dict[int, frozenset[tuple[str, int]] | None] = field(default_factory=dict)
