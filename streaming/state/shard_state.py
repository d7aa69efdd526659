"""The state of one shard between micro-batches, with indexes over it."""

from collections.abc import Callable, Collection, Iterable
from functools import partial
from itertools import chain, starmap
from typing import Any, Self

from streaming.records.subscribers import ClientKey, Matches
from streaming.state.client import Client, Interest, LastRequest, Subscription, is_absent
from streaming.state.client_table import SettledClients, SettledInterests
from streaming.state.counts import HeldCounts
from streaming.state.delta import Backfill, ShardDelta
from streaming.state.frames import Accepted, Frame, GroupRows, covered_frame, former_interest, frame, pinned
from streaming.state.group import Group, GroupSelectors, Roster, read_alike
from streaming.state.indexes import Alarms, Deadlines, Footprint, Members, PatternTargets, Quotas
from streaming.state.interests import Interests
from streaming.state.notes import ClientNotes, Repeated
from streaming.state.policy import GroupPolicy, apply_policies, has_bitmap, is_restrictive
from streaming.state.topic_table import CreationOrder, StoredTopics, TopicSpan, TopicTable
from streaming.storage.packed import Packed, overlay
from streaming.tuning import DEFAULT_TUNING, Tuning


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
        self.notes = dict[ClientKey, ClientNotes]()
        self.repeated = dict[tuple[ClientKey, int], Repeated]()
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

    def settle(self, topics: StoredTopics, settled: SettledClients) -> None:
        """Replace topics and clients by settled ones with the same content, or fill an empty state."""
        self._footprint.settle(topics, settled.clients.recent)
        self.topics, self.settled = topics, settled
        self.clients.present = settled.clients
        self.last_requests.present = settled.requests


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


class ShardState(ShardGroups):
    """The content of one shard, with indexes that are built when first needed.

    Attributes:
        inner_multi: `**` is allowed inside a pattern.
        new_interests: returns an empty index of interests with the settings of this shard.
        order: order of creation of the stored topics.
        new_counts: returns counts of topics.
        counts: those of `held`; None if topics are not counted, or no longer.
    """

    def __init__(self, *, inner_multi: bool = False, tuning: Tuning = DEFAULT_TUNING) -> None:
        super().__init__()
        self.inner_multi = inner_multi
        self.new_interests = partial(
            Interests,
            inner_multi,
            array_min_topics=tuning.array_min_topics,
            array_build_topics=tuning.array_build_topics,
        )
        self._tuning = tuning
        self._targets = PatternTargets(inner_multi=inner_multi)
        self._deadlines: Deadlines | None = None
        self.order = CreationOrder()
        self._frames: dict[tuple[ClientKey, ...], Frame] = {}
        self._rows: dict[str, GroupRows] = {}
        self._accepted: dict[str, Accepted] = {}
        self._by_group: dict[str, dict[ClientKey, Backfill]] | None = None
        self.new_counts = partial(HeldCounts, tuning.columnar_min_topics)
        self.counts: HeldCounts | None = None
        self._interests: Interests | None = None
        self._alarm_times = Alarms()

    def without_indexes(self) -> Self:
        """Return the same content, shared with this state, without the indexes that were built over it."""
        plain = type(self)(inner_multi=self.inner_multi, tuning=self._tuning)
        plain.topics, plain.groups, plain.selectors, plain.alarms, *others = self._content
        plain.clients, plain.last_requests, plain.backfills, plain.notes, plain.repeated = others
        plain.latest_order, plain.settled = self.latest_order, self.settled
        plain._footprint = self._footprint  # noqa: SLF001 - same class
        if self.settled is not None:
            plain.index(self.settled)
        return plain

    def alarms_due(self, now: int) -> list[int]:
        """Return the alarms at or before `now`, in milliseconds since the epoch."""
        return self._alarm_times.due(now, self.alarms)

    @property
    def is_unrestricted(self) -> bool:
        """True if every matching client receives a topic, by all rules but the quotas."""
        return not (self.restrictive_policies or self.backfills)

    @property
    def interests(self) -> Interests:
        """Index of the interests of all clients."""
        if self._interests is None:
            self._interests = self.new_interests_of(self.clients.present)
        return self._interests

    def index(self, settled: SettledClients) -> None:
        """Use settled topics and the interests of settled clients in place of indexes of them."""
        self._targets.settle(self.topics.postings if isinstance(self.topics, TopicTable) else ())
        self._interests = self.new_interests_of(settled.unindexed, settled.interests)

    def new_interests_of(self, keys: Iterable[ClientKey], settled: SettledInterests | None = None) -> Interests:
        """Return an index of the interests of some clients, besides settled interests."""
        found = self.new_interests(settled=settled)
        found.add_all((key, self.interest(key)) for key in keys)
        return found

    def due(self, now: int) -> list[str]:
        """Return the topics whose deadline is at or before `now`, in milliseconds since the epoch."""
        if self._deadlines is None:
            self._deadlines = Deadlines(self.topics)
        return self._deadlines.due(now)

    def topics_of(self, wanted: Interest) -> Collection[str]:
        """Return the stored topics that match an interest, each once."""
        if wanted.everything is not None or not self.topics:
            return self.topics  # without topics no index is worth keeping up
        if not wanted.patterns:
            return dict.fromkeys(name for block in wanted.blocks for name in block.entries if name in self.topics)
        return dict.fromkeys(self._targets.expand(wanted, self.topics))

    def subscribers(self, topic: str, matches: Matches | None = None) -> Matches:
        """Return the subscribers of a stored topic by all rules but the quotas.

        Args:
            topic: its name.
            matches: all matching subscribers, if already computed.
        """
        if matches is None:
            matches = self.interests.match(topic)
        frames = self._frames_of(topic) if self.backfills else {}
        if frames:
            matches = {
                row: texts
                for row, texts in matches.items()
                if row.group not in frames or row.client not in frames[row.group].keys
            }
        metadata = self.topics[topic]
        found = apply_policies(matches, topic, metadata, (self.interests,), self.restrictive_policies)
        for each in frames.values():
            found.update(each.subscribers(topic, metadata))
        return found

    def _frames_of(self, topic: str) -> dict[str, Frame]:
        """Return the groups that a topic still sees as they were, because a backfill has not reached it."""
        covering: dict[str, list[ClientKey]] = {}
        for key in self.backfills:
            if topic in self.remaining(key):
                covering.setdefault(key.group, []).append(key)
        return {group: self._frame(group, tuple(keys)) for group, keys in covering.items()}

    def _frame(self, group: str, keys: tuple[ClientKey, ...]) -> Frame:
        if keys not in self._frames:
            backfills = [self.backfills[key] for key in keys]
            self._frames[keys] = covered_frame(self, group, self.clients_of(group), backfills, self.new_interests)
        return self._frames[keys]

    def backfills_of(self, group: str) -> dict[ClientKey, Backfill]:
        """Return the backfills of a group, the oldest first."""
        if self._by_group is None:
            self._by_group = {}
            for key, each in self.backfills.items():
                self._by_group.setdefault(key.group, {})[key] = each
        return self._by_group.get(group, {})

    def remaining(self, key: ClientKey) -> TopicSpan:
        """Return the topics that a backfill has still to go through, in order of creation."""
        return self.order.span(self.backfills[key].first, self.backfills[key].last, self.topics)

    def rows(self, key: ClientKey, most: int | None = None, also: Iterable[str] = ()) -> dict[str, Matches]:
        """Return a client's part in `subscribers` of the topics that it receives: the first ones, and those in `also`.

        They are in order of creation; `most` is their number, or None for all.
        """
        found, accepted = self._rows_of(key), self._accepted_of(key.group)
        rows_of, asked = partial(self._group_rows, key.group, found), partial(self.asked, key)
        in_order = partial(self.order.in_order, topics=self.topics)
        first = found.first(key, accepted, rows_of, asked, most, in_order=in_order)
        others = {topic: found.of(key, rows_of(topic)) for topic in also if topic not in first}
        return {**first, **{topic: rows for topic, rows in others.items() if rows}}

    def _accepted_of(self, group: str) -> Iterable[str]:
        """Return the topics that the selector of a group accepts; all if they may still follow a former one."""
        policy = self.policy(group)
        if policy.selector is not None and group not in self._accepted:
            self._accepted[group] = Accepted(self.topics, policy)
        return self.topics if self.backfills_of(group) else self._accepted.get(group, self.topics)

    def _rows_of(self, key: ClientKey) -> GroupRows:
        """Return where to find the rows of a client: with those of its group, if another client may receive them."""
        group, backfills = key.group, self.backfills_of(key.group)
        policies = [self.restrictive_policies.get(group), *(each.policy for each in backfills.values())]
        if not any(policy is not None and policy.exclusive for policy in policies):
            return GroupRows([key], len(self.topics))
        if group not in self._rows:
            clients = dict.fromkeys((*self.clients_of(group), *pinned(group, backfills.values())))
            self._rows[group] = GroupRows(clients, len(self.topics))
        return self._rows[group]

    def _group_rows(self, group: str, rows: GroupRows, topic: str) -> Matches:
        """Return the subscribers of a topic among some clients of a group."""
        covering = tuple(key for key in self.backfills_of(group) if topic in self.remaining(key))
        if covering not in rows.frames:
            backfills = [self.backfills[key] for key in covering]
            rows.frames[covering] = frame(self, group, rows.keys, backfills, self.new_interests)
        return rows.frames[covering].subscribers(topic, self.topics[topic])

    def asked(self, key: ClientKey) -> dict[str, None]:
        """Return the stored topics that match a client's interest, or a former one while a backfill is under way."""
        formers = (former_interest(self, key, [each]) for each in self.backfills_of(key.group).values())
        return dict.fromkeys(chain.from_iterable(map(self.topics_of, (self.interest(key), *formers))))

    def held(self, key: ClientKey, share: Callable[[Group, Interest], int | None]) -> float:
        """Return the number of topics that a client may hold by all rules but its quota; infinity beyond its share."""
        share_of = partial(self.quota_share, share=share)
        if self.counts is None:
            self.counts = self.new_counts()
            self.counts.count_all(self, self.clients.present, share_of)
        return self.counts.of(key, share_of(key), self)

    def memory_bytes(self, text_bytes: int) -> int:
        """Return the estimated memory of the state with its indexes; both it and the size of its journal in bytes."""
        return self._footprint.memory_bytes(
            text_bytes=text_bytes,
            topics=self.topics,
            targets=self._targets,
            has_order=bool(self.backfills),
            clients=self.clients.present,
            interests=self._interests,
        )

    def apply(self, delta: ShardDelta) -> None:
        """Make the changes of a micro-batch, in the indexes that exist as well."""
        self._footprint.follow(delta, self.topics, self.clients.present)
        self._frames, self._rows, self._accepted, self._by_group = {}, {}, {}, None
        backfills = {key: self.backfills[key] for key in delta.backfills if key in self.backfills}
        self._apply_topics(delta)
        self._alarm_times.apply(delta.alarms)
        formers: dict[ClientKey, Interest] = {}
        if self._interests is not None:
            groups = [name for name, later in delta.groups.items() if not read_alike(self.group(name), later)]
            keys = chain(delta.clients, *map(self.clients_of, groups))
            formers = {key: self.interest(key) for key in keys}
        self._follow_members(delta)
        for key in delta.notes:  # the latest are the last
            self.notes.pop(key, None)
        settings = delta.groups, delta.selectors, delta.alarms
        clients = delta.clients, delta.last_requests, delta.backfills, delta.notes, delta.repeated
        overlay(zip(self._content[1:], (*settings, *clients), strict=True))
        if self._restrictive is not None and (delta.groups or delta.selectors):
            self._follow_policies({**delta.groups, **delta.selectors})
        self._forget_shares(delta)
        if self.counts is not None:
            self.counts.update({**dict.fromkeys(delta.clients), **delta.held})
            for key, each in delta.backfills.items():
                others = pinned(key.group, filter(None, (each, backfills.get(key))))
                self.counts.update(dict.fromkeys((*self.clients_of(key.group), *others)))
        self.latest_order = max(self.latest_order, delta.latest_order or delta.latest_of_entries) if self else 0
        if self.order.questions or (delta.backfills and not self.backfills):
            self.order = CreationOrder()
        for key, before in formers.items():
            self.interests.replace(key, before, self.interest(key))

    def _apply_topics(self, delta: ShardDelta) -> None:
        gone = {topic: self.topics.pop(topic) for topic in delta.removed}
        self.topics.update(delta.added)
        if self._deadlines is not None:
            self._deadlines.remove(gone)
            self._deadlines.add(delta.added)
        self._targets.apply(delta)
        if self.backfills:
            self.order.apply(delta)

    def replay(self, delta: ShardDelta) -> None:
        """Make the changes of another worker, whose delta may lack the counts of `held`."""
        if delta.held or self.counts is None:
            self.apply(delta)
            return
        self.counts.count(list(delta.removed), -1, self)
        self.apply(delta)
        if delta.groups or delta.selectors or any(self.policy(key.group).exclusive for key in delta.clients):
            self.counts = None
            return
        self.counts.update(dict.fromkeys(delta.clients))
        self.counts.count(list(delta.added), 1, self)
