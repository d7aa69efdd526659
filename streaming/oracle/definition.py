"""Definition of the relation.

The oracle keeps the bare input of each shard: its topics in order of creation, and the entry sets of its clients under
both modes, literal and wildcard. Everything else is computed at each question, by trying every entry on every
topic.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

from matcher.cache import BoundedCache
from matcher.selectors import BloomFilter, Selector
from matcher.selectors import compile as compile_selector
from streaming.oracle.sets import EVERYTHING, Client, Entry, SubscriptionSets
from streaming.records.model import (
    DEFAULT_QUOTA,
    LITE,
    MODEL,
    QUOTA,
    UNLIMITED,
    VERSION_RETENTION_MS,
    WILDCARD,
    Action,
    Alarm,
    GroupEvent,
    Place,
    SelectorSpec,
    SubscriptionRequest,
    Tick,
    TopicEvent,
    TopicMetadata,
    Wake,
)
from streaming.records.routing import Routing

E = TypeVar("E")
Placed = Iterable[tuple[Place, E]]

_ONE_SHARD = Routing()
_compiled: BoundedCache[SelectorSpec, Selector] = BoundedCache(
    lambda spec: compile_selector(*spec, stored=True), lambda spec, _: 64 * (8 + len(spec.text)), 128 * 1024 * 1024
)
_NOWHERE = Place(0, 0, 0)


class Effective(NamedTuple):
    """One row of the relation; `part` is the client's subscription behind it, if each one counts by itself."""

    parent: str
    group: str
    client_id: str
    lite_topic: str
    part: str = ""


@dataclass
class _Shard:
    """Topics of a shard, and the entry sets of its clients under each mode."""

    topics: dict[str, TopicMetadata] = field(default_factory=dict)
    literal: SubscriptionSets = SubscriptionSets()  # noqa: RUF009 - never changed in place
    wildcard: SubscriptionSets = SubscriptionSets()  # noqa: RUF009

    def is_stale(self, request: SubscriptionRequest) -> bool:
        """Return True if a request is stale under any mode."""
        return self.literal.is_stale(request) or self.wildcard.is_stale(request)

    def after(self, request: SubscriptionRequest, number: int, *, inner_multi: bool) -> "_Shard":
        """Return the shard after a request that no quota refuses."""
        literal = self.literal.after(request, number, wildcard=False, inner_multi=inner_multi)
        wildcard = self.wildcard.after(request, number, wildcard=True, inner_multi=inner_multi)
        return _Shard(self.topics, literal, wildcard)

    def expire(self, now: int) -> int:
        """Delete the topics whose time is over, and return their number."""
        over = [topic for topic, each in self.topics.items() if each.deadline is not None and each.deadline <= now]
        for topic in over:
            del self.topics[topic]
        return len(over)

    def forget(self, client: Client) -> None:
        self.literal, self.wildcard = self.literal.without(client), self.wildcard.without(client)


def _agrees(topic: TopicMetadata, selector: SelectorSpec | None) -> bool:
    tags = () if topic.tags is None else (topic.tags,)
    return selector is None or _compiled[selector].agrees(tags, topic.properties)


@dataclass
class _Presence:
    """State of a client beyond its entry sets.

    Attributes:
        parents: on which it has asked for something; also where it has left, if it has sent versions.
        sent: its versions by parent, also of requests that a quota refused.
        last_request: time of its last request, in milliseconds since the epoch.
    """

    parents: dict[str, None] = field(default_factory=dict)
    present: set[str] = field(default_factory=set)
    sent: dict[str, _Shard] = field(default_factory=dict)
    is_versioned: bool = False
    last_request: int = 0


class _GroupRules(NamedTuple):
    """Rules of a group, from its attributes."""

    wildcard: bool
    exclusive: bool
    quota: int

    def sets_in_force(self, shard: _Shard) -> SubscriptionSets:
        return shard.wildcard if self.wildcard else shard.literal

    def limit(self, number: int, shards: int, orders: Iterable[Entry]) -> int | None:
        """Return the number of topics of one of the shards that these entries may hold; None is unlimited."""
        if self.quota == UNLIMITED or EVERYTHING in orders:
            return None
        share, rest = divmod(self.quota, shards)
        return share + (number < rest)


class Oracle:
    """Model of the job: reads the same input, one micro-batch at a time, and gives the relation to expect.

    Records of the job to itself are ignored: here a client ends on all of its parents at once, and so on. The cuts
    between micro-batches matter only for requests that a quota refuses, and the clock.

    Args:
        routing: assignment of topics to shards; the shards of a parent divide its quotas among them.
        inner_multi: allow `**` inside a lite pattern.
        client_timeout_ms: lease of a client, in milliseconds since its last request; 0 never ends.
        cap_requests: no request is refused for a quota, on parents with one shard either.

    Attributes:
        decided: number of decisions by each rule; tests use it to prove that their histories reach the rule.
        refused: places of the requests that a quota refused.
    """

    def __init__(
        self,
        routing: Routing = _ONE_SHARD,
        *,
        inner_multi: bool = False,
        client_timeout_ms: int = 0,
        cap_requests: bool = False,
    ) -> None:
        self.decided: Counter[str] = Counter()
        self.refused: list[Place] = []
        self._routing, self._inner_multi = routing, inner_multi
        self._timeout, self._cap_requests = client_timeout_ms, cap_requests
        self._shards: dict[tuple[str, int], _Shard] = defaultdict(_Shard)
        self._groups: dict[str, GroupEvent] = {}
        self._clients: dict[Client, _Presence] = {}
        self._requests = self._clock = 0

    def batch(
        self,
        topics: Placed[TopicEvent] = (),
        requests: Placed[SubscriptionRequest] = (),
        groups: Placed[GroupEvent] = (),
        ticks: Placed[Tick | Alarm | Wake] = (),
    ) -> None:
        """Apply a micro-batch: groups, then requests, then topics, then ticks, each in the order of its stream."""
        for _, event in groups:
            if event.superseded_by is None:
                self._apply_attributes(event)
        for place, request in requests:
            if request.as_of is None:
                self._apply_request(place, request)
        for place, topic in topics:
            self._apply_topic(place, topic)
        for _, tick in ticks:
            if isinstance(tick, Tick):
                self._clock = max(self._clock, tick.time)
                for client in list(self._clients):
                    self._expire_client(client, self._clock)
        self.decided["topic expired"] += sum(shard.expire(self._clock) for shard in self._shards.values())

    def relation(self) -> set[Effective]:
        """Return the relation as of now."""
        return {
            Effective(parent, group, client_id, topic, entry.part)
            for (parent, number), shard in self._shards.items()
            for group in {group for group, _ in [*shard.literal.sets, *shard.wildcard.sets]}
            for client_id, topics in self._topics_held(parent, number, group).items()
            for topic in topics
            for entry in self._entries_in_force(parent, (group, client_id), topic)
        }

    def patterns(self, row: Effective) -> tuple[str, ...]:
        """Return the patterns behind a row, sorted; none for a client that receives everything."""
        entries = self._entries_in_force(row.parent, (row.group, row.client_id), row.lite_topic)
        return tuple(sorted({entry.pattern for entry in entries if entry.part == row.part and entry != EVERYTHING}))

    def bitmap(self, parent: str, topic: str) -> bytes | None:
        """Return the filter of groups whose SQL92 selector agrees with a topic; None if no group has one in force.

        The selector of a group without attributes is in force as long as an entry of the group concerns the shard.
        """
        shard, number = self._shard_of(parent, topic), self._routing.shard_of(parent, topic)
        agreeing = BloomFilter().bitmap()
        is_used = False
        for group in {*shard.literal.selectors, *shard.wildcard.selectors}:
            rules = self._rules(parent, group)
            if rules is None:
                continue
            sets = rules.sets_in_force(shard)
            entries = (entry for client in sets.sets if client[0] == group for entry in sets.orders(client))
            is_asking = any(
                entry == EVERYTHING or self._routing.may_touch(parent, entry.pattern, number, entry.notation or LITE)
                for entry in entries
            )
            selector = sets.selectors.get(group)
            if selector and selector.kind == "SQL92" and (group in self._groups or is_asking):
                is_used = True
                if _agrees(shard.topics[topic], selector):
                    agreeing.add(f"{group}#{parent}")
        return bytes(agreeing) if is_used else None

    # Apply the input.

    def _apply_attributes(self, event: GroupEvent) -> None:
        former = self._groups.get(event.group)
        if event.attributes:
            self._groups[event.group] = event
        elif former is not None and event.parent in (None, former.parent):
            del self._groups[event.group]

    def _apply_request(self, place: Place, request: SubscriptionRequest) -> None:
        client = request.group, request.client_id
        self._expire_client(client, place.timestamp)
        known = self._clients.setdefault(client, _Presence())
        known.last_request = place.timestamp
        if request.parent:
            known.parents[request.parent] = None
            self._apply_on_parent(place, request)
        else:
            self.decided["ended everywhere"] += 1
            self._apply_on_all_parents(place, request)
        known.is_versioned |= request.version is not None and bool(known.parents)
        if request.action is Action.COMPLETE_REMOVE and not known.is_versioned:
            known.parents = {each: None for each in known.parents if request.parent not in ("", each)}

    def _apply_on_all_parents(self, place: Place, request: SubscriptionRequest) -> None:
        for parent in self._clients[request.group, request.client_id].parents:
            self._apply_on_parent(place, request._replace(parent=parent))

    def _apply_on_parent(self, place: Place, request: SubscriptionRequest) -> None:
        self._requests += 1
        known = self._clients[request.group, request.client_id]
        sent = known.sent.get(request.parent, _Shard())
        if request.action is not Action.COMPLETE_REMOVE:
            known.present.add(request.parent)
        elif not sent.is_stale(request):
            known.present.discard(request.parent)
        known.sent[request.parent] = sent.after(request, self._requests, inner_multi=self._inner_multi)
        for number in range(self._routing.shard_count(request.parent)):
            shard = self._shards[request.parent, number]
            after = shard.after(request, self._requests, inner_multi=self._inner_multi)
            if self._is_refused(request, shard, after):
                self.decided["refused by quota"] += 1
                self.refused.append(place)
            else:
                self._shards[request.parent, number] = after

    def _apply_topic(self, place: Place, event: TopicEvent) -> None:
        topics = self._shard_of(event.parent, event.lite_topic).topics
        deadline = topics.get(event.lite_topic, TopicMetadata()).deadline
        if deadline is not None and deadline <= place.timestamp:
            self.decided["time was over"] += 1
            del topics[event.lite_topic]
        if event.created:
            topics.setdefault(event.lite_topic, event.metadata(place.timestamp))
        else:
            topics.pop(event.lite_topic, None)

    def _expire_client(self, client: Client, now: int) -> None:
        """End a client whose lease is over; remove its versions later, when it is in no session."""
        known = self._clients.get(client)
        if known is None:
            return
        if self._timeout and known.last_request < now - self._timeout:
            self.decided["lease ended"] += 1
            self._apply_on_all_parents(_NOWHERE, SubscriptionRequest("", *client, Action.COMPLETE_REMOVE, ()))
            if not known.is_versioned:
                known.parents = {}
        if not known.present and known.last_request < now - VERSION_RETENTION_MS:
            self.decided["versions forgotten"] += known.is_versioned
            del self._clients[client]
            for shard in self._shards.values():
                shard.forget(client)

    # Derive the relation.

    def _shard_of(self, parent: str, topic: str) -> _Shard:
        return self._shards[parent, self._routing.shard_of(parent, topic)]

    def _rules(self, parent: str, group: str) -> _GroupRules | None:
        """Return the rules of a group on a parent; None if the group is bound to another parent."""
        event = self._groups.get(group)
        if event is None:
            return _GroupRules(wildcard=False, exclusive=False, quota=DEFAULT_QUOTA)
        if event.parent != parent:
            return None
        return _GroupRules(
            WILDCARD in event.attributes,
            event.attributes.get(MODEL, "").lower() == "exclusive",
            int(event.attributes.get(QUOTA, DEFAULT_QUOTA)),
        )

    def _matching_entries(self, shard: _Shard, sets: SubscriptionSets, client: Client, topic: str) -> dict[Entry, int]:
        """Return the entries of a client that match an existing topic, with their orders; quotas play no part."""
        orders = sets.orders(client)
        found = {entry: orders[entry] for entry in orders if entry.matches(topic, inner_multi=self._inner_multi)}
        if found and not _agrees(shard.topics[topic], sets.selectors.get(client[0])):
            self.decided["selector disagreed"] += 1
            return {}
        return found

    def _entries_in_force(self, parent: str, client: Client, topic: str) -> dict[Entry, int]:
        """Return the matching entries under the mode of the group; none if the group is bound elsewhere."""
        shard, rules = self._shard_of(parent, topic), self._rules(parent, client[0])
        return {} if rules is None else self._matching_entries(shard, rules.sets_in_force(shard), client, topic)

    def _topics_held(self, parent: str, number: int, group: str) -> dict[str, list[str]]:
        """Return the topics of a shard received by each client of a group."""
        shard = self._shards[parent, number]
        rules = self._rules(parent, group)
        if rules is None:
            self.decided["bound elsewhere"] += 1
            return {}
        clients = {client for client in rules.sets_in_force(shard).sets if client[0] == group}
        held: dict[str, list[str]] = defaultdict(list)
        for topic in shard.topics:
            newest = {
                client[1]: max(found.values())
                for client in clients
                if (found := self._entries_in_force(parent, client, topic))
            }
            if rules.exclusive and len(newest) > 1:
                self.decided["evicted"] += 1
                newest = {max(newest, key=newest.__getitem__): 0}
            for client_id in newest:
                held[client_id].append(topic)
        for client_id, topics in held.items():
            orders = rules.sets_in_force(shard).orders((group, client_id))
            limit = rules.limit(number, self._routing.shard_count(parent), orders)
            self.decided["capped"] += limit is not None and len(topics) > limit
            held[client_id] = topics[:limit]
        return held

    def _is_refused(self, request: SubscriptionRequest, before: _Shard, after: _Shard) -> bool:
        """Return True if a request exceeds the quota with more topics than before; False on several shards."""
        rules = self._rules(request.parent, request.group)
        caps = self._cap_requests or self._routing.shard_count(request.parent) > 1
        if rules is None or caps or request.action not in (Action.COMPLETE_ADD, Action.PARTIAL_ADD):
            return False
        client = request.group, request.client_id
        limit = rules.limit(0, 1, rules.sets_in_force(after).orders(client))
        counts = [self._count_topics(shard, rules.sets_in_force(shard), client) for shard in (before, after)]
        return limit is not None and counts[1] > max(limit, counts[0])

    def _count_topics(self, shard: _Shard, sets: SubscriptionSets, client: Client) -> int:
        """Count the topics of a shard that a client wants; receiving everything counts as none."""
        if EVERYTHING in sets.orders(client):
            return 0
        return sum(bool(self._matching_entries(shard, sets, client, topic)) for topic in shard.topics)
