"""Changes of a shard's state by one micro-batch."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, NamedTuple

from streaming.records.model import Source, TopicMetadata
from streaming.records.subscribers import ClientKey
from streaming.records.updates import Cause
from streaming.state.client import Client, Interest, LastRequest
from streaming.state.group import Group, GroupSelectors
from streaming.state.notes import ClientNotes, Repeated
from streaming.state.policy import GroupPolicy


class Former(NamedTuple):
    """Former interest of a client, and the fields that updates take from its latest request.

    Attributes:
        cause: of a REMOVE.
    """

    interest: Interest
    source: Source
    cause: Cause
    offset_option: Any = None


class PolicyEvent(NamedTuple):
    """Event behind another policy of a group: a request of a client that set a selector, or a group event."""

    source: Source
    client_id: str | None = None


class Backfill(NamedTuple):
    """A change of a group that several micro-batches carry out (see `streaming.expansion.backfill`).

    Attributes:
        clients: former interests by client id, in force for the topics still to come.
        first, last: ends of the remaining topics, in order of creation.
        policy: former policy of the group, in force for the topics still to come; None if it has not changed.
        event: the event that changed the policy.
    """

    clients: Mapping[str, Former]
    first: str
    last: str
    policy: GroupPolicy | None = None
    event: PolicyEvent | None = None


@dataclass(frozen=True, slots=True)
class ShardDelta:
    """Changes of a shard by one micro-batch; None deletes a key.

    Attributes:
        removed: topics that existed before.
        added: topics that are new or were created again, in order of creation.
        groups: new attributes.
        clients: new subscriptions; None for a client without anything left to remember.
        last_requests: places of the clients' last requests.
        selectors: new selectors.
        alarms: times at which the shard wants to be woken (True), or no longer (None).
        backfills: changes under way, the oldest first; None for one that is complete. A key has a blank client id, or
            the id of the only client in state that a former release wrote.
        held: changed numbers of topics that clients may hold by all rules but their quotas, `counts.BEYOND` for more
            than the quota; empty if they are not counted. Derived, so they are written only if that is cheaper than
            counting again.
        latest_order: number of the last request on the shard.
        notes: new notes about clients, by client.
        repeated: parts of ends that were read and not yet applied, by client and number.
    """

    removed: dict[str, None] = field(default_factory=dict)
    added: dict[str, TopicMetadata] = field(default_factory=dict)
    groups: dict[str, Group | None] = field(default_factory=dict)
    clients: dict[ClientKey, Client | None] = field(default_factory=dict)
    last_requests: dict[ClientKey, LastRequest | None] = field(default_factory=dict)
    selectors: dict[str, GroupSelectors | None] = field(default_factory=dict)
    alarms: dict[int, bool | None] = field(default_factory=dict)
    backfills: dict[ClientKey, Backfill | None] = field(default_factory=dict)
    held: dict[ClientKey, int] = field(default_factory=dict)
    latest_order: int = 0
    notes: dict[ClientKey, ClientNotes | None] = field(default_factory=dict)
    repeated: dict[tuple[ClientKey, int], Repeated | None] = field(default_factory=dict)

    def __bool__(self) -> bool:
        changes = (self.removed, self.added, self.groups, self.clients, self.last_requests, self.selectors, self.alarms)
        return any((*changes, self.backfills, self.notes, self.repeated))

    @property
    def latest_of_entries(self) -> int:
        """The highest number of a request behind its entries and requests, for changes of a former release."""
        subscriptions = list(chain.from_iterable(filter(None, self.clients.values())))
        orders = [subscription.everything or 0 for subscription in subscriptions]
        orders += [block.order for subscription in subscriptions for block in subscription.blocks]
        for request in filter(None, self.last_requests.values()):
            orders += [request.literal_order, request.wildcard_order]
        return int(max(orders, default=0))


def carried_out(backfills: Iterable[ClientKey]) -> ShardDelta:
    """Return the change that treats what several micro-batches carry out as carried out."""
    return ShardDelta(backfills=dict.fromkeys(backfills))
