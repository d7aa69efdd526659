"""A micro-batch on one shard: the state as it is after the events read so far, kept as differences."""

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any, NamedTuple

from streaming.events.columns import COLUMNAR_MIN_TOPICS, Event, SourceColumns, TopicEventColumns
from streaming.events.model import (
    NO_METADATA,
    Action,
    GroupEvent,
    Place,
    Reason,
    Source,
    SubscriptionRequest,
    TopicEvent,
    TopicMetadata,
)
from streaming.expansion import quota
from streaming.expansion.bulk import BulkChange, split_bulk
from streaming.state.shard import Shard
from streaming.state.state import (
    UNKNOWN_GROUP,
    Backfill,
    Delta,
    Group,
    GroupSelectors,
    ShardState,
    interest_in,
    policy_of,
)
from streaming.subscription.client import (
    ABSENT,
    Client,
    Ignored,
    Interest,
    LastRequest,
    Mode,
    interest,
)
from streaming.subscription.policy import GroupPolicy, bitmap, has_bitmap
from streaming.subscription.requests import RequestOutcome, advance, end
from streaming.subscription.subscribers import ClientKey, SubscriberKey
from streaming.updates.model import Cause, Op, Problem, Update

_new = tuple.__new__
"""Makes a named tuple in two thirds of the time, where there are many."""


class Topic(NamedTuple):
    """A topic that the batch speaks of, as it is after it."""

    exists: bool
    source: Source
    cause: Cause
    metadata: TopicMetadata = NO_METADATA


class InterestChange(NamedTuple):
    """A client whose interest, or whose group's terms, differ after the batch, and what made it so."""

    before: Interest
    after: Interest
    source: Source
    cause_add: Cause
    cause_remove: Cause
    offset_option: Any = None

    def differences(self, *, ordered: bool) -> tuple[Interest, Interest]:
        """What of both interests can make a difference; `ordered` as in `Interest.without`."""
        if self.before.patterns != self.after.patterns:
            return self.before, self.after
        return self.after.without(self.before, ordered=ordered), self.before.without(self.after, ordered=ordered)


class Batch:
    """What the events of a micro-batch do to a shard."""

    def __init__(self, state: ShardState, shard: Shard) -> None:
        self.state = state
        self.shard = shard
        self.problems: list[Problem] = []
        self.ignored: Counter[Ignored] = Counter()
        self.topics: dict[str, Topic] = {}
        self.bulks: list[BulkChange] = []
        self.changed: dict[ClientKey, InterestChange] = {}
        self.delta = Delta()
        self.sliced: dict[ClientKey, Backfill] = {}
        self.moved: list[str] = []  # deleted and created again: they now come last in order of creation
        self.limits: dict[str, GroupPolicy] = {}
        self._groups: dict[str, tuple[Group | None, Source]] = {}
        self._selected: dict[str, tuple[GroupSelectors, Source]] = {}
        self._clients: dict[ClientKey, Client] = {}
        self._seen: dict[ClientKey, LastRequest] = {}
        self._requests: dict[ClientKey, tuple[Source, SubscriptionRequest]] = {}
        self._order = state.latest_order
        self._now: int | None = None
        self._sources: dict[str, Source] = {}
        self._bitmaps: dict[str, bytes | None] = {}
        self._subscribers: dict[SubscriberKey, tuple[int | None, Group]] = {}

    def group_of(self, name: str) -> Group:
        """A group's attributes after the events so far."""
        if name in self._groups:
            return self._groups[name][0] or UNKNOWN_GROUP
        return self.state.group(name)

    def policy(self, name: str) -> GroupPolicy:
        """On what terms the clients of a group receive after the events so far."""
        return policy_of(self.group_of(name), self._selected_of(name))

    def client(self, key: ClientKey) -> Client:
        """A client after the events so far."""
        return self._clients.get(key) or self.state.clients.get(key) or Client()

    def interest(self, key: ClientKey) -> Interest:
        """What a client asks for after the events so far."""
        return interest_in(self.group_of(key.group), self.client(key))

    def version(self, key: ClientKey) -> int | None:
        """The version of a client's last applied request."""
        return self.client(key).subscription(self.group_of(key.group).mode).version

    def members(self, group: str) -> Iterator[ClientKey]:
        """All clients of a group, those that came in this batch included."""
        known = self.state.clients
        came = (key for key in self._clients if key not in known)
        return (key for key in chain(known, came) if key.group == group)

    def read(self, events: Iterable[tuple[Source, Event]]) -> None:
        """Applies all events, and computes the delta and which clients it concerns.

        Args:
            events: groups first, then subscriptions, topics, and the time, in offset order.
        """
        for source, event in events:
            if isinstance(event, TopicEvent):
                self.topic(source, event)
            elif isinstance(event, TopicEventColumns):
                self.topic_events(event)
            elif isinstance(event, SubscriptionRequest):
                self.request(source, event)
            elif isinstance(event, GroupEvent):
                self.group(source, event)
            else:
                self.time(source, event.time)
        self._close()

    def topic(self, source: Source, event: TopicEvent) -> None:
        """A topic was created or deleted."""
        self._topic(source, event.lite_topic, event.created, event.metadata(source.timestamp))

    def topic_events(self, many: TopicEventColumns) -> None:
        """Many topics were created or deleted: all of the batch, whose requests and group events are read."""
        others: Iterable[int] = range(len(many.names))
        if self._judges_alike:
            self.bulks, others = split_bulk(many, self.state.topics)
        for number in others:
            self._topic(many.sources.at(number), many.names[number], many.created[number], many.metadata[number])

    def time(self, source: Source, now: int) -> None:
        """It is late: topics whose time is over end."""
        self._now = max(now, self._now or 0)
        gone = {name for bulk in self.bulks if not bulk.exists for name in bulk.names}
        due = [name for name in self.state.due(now) if name not in self.topics and name not in gone]
        if len(due) >= COLUMNAR_MIN_TOPICS and self._judges_alike:
            self.bulks.append(
                BulkChange(
                    False, Cause.TOPIC_EXPIRED, due, [NO_METADATA] * len(due), SourceColumns.same(source, len(due))
                )
            )
        else:
            self.topics.update((name, Topic(False, source, Cause.TOPIC_EXPIRED)) for name in due)
        for name, topic in list(self.topics.items()):
            if topic.exists and topic.metadata.deadline is not None and topic.metadata.deadline <= now:
                self.topics[name] = Topic(False, source, Cause.TOPIC_EXPIRED)
        self.bulks = [bulk.without_expired(now) if bulk.exists else bulk for bulk in self.bulks]

    def group(self, source: Source, event: GroupEvent) -> None:
        """A group has other attributes, or is bound to another parent."""
        current = self._groups[event.group][0] if event.group in self._groups else self.state.groups.get(event.group)
        cause = event.superseded_by
        ignored: Ignored | None = None
        if cause is not None:
            # What happened is the event that bound the group elsewhere, not this echo of it.
            source = source.at(cause)
            newer = current is not None and current.partition == cause.partition and current.offset >= cause.offset
            gone = current is None and event.bound_to is None
            ignored = Ignored.GROUP_SUPERSEDED if newer or gone else None
        elif not event.attributes and (current is None or current.bound_to is not None):
            ignored = Ignored.GROUP_UNKNOWN  # here
        if ignored is None:
            # Equal attributes are stored as well: what a later event supersedes depends on where they stand.
            known = event.attributes or event.bound_to is not None
            group = Group(dict(event.attributes), source.partition, source.offset, event.bound_to) if known else None
            self._groups[event.group] = (group, source)
        elif self.shard.number == 0:
            self.ignored[ignored] += 1

    def request(self, source: Source, request: SubscriptionRequest) -> None:
        """A client asks for something else."""
        key = ClientKey(request.group, request.client_id)
        if request.as_of is not None:
            self._end(key, source, request, request.as_of)
            return
        self._order += 1
        former = self.client(key)
        mode = self.group_of(key.group).mode
        changes = {
            reading: advance(
                former.subscription(reading), request, self.shard.rules(reading), self._order, source.place
            )
            for reading in Mode
        }
        change = changes[mode]
        excess = self._excess(key, request, change)
        if excess is not None:
            self.problems.append(Problem(source, Reason.QUOTA_EXCEEDED, excess))
            changes = {reading: RequestOutcome(former.subscription(reading), refused=True) for reading in Mode}
        elif self.shard.number == 0:  # every shard of the parent sees the request; one of them speaks of it
            self._report(source, change, former.subscription(mode) == change.subscription)
        self._remember(key, request.action, source.place, changes)
        self._select(source, request, changes)
        self._store(key, source, request, changes[Mode.LITERAL].subscription, changes[Mode.WILDCARD].subscription)

    def _close(self) -> None:
        """All events are read."""
        added = self._added()
        deadlines = sorted({metadata.deadline for metadata in added.values() if metadata.deadline is not None})
        alarms: dict[int, bool | None] = {time: True for time in deadlines if time not in self.state.alarms}
        if self._now is not None:
            alarms.update((time, None) for time in self.state.alarms if time <= self._now)
        clients = self._stored_clients()
        self.delta = Delta(
            self._removed(),
            added,
            {name: group for name, (group, _) in self._groups.items()},
            clients,
            self._stored_seen(clients),
            {name: selected for name, (selected, _) in self._selected.items()},
            alarms,
        )
        self.moved = [name for name, topic in self.topics.items() if topic.exists and name in self.state.topics]
        self.limits = self._limits()
        self.changed = dict(self._changed_clients())
        # What is done in slices goes on only while nothing is said of the client or its group.
        for key, pending in self.state.backfills.items():
            if key not in self.changed and (key.group in self._groups or key.group in self._selected):
                wanted = self.interest(key)
                self.changed[key] = InterestChange(wanted, wanted, *pending[3:])
            if key in self.changed:
                self.delta.backfills[key] = None

    def metadata(self, topic: str) -> TopicMetadata:
        """What the creation of a topic that exists after the batch said about it."""
        return self.delta.added[topic] if topic in self.delta.added else self.state.topics[topic]

    def source(self, topic: str) -> Source:
        """Where the event stands that created a topic of the batch."""
        if topic in self.topics:
            return self.topics[topic].source
        if not self._sources:
            for bulk in self.bulks:
                self._sources.update((name, bulk.sources.at(row)) for row, name in enumerate(bulk.names))
        return self._sources[topic]

    def update(
        self,
        op: Op,
        subscriber: SubscriberKey,
        topic: str,
        patterns: list[str],
        *,
        cause: Cause,
        source: Source,
        option: Any = None,
    ) -> Update:
        """An update of this batch."""
        known = self._subscribers.get(subscriber)
        if known is None:
            known = self._subscribers[subscriber] = self.version(subscriber.client), self.group_of(subscriber.group)
        version, group = known
        reset = group.resets(cause)
        shown = tuple(sorted(set(patterns))) if len(patterns) > 1 else tuple(patterns)
        return _new(Update, (op, subscriber, topic, shown, cause, version, source, option, reset, None))

    @property
    def has_bitmaps(self) -> bool:
        """Whether some group has a SQL92 selector."""
        return any(has_bitmap(policy) for policy in self.limits.values())

    def with_bitmap(self, update: Update) -> Update:
        """An ADD that says which groups' SQL92 selectors agree with its topic."""
        if update.op is Op.REMOVE:
            return update
        topic = update.lite_topic
        if topic not in self._bitmaps:
            self._bitmaps[topic] = bitmap(self.shard.parent, self.metadata(topic), self.limits)
        return update._replace(bitmap=self._bitmaps[topic])

    def policy_changed(self, name: str, *others: str) -> bool:
        """Whether other terms than the quota, and `others`, hold for a group after the batch."""
        left_out: dict[str, Any] = dict.fromkeys(("quota", *others))
        return self.policy(name)._replace(**left_out) != self.state.policy(name)._replace(**left_out)

    def regroups(self, name: str) -> bool:
        """Whether the batch says something of a group's attributes."""
        return name in self._groups

    def policy_change(self, name: str) -> tuple[Source, Cause]:
        """What changed the terms of a group."""
        if name in self._groups and self.policy_changed(name, "selector"):
            return self._groups[name][1], Cause.GROUP_CHANGED
        return self._selected[name][1], Cause.SELECTOR_CHANGED

    def regrouped(self) -> Iterator[tuple[str, Source]]:
        """The groups of which the batch says something, each with the event that said it last."""
        yield from ((name, source) for name, (_, source) in self._groups.items())
        yield from ((name, source) for name, (_, source) in self._selected.items() if name not in self._groups)

    def _topic(self, source: Source, name: str, created: bool, metadata: TopicMetadata) -> None:  # noqa: FBT001 - private
        known = self.topics.get(name)
        exists = name in self.state.topics if known is None else known.exists
        if exists == created:
            self.ignored[Ignored.TOPIC_EXISTS if exists else Ignored.TOPIC_UNKNOWN] += 1
            return
        self.topics.pop(name, None)  # topics stand in order of their creation
        if created:
            self.topics[name] = Topic(True, source, Cause.TOPIC_CREATED, metadata)
        else:
            self.topics[name] = Topic(False, source, Cause.TOPIC_DELETED)

    @property
    def _judges_alike(self) -> bool:
        """Whether all who ask for a topic receive it, so that a topic that comes or goes needs no second thought."""
        return self.state.is_unrestricted and not self._limits()

    def _limits(self) -> dict[str, GroupPolicy]:
        """The terms of the groups in which not all who ask for a topic receive it, after the events so far."""
        renewed = {name: self.policy(name) for name in (*self._groups, *self._selected)}
        return {name: policy for name, policy in {**self.state.limits, **renewed}.items() if not policy.plain}

    def _removed(self) -> dict[str, None]:
        """The topics that were there before, and are not any more or come anew."""
        removed = {name: None for name in self.topics if name in self.state.topics}
        for bulk in self.bulks:
            if not bulk.exists:
                removed.update(dict.fromkeys(bulk.names))
        return removed

    def _added(self) -> dict[str, TopicMetadata]:
        """The topics that were not there before, or come anew, in order of their creation."""
        added = {name: topic.metadata for name, topic in self.topics.items() if topic.exists}
        bulks = [bulk for bulk in self.bulks if bulk.exists]
        places = {name: self.topics[name].source[1:3] for name in added} if bulks else {}
        for bulk in bulks:
            added.update(zip(bulk.names, bulk.metadata, strict=True))
        if not places:
            return added
        for bulk in bulks:
            places.update(zip(bulk.names, bulk.sources.places(), strict=True))
        return {name: added[name] for name in sorted(added, key=places.__getitem__)}

    def _selected_of(self, name: str) -> GroupSelectors:
        if name in self._selected:
            return self._selected[name][0]
        return self.state.selectors.get(name, GroupSelectors())

    def _end(self, key: ClientKey, source: Source, request: SubscriptionRequest, as_of: Place) -> None:
        """The home of the client ended it, or what it had asked for up to a place."""
        if not request.expired:
            source = source.at(as_of)
        former = self.client(key)
        after = end(former, request, as_of, self._seen_of(key))
        mode = self.group_of(key.group).mode
        subscription = former.subscription(mode)
        if self.shard.number == 0 and subscription.content == after.subscription(mode).content:
            ignored = Ignored.STALE_VERSION if subscription.outdates(request.version) else Ignored.ASKED_AGAIN
            self.ignored[ignored if subscription.live else Ignored.NO_SUBSCRIPTION] += 1
        self._store(key, source, request, after.literal, after.wildcard)

    def _excess(self, key: ClientKey, request: SubscriptionRequest, change: RequestOutcome) -> str | None:
        """Why a request must be refused for its client's quota; None when it need not."""
        if not change.applied or request.action not in (Action.COMPLETE_ADD, Action.PARTIAL_ADD):
            return None
        group = self.group_of(key.group)
        wanted = interest(Client(change.subscription, change.subscription), group.mode)
        policy = self.policy(key.group)
        if request.selector is not None:
            policy = policy._replace(selector=request.selector)
        return None if policy.elsewhere else quota.excess(self, key, wanted, policy)

    def _remember(self, key: ClientKey, action: Action, place: Place, changes: dict[Mode, RequestOutcome]) -> None:
        former, seen = self.client(key), self._seen_of(key)

        def began(mode: Mode) -> tuple[int, int]:
            begins = action is Action.COMPLETE_ADD or (
                action is Action.PARTIAL_ADD and not former.subscription(mode).live
            )
            if changes[mode].applied and begins:
                return place.position, self._order
            return seen.began(mode) if seen is not None and seen.partition == place.partition else (-1, 0)

        (literal, literal_order), (wildcard, wildcard_order) = map(began, Mode)
        self._seen[key] = LastRequest(place.partition, place.position, literal, wildcard, literal_order, wildcard_order)

    def _seen_of(self, key: ClientKey) -> LastRequest | None:
        return self._seen.get(key) or self.state.last_requests.get(key)

    def _select(self, source: Source, request: SubscriptionRequest, changes: dict[Mode, RequestOutcome]) -> None:
        if request.selector is None or request.action is Action.COMPLETE_REMOVE:
            return
        former = self._selected_of(request.group)
        selected = GroupSelectors(*(
            former.subscription(mode)
            if changes[mode].refused or changes[mode].ignored is Ignored.STALE_VERSION
            else request.selector
            for mode in (Mode.LITERAL, Mode.WILDCARD)
        ))  # fmt: skip
        if selected != former:
            self._selected[request.group] = (selected, source)
            if former != GroupSelectors() and self.shard.number == 0:
                self.ignored[Ignored.SELECTOR_REPLACED] += 1

    def _store(self, key: ClientKey, source: Source, request: SubscriptionRequest, literal: Any, wildcard: Any) -> None:
        former = self.client(key)
        client = Client(literal, literal if wildcard == literal else wildcard)
        if client == former:
            return
        self._clients[key] = client
        mode = self.group_of(key.group).mode
        if client.subscription(mode) != former.subscription(mode):
            self._requests[key] = (source, request)

    def _report(self, source: Source, change: RequestOutcome, unchanged: bool) -> None:  # noqa: FBT001 - private
        if change.invalid:
            first = "; ".join(change.invalid[:5])
            shown = first + (f"; and {len(change.invalid) - 5} more" if len(change.invalid) > 5 else "")  # noqa: PLR2004
            what = "the request is refused, since no entry is valid" if change.refused else "left out"
            self.problems.append(Problem(source, Reason.INVALID_PATTERN, f"{what}: {shown}"))
        if change.ignored is not None:
            self.ignored[change.ignored] += 1
        elif unchanged and not change.refused:
            self.ignored[Ignored.UNCHANGED] += 1

    def _stored_clients(self) -> dict[ClientKey, Client | None]:
        """The clients to store; None for those that leave nothing to remember."""
        return {
            key: None if client.literal == client.wildcard == ABSENT else client
            for key, client in self._clients.items()
        }

    def _stored_seen(self, clients: dict[ClientKey, Client | None]) -> dict[ClientKey, LastRequest | None]:
        """Where clients asked last; of those of whom nothing else is remembered, neither that."""
        stored: dict[ClientKey, LastRequest | None] = {
            key: seen
            for key, seen in self._seen.items()
            if (clients[key] if key in clients else self.state.clients.get(key)) is not None
        }
        for key, client in clients.items():
            stored.setdefault(key, None if client is None else self.state.last_requests.get(key))
        return stored

    def _changed_clients(self) -> Iterator[tuple[ClientKey, InterestChange]]:
        """The clients that ask for something else after the batch, or on other terms."""
        regrouped = {name: source for name, source in self.regrouped() if self.policy_changed(name)}
        keys = dict.fromkeys(self._clients)
        for group in regrouped:
            keys.update(dict.fromkeys(self.members(group)))
        for key in keys:
            before, after = self.state.interest(key), self.interest(key)
            if before == after and key.group not in regrouped:
                continue
            if key in self._requests and before != after:
                source, request = self._requests[key]
                cause = Cause.LEASE_EXPIRED if request.expired else Cause.UNSUBSCRIBED
                yield key, InterestChange(before, after, source, Cause.SUBSCRIBED, cause, request.offset_option)
            else:
                source, cause = self.policy_change(key.group)
                yield key, InterestChange(before, after, source, cause, cause)
