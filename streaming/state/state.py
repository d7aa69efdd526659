"""What one shard remembers between micro-batches, and how that is written."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, takewhile
from typing import Any, NamedTuple

from matcher import TopicIndex
from streaming.events.columns import COLUMNAR_MIN_TOPICS
from streaming.events.model import (
    DEFAULT_QUOTA,
    LITE,
    MODEL,
    NO_METADATA,
    QUOTA,
    RESET_EXCLUSIVE,
    RESET_UNSUBSCRIBE,
    WILDCARD,
    Notation,
    SelectorSpec,
    Source,
    TopicMetadata,
)
from streaming.storage.journal import Journal, overlay
from streaming.subscription.client import NOTHING, Block, Client, Interest, LastRequest, Mode, Subscription, interest
from streaming.subscription.interests import Interests, pattern_of
from streaming.subscription.policy import GroupPolicy, apply_policies
from streaming.subscription.subscribers import ClientKey, Matches, SubscriberKey
from streaming.updates.model import Cause

_COUNTED = 8
"""From so many new topics a client on, what it holds is written: 30 bytes, against 2 us a topic to count."""

_CHUNK = 16_384
"""Topics that are counted at once."""


Held = dict[ClientKey, int | None]
"""How many topics clients may hold; None for one that is to be counted."""


class Group(NamedTuple):
    """Attributes in force, and where the event stands that set them.

    Attributes:
        bound_to: the group is bound to this other parent, so its attributes are kept there.
    """

    attributes: dict[str, str]
    partition: int
    offset: int
    bound_to: str | None = None

    @property
    def mode(self) -> Mode:
        """How the entries of its clients are read."""
        return Mode.WILDCARD if WILDCARD in self.attributes else Mode.LITERAL

    @property
    def exclusive(self) -> bool:
        """Whether a topic goes to one of its clients only."""
        return self.attributes.get(MODEL, "").lower() == "exclusive"

    @property
    def quota(self) -> int:
        """How many topics a client may hold; negative for any number."""
        return int(self.attributes.get(QUOTA, DEFAULT_QUOTA))

    @property
    def resets_when_evicted(self) -> bool:
        """Whether a client that loses a topic to another one starts over."""
        return self.attributes.get(RESET_EXCLUSIVE, "").lower() == "true"

    @property
    def resets_when_unsubscribed(self) -> bool:
        """Whether a client that gives a topic up starts over."""
        return self.attributes.get(RESET_UNSUBSCRIBE, "").lower() == "true"

    def resets(self, cause: Cause) -> bool:
        """Whether a client that loses a topic for this cause starts over."""
        if cause is Cause.EVICTED:
            return self.resets_when_evicted
        return cause in (Cause.UNSUBSCRIBED, Cause.LEASE_EXPIRED) and self.resets_when_unsubscribed


UNKNOWN_GROUP = Group({}, -1, -1)
"""A group of which no event is known has the defaults."""


class GroupSelectors(NamedTuple):
    """The selector of a group under both readings of the requests that set it."""

    literal: SelectorSpec | None = None
    wildcard: SelectorSpec | None = None

    def subscription(self, mode: Mode) -> SelectorSpec | None:
        """The one that counts in a group of that mode."""
        return self.wildcard if mode is Mode.WILDCARD else self.literal


class Backfill(NamedTuple):
    """A client whose change is carried out in slices (`streaming.expansion.backfill`).

    Attributes:
        before: what it asked for; that still holds for the topics to go through.
        first, last: of these, in order of creation.
        source: the request.
        cause_add, cause_remove: of the updates.
        offset_option: of the request.
    """

    before: Interest
    first: str
    last: str
    source: Source
    cause_add: Cause
    cause_remove: Cause
    offset_option: Any = None


def interest_in(group: Group, client: Client) -> Interest:
    """What a client of a group asks for on this parent."""
    return NOTHING if group.bound_to is not None else interest(client, group.mode)


def share_in(group: Group, wanted: Interest, share: Callable[[int], int | None]) -> int | None:
    """How much of a client's quota holds where it asks for that; None for no limit.

    Args:
        group: of the client.
        wanted: what it asks for.
        share: a shard's part of a quota (see `Shard.share`).
    """
    return None if wanted.everything is not None or wanted == NOTHING else share(group.quota)


def policy_of(group: Group, selected: GroupSelectors) -> GroupPolicy:
    """What a group's attributes and its selector amount to."""
    return GroupPolicy(
        group.mode, group.bound_to is not None, group.exclusive, selected.subscription(group.mode), group.quota
    )


@dataclass(frozen=True, slots=True)
class Delta:
    """What a micro-batch changes in a shard.

    Attributes:
        removed: topics that were there before.
        added: topics that were not, or that were removed and came again, in order of creation.
        groups: new attributes; None for a group that has none any more.
        clients: new subscriptions; None for a client of which nothing is left to remember.
        seen: where clients asked last; None for one that is forgotten.
        selected: new selectors.
        alarms: times at which the shard wants to be woken (True), or no longer.
        pending: clients whose change is not carried out wholly; None for one that is.
        held: how many topics clients may now hold by all but their quotas, where that has changed; none where nobody
            counts. Derived, so it is written only where that is cheaper than to count again.
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

    def __bool__(self) -> bool:
        changes = (self.removed, self.added, self.groups, self.clients, self.last_requests, self.selectors, self.alarms)
        return any((*changes, self.backfills))


class ShardState:
    """Topics, group attributes and clients of one shard, with indexes built when first needed."""

    def __init__(self, inner_multi: bool = False) -> None:  # noqa: FBT001, FBT002 - one setting of the job
        self.topics: dict[str, TopicMetadata] = {}
        self.groups: dict[str, Group] = {}
        self.clients: dict[ClientKey, Client] = {}
        self.last_requests: dict[ClientKey, LastRequest] = {}
        self.selectors: dict[str, GroupSelectors] = {}
        self.alarms: dict[int, bool] = {}
        self.backfills: dict[ClientKey, Backfill] = {}
        self.inner_multi = inner_multi
        self.latest_order = 0
        self._held: Held | None = None
        self._interests: Interests | None = None
        self._topic_indexes: dict[str, TopicIndex] = {}
        self._limits: dict[str, GroupPolicy] | None = None
        self._quotas: frozenset[int] | None = None
        self._shares: dict[ClientKey, int | None] = {}
        self._deadlines: dict[int, dict[str, None]] | None = None
        self._remaining: dict[ClientKey, dict[str, None]] = {}
        self._former: dict[ClientKey, Interests] = {}

    def __bool__(self) -> bool:
        return any(self._content)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ShardState):
            return NotImplemented
        return self._content == other._content and list(self.topics) == list(other.topics)

    __hash__ = None  # type: ignore[assignment]  # mutable

    @property
    def _content(self) -> tuple[dict[Any, Any], ...]:
        return self.topics, self.groups, self.clients, self.last_requests, self.selectors, self.alarms, self.backfills

    def group(self, name: str) -> Group:
        """A group's attributes."""
        return self.groups.get(name, UNKNOWN_GROUP)

    def policy(self, name: str) -> GroupPolicy:
        """On what terms the clients of a group receive."""
        return policy_of(self.group(name), self.selectors.get(name, GroupSelectors()))

    @property
    def limits(self) -> dict[str, GroupPolicy]:
        """The terms of the groups in which not all who ask for a topic receive it."""
        if self._limits is None:
            policy = {name: self.policy(name) for name in {**self.groups, **self.selectors}}
            self._limits = {name: found for name, found in policy.items() if not found.plain}
        return self._limits

    def interest(self, key: ClientKey) -> Interest:
        """What a client asks for now."""
        client = self.clients.get(key)
        return NOTHING if client is None else interest_in(self.group(key.group), client)

    def share(self, key: ClientKey, share: Callable[[int], int | None]) -> int | None:
        """`share_in` for a client as it is now; the shard is always the same."""
        if key not in self._shares:
            self._shares[key] = share_in(self.group(key.group), self.interest(key), share)
        return self._shares[key]

    @property
    def interests(self) -> Interests:
        """Who asks for a topic."""
        if self._interests is None:
            self._interests = Interests(self.inner_multi)
            for key in self.clients:
                self._interests.add(key, self.interest(key))
        return self._interests

    def due(self, now: int) -> list[str]:
        """The topics whose time is over."""
        if self._deadlines is None:
            self._deadlines = {}
            self._note_deadlines(self.topics)
        return [topic for deadline, topics in sorted(self._deadlines.items()) if deadline <= now for topic in topics]

    def topics_of(self, wanted: Interest) -> Iterable[str]:
        """The stored topics that an interest is about, each once."""
        if wanted.everything is not None or not self.topics:
            return self.topics  # without topics no index is worth keeping up
        if not wanted.patterns:
            return dict.fromkeys(name for block in wanted.blocks for name in block.entries if name in self.topics)
        return dict.fromkeys(self._expanded(wanted))

    @property
    def is_unrestricted(self) -> bool:
        """Whether all who ask for a topic receive it, by all rules but the quotas."""
        return not (self.limits or self.backfills)

    def subscribers(self, topic: str, found: Matches | None = None) -> Matches:
        """Who receives a stored topic by all rules but the quotas.

        Args:
            topic: its name.
            found: all who ask for it, where that is known already.
        """
        asking = self.with_backfills(topic, self.interests.match(topic) if found is None else found, self.backfills)
        return apply_policies(asking, topic, self.topics[topic], (self.interests,), self.limits)

    def with_backfills(self, topic: str, found: Matches, keys: Iterable[ClientKey]) -> Matches:
        """Who asks for a topic as far as updates say so: with the former interest of clients that are not done with it.

        Args:
            topic: its name.
            found: all who ask for it.
            keys: the pending clients that matter.
        """
        for key in keys:
            if topic in self.remaining(key):
                if key not in self._former:
                    self._former[key] = Interests(self.inner_multi)
                    self._former[key].add(key, self.backfills[key].before)
                found = {subscriber: patterns for subscriber, patterns in found.items() if subscriber.client != key}
                found.update(self._former[key].match(topic))
        return found

    def remaining(self, key: ClientKey) -> dict[str, None]:
        """The topics that a pending client has still to go through, in order of creation."""
        known = self._remaining.get(key)
        if known is None:
            known = self._remaining[key] = {}
            _, first, last, *_ = self.backfills[key]
            for topic in self.topics:
                if known or topic == first:
                    known[topic] = None
                    if topic == last:
                        break
        return known

    def rows(self, key: ClientKey) -> dict[str, Matches]:
        """A client's part in `subscribers` of all topics that it receives, in order of their creation."""
        asked = self._asked(key)
        rows: dict[str, Matches] = {}
        for topic in self.topics:
            if topic in asked:
                own = {row: patterns for row, patterns in self.subscribers(topic).items() if row.client == key}
                if own:
                    rows[topic] = own
        return rows

    def held(self, key: ClientKey) -> int:
        """How many stored topics a client may hold by all but its quota."""
        if self._held is None:
            # All clients at once, since a batch of new topics concerns many of them.
            self._held = {}
            names = list(self.topics)
            for start in range(0, len(names), _CHUNK):
                self._count(self._held, names[start : start + _CHUNK], 1)
        found = self._held.get(key, 0)
        if found is None:
            found = self._held[key] = sum(key in _clients(self.subscribers(topic)) for topic in self._asked(key))
        return found

    def _asked(self, key: ClientKey) -> dict[str, None]:
        """The stored topics that a client asks for, or has not yet given up."""
        asked = dict.fromkeys(self.topics_of(self.interest(key)))
        if key in self.backfills:
            asked.update(dict.fromkeys(self.topics_of(self.backfills[key].before)))
        return asked

    def _count(self, held: Held, topics: Sequence[str], step: int) -> None:
        """Counts topics in, or out, for all who may hold them."""
        counts: Mapping[ClientKey, int]
        if self.is_unrestricted and len(topics) >= COLUMNAR_MIN_TOPICS:
            counts = self.interests.pairs(topics).topics_by_client()
        else:
            found = zip(topics, self.interests.match_all(topics), strict=True)
            counts = Counter(chain.from_iterable(_clients(self.subscribers(topic, asking)) for topic, asking in found))
        for client, count in counts.items():
            known = held.get(client, 0)
            if known is not None:
                held[client] = known + step * count

    def drop_held(self) -> None:
        """Drops the counts, which are not kept up any more."""
        self._held = None

    @property
    def quotas(self) -> frozenset[int]:
        """The quotas in force."""
        if self._quotas is None:
            self._quotas = frozenset({DEFAULT_QUOTA, *(group.quota for group in self.groups.values())})
        return self._quotas

    def _expanded(self, wanted: Interest) -> Iterator[str]:
        for block in wanted.blocks:
            index = self._topic_index(block.notation.dialect)
            for entry in block.entries:
                yield from index.expand(pattern_of(entry, block.notation), policy=block.notation.policy)

    def _topic_index(self, dialect: str) -> TopicIndex:
        index = self._topic_indexes.get(dialect)
        if index is None:
            inner_multi = self.inner_multi and dialect == LITE.dialect
            index = self._topic_indexes[dialect] = TopicIndex(dialect, allow_inner_multi=inner_multi)
            for topic in self.topics:
                index.add(topic)
        return index

    def _note_deadlines(self, topics: Mapping[str, TopicMetadata]) -> None:
        if self._deadlines is not None:
            for topic, metadata in topics.items():
                if metadata.deadline is not None:
                    self._deadlines.setdefault(metadata.deadline, {})[topic] = None

    def _forget_deadline(self, topic: str, deadline: int | None) -> None:
        if self._deadlines is not None and deadline is not None:
            del self._deadlines[deadline][topic]
            if not self._deadlines[deadline]:
                del self._deadlines[deadline]

    def apply(self, delta: Delta) -> None:
        """Makes a micro-batch's changes, in the indexes that exist as well."""
        for topic in delta.removed:
            self._forget_deadline(topic, self.topics.pop(topic).deadline)
        self.topics.update(delta.added)
        self._note_deadlines(delta.added)
        for index in self._topic_indexes.values():
            for topic in delta.removed:
                index.remove(topic)
            for topic in delta.added:
                index.add(topic)
        affected = self._affected(delta) if self._interests is not None else {}
        overlay(self.groups, delta.groups)
        overlay(self.clients, delta.clients)
        overlay(self.last_requests, delta.last_requests)
        overlay(self.selectors, delta.selectors)
        overlay(self.alarms, delta.alarms)
        overlay(self.backfills, delta.backfills)
        self._go_on(delta)
        self._forget(delta)
        if self._held is not None:
            self._held.update(delta.held)
        self.latest_order = max(self.latest_order, _latest_order(delta))
        for key, before in affected.items():
            after = self.interest(key)
            if after != before:
                self.interests.remove(key, before)
                self.interests.add(key, after)

    def _forget(self, delta: Delta) -> None:
        """Drops what follows from groups and clients that are others now."""
        if delta.groups or delta.selectors:
            self._limits = self._quotas = None
        if delta.groups or delta.clients:
            self._shares.clear()

    def _go_on(self, delta: Delta) -> None:
        """Drops from what remains what is done, or gone."""
        for key, pending in delta.backfills.items():
            if pending is None:
                self._remaining.pop(key, None)
                self._former.pop(key, None)
            elif key in self._remaining:
                remaining = self._remaining[key]
                for topic in list(takewhile(lambda topic, first=pending.first: topic != first, remaining)):  # type: ignore[misc]
                    del remaining[topic]
        for remaining in self._remaining.values():
            for topic in delta.removed:
                remaining.pop(topic, None)

    def follow(self, delta: Delta) -> None:
        """`apply` for what another worker did, which may not say what clients may hold now."""
        held = self._held
        if held is None or delta.held:
            self.apply(delta)
            return
        self._count(held, list(delta.removed), -1)
        self.apply(delta)
        if delta.groups or delta.selectors or any(self.policy(key.group).exclusive for key in delta.clients):
            self.drop_held()
            return
        held.update(dict.fromkeys(delta.clients))
        self._count(held, list(delta.added), 1)

    def _affected(self, delta: Delta) -> dict[ClientKey, Interest]:
        """The clients whose interest may change, each with what it is now."""
        keys = dict.fromkeys(delta.clients)
        if delta.groups:
            keys.update(dict.fromkeys(key for key in self.clients if key.group in delta.groups))
        return {key: self.interest(key) for key in keys}


def _clients(subscribers: Iterable[SubscriberKey]) -> set[ClientKey]:
    return {subscriber.client for subscriber in subscribers}


def _latest_order(delta: Delta) -> int:
    views = list(chain.from_iterable(filter(None, delta.clients.values())))
    orders = [subscription.everything or 0 for subscription in views]
    orders += [block.order for subscription in views for block in subscription.blocks]
    orders += [
        order for seen in delta.last_requests.values() if seen for order in (seen.literal_order, seen.wildcard_order)
    ]
    return max(orders, default=0)


def renew(journal: Journal, state: ShardState, delta: Delta) -> Journal:
    """The journal of a state to which the delta was applied, from the one before it."""
    if not state:
        return journal.cleared()
    lasting = sum(map(len, delta.added)) - sum(map(len, delta.removed))
    return journal.append(_plain(delta), lambda: _whole(state), lasting)


def catch_up(state: ShardState, changes: Iterable[Any]) -> None:
    """Makes the changes of a journal, from nothing or from where the state was."""
    for removed, added, groups, clients, seen, selected, alarms, pending, held in changes:
        state.follow(
            Delta(
                dict.fromkeys(removed),
                _topics(added),
                {name: None if group is None else Group(*group) for name, group in groups},
                {ClientKey(*key): None if views is None else _client(*views) for key, views, _ in clients},
                {
                    ClientKey(*key): None if place is None else LastRequest(*place)
                    for key, place in (*((key, place) for key, _, place in clients), *seen)
                },
                {name: None if both is None else _selected(*both) for name, both in selected},
                dict(alarms),
                {ClientKey(*key): None if fields is None else _pending(*fields) for key, fields in pending},
                {ClientKey(*key): count for key, count in held},
            )
        )


def _whole(state: ShardState) -> list[Any]:
    return _plain(
        Delta(
            {},
            state.topics,
            dict(state.groups),
            dict(state.clients),
            dict(state.last_requests),
            dict(state.selectors),
            dict(state.alarms),
            dict(state.backfills),
        )
    )


def _plain(delta: Delta) -> list[Any]:
    return [
        list(delta.removed),
        _written(delta.added),
        list(delta.groups.items()),
        [(key, client and _views(client), delta.last_requests.get(key)) for key, client in delta.clients.items()],
        [(key, seen) for key, seen in delta.last_requests.items() if key not in delta.clients],
        list(delta.selectors.items()),
        list(delta.alarms.items()),
        [(key, pending and _pending_fields(pending)) for key, pending in delta.backfills.items()],
        list(delta.held.items()) if _COUNTED * len(delta.held) < len(delta.added) + len(delta.removed) else [],
    ]


def _written(topics: Mapping[str, TopicMetadata]) -> list[str | tuple[Any, ...]]:
    if set(map(id, topics.values())) <= {id(NO_METADATA)}:  # nearly always, and there may be many
        return list(topics)
    return [name if metadata is NO_METADATA else (name, *metadata) for name, metadata in topics.items()]


def _topics(written: Sequence[Any]) -> dict[str, TopicMetadata]:
    if set(map(type, written)) <= {str}:
        return dict.fromkeys(written, NO_METADATA)
    return dict(
        (topic, NO_METADATA) if isinstance(topic, str) else (topic[0], TopicMetadata(*topic[1:])) for topic in written
    )


def _selected(literal: tuple[str, str] | None, wildcard: tuple[str, str] | None) -> GroupSelectors:
    return GroupSelectors(literal and SelectorSpec(*literal), wildcard and SelectorSpec(*wildcard))


def _views(client: Client) -> tuple[Any, Any]:
    literal = _view_fields(client.literal)
    return literal, None if client.wildcard is client.literal else _view_fields(client.wildcard)


def _view_fields(subscription: Subscription) -> tuple[Any, ...]:
    return (
        subscription.live,
        subscription.version,
        _block_fields(subscription.blocks),
        subscription.everything,
        subscription.everything_at,
    )


def _block_fields(blocks: Iterable[Block]) -> list[Any]:
    return [block._replace(notation=None) if block.notation is LITE else block for block in blocks]  # type: ignore[arg-type]


def _pending_fields(pending: Backfill) -> tuple[Any, ...]:
    patterns, blocks, everything = pending.before
    return (patterns, _block_fields(blocks), everything), *pending[1:]


def _pending(before: tuple[Any, ...], first: str, last: str, source: tuple[Any, ...], *rest: Any) -> Backfill:
    patterns, blocks, everything = before
    former = Interest(patterns, tuple(map(_block, blocks)), everything)
    cause_add, cause_remove, option = rest
    return Backfill(former, first, last, Source(*source), Cause(cause_add), Cause(cause_remove), option)


def _client(literal: tuple[Any, ...], wildcard: tuple[Any, ...] | None) -> Client:
    shared = _view(*literal)
    return Client(shared, shared if wildcard is None else _view(*wildcard))


def _view(live: bool, version: int | None, blocks: Iterable[tuple[Any, ...]], *everything: Any) -> Subscription:  # noqa: FBT001
    return Subscription(live, version, tuple(map(_block, blocks)), *everything)


def _block(fields: tuple[Any, ...]) -> Block:
    order, partition, offset, notation, entries = fields
    return Block(order, partition, offset, LITE if notation is None else Notation(*notation), entries)
