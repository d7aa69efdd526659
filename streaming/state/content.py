"""The content of one shard between micro-batches: topics, groups and clients."""

from collections.abc import Callable, Collection, Iterable
from itertools import chain, starmap
from typing import Any

from streaming.records.subscribers import ClientKey
from streaming.state.client import Client, Interest, LastRequest, Subscription, is_absent
from streaming.state.delta import Backfill, ShardDelta
from streaming.state.group import Group, GroupSelectors, Roster
from streaming.state.indexes import Footprint, Members, Quotas
from streaming.state.notes import NO_NOTES, ClientNotes, Repeated
from streaming.state.policy import GroupPolicy, has_bitmap, is_restrictive
from streaming.state.topic_table import StoredTopics, TopicTable
from streaming.storage.packed import Packed


class ShardContent(Roster):
    """Topics, groups and clients of one shard, without any index.

    Attributes:
        topics: in order of creation.
        notes: about clients that ended, or that a quota refused; the latest ones last.
        repeated: parts of ends that were read and not yet applied, by client and number.
        latest_order: highest number of a request on this shard.
    """

    groups: dict[str, Group]
    selectors: dict[str, GroupSelectors]
    clients: Packed[ClientKey, Client]

    def __init__(self) -> None:
        clients = Packed[ClientKey, Client](
            ClientKey, is_absent, lambda fields: Client.of(*starmap(Subscription, fields))
        )
        super().__init__({}, {}, clients)
        self.topics: StoredTopics = {}
        self.last_requests = Packed[ClientKey, LastRequest](
            ClientKey, lambda key, _: key not in clients.present, lambda fields: LastRequest(*fields)
        )
        self.alarms: dict[int, bool] = {}
        self.backfills: dict[ClientKey, Backfill] = {}
        self.notes: dict[ClientKey, ClientNotes] = {}
        self.repeated: dict[tuple[ClientKey, int], Repeated] = {}
        self.latest_order = 0
        self._footprint = Footprint()

    def __bool__(self) -> bool:
        return any(self._content)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ShardContent):
            return NotImplemented
        return self._content == other._content and list(self.topics) == list(other.topics)

    __hash__ = None  # type: ignore[assignment]  # mutable

    @property
    def _content(self) -> tuple[Any, ...]:
        settings = self.groups, self.selectors, self.alarms
        return self.topics, *settings, self.clients, self.last_requests, self.backfills, self.notes, self.repeated

    def settle(self, table: TopicTable) -> None:
        """Replace the topics by a table of them, or an empty state's by any table."""
        if not self.topics:
            self._footprint.follow(ShardDelta(added=table.described), {}, {})
        self.topics = table

    def note(self, key: ClientKey) -> ClientNotes:
        """Return the notes about a client."""
        return self.notes.get(key, NO_NOTES)


class ShardGroups(ShardContent):
    """The content of one shard, with policies, quotas and members of groups, found when first needed."""

    def __init__(self) -> None:
        super().__init__()
        self._restrictive: dict[str, GroupPolicy] | None = None
        self._with_bitmap: dict[str, GroupPolicy] = {}
        self._quotas = Quotas()
        self._members = Members()
        self._shares: dict[ClientKey, int | None] = {}

    @property
    def restrictive_policies(self) -> dict[str, GroupPolicy]:
        """Policies of the groups in which a matching client may not receive a topic."""
        if self._restrictive is None:
            self._restrictive = {}
            self._follow_policies({**self.groups, **self.selectors})
        return self._restrictive

    @property
    def bitmap_policies(self) -> dict[str, GroupPolicy]:
        """Policies of the groups that take part in the bitmaps of topics; a part of the restrictive policies."""
        return self._with_bitmap if self.restrictive_policies else {}

    def _follow_policies(self, names: Iterable[str]) -> None:
        """Evaluate the policies of some groups again."""
        for found, is_wanted in ((self._restrictive, is_restrictive), (self._with_bitmap, has_bitmap)):
            if found is not None:
                for name in names:
                    policy = self.policy(name)
                    if is_wanted(policy):
                        found[name] = policy
                    else:
                        found.pop(name, None)

    def lowest_share(self, share: Callable[[int], int | None]) -> int:
        """Return the lowest number of topics that a quota in force allows on this shard.

        Args:
            share: returns the share of a quota on the shard; None for no limit.
        """
        return self._quotas.lowest_share(self.groups, share)

    def clients_of(self, group: str) -> Collection[ClientKey]:
        """Return the clients of a group that are in session."""
        return self._members.of(group, self.clients.present)

    def quota_share(self, key: ClientKey, share: Callable[[Group, Interest], int | None]) -> int | None:
        """Return the share of a client's quota on this shard, as `share` computes it once for each client."""
        if key not in self._shares:
            self._shares[key] = share(self.group(key.group), self.interest(key))
        return self._shares[key]

    def _follow_members(self, delta: ShardDelta) -> None:
        """Update members and quotas for a micro-batch that is not applied yet."""
        if delta.clients:
            self._members.apply(delta.clients)
        if delta.groups:
            self._quotas.apply(delta.groups, self.groups)

    def _forget_shares(self, delta: ShardDelta) -> None:
        members = map(self.clients_of, delta.groups if self._shares else ())
        for key in chain(delta.clients, *members):
            self._shares.pop(key, None)
