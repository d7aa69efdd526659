"""The definition of the relation.

Each shard is kept as what was said to it: its topics in order of creation, and what its clients ask for in both
readings of their requests. Everything else is found anew at each question, by trying every entry on every topic.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache
from typing import NamedTuple, TypeVar

from matcher.selectors import BloomFilter
from matcher.selectors import compile as compile_selector
from streaming.events.model import (
    DEFAULT_QUOTA,
    MODEL,
    QUOTA,
    UNLIMITED,
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
from streaming.events.routing import Routing
from streaming.oracle.sets import EVERYTHING, Client, Entry, View

E = TypeVar("E")
Placed = Iterable[tuple[Place, E]]

_ONE_SHARD = Routing()
_compiled = cache(compile_selector)


class Effective(NamedTuple):
    """One row of the relation: the client of a group receives the lite topic of a parent.

    Attributes:
        part: by which of the client's subscriptions, where each stands for itself.
    """

    parent: str
    group: str
    client_id: str
    lite_topic: str
    part: str = ""


@dataclass
class _Shard:
    topics: dict[str, TopicMetadata] = field(default_factory=dict)
    literal: View = View()  # noqa: RUF009 - never changed in place
    wildcard: View = View()  # noqa: RUF009


class _Rules(NamedTuple):
    """What the attributes of a group say."""

    wildcard: bool
    exclusive: bool
    quota: int

    def view(self, shard: _Shard) -> View:
        """The reading that counts."""
        return shard.wildcard if self.wildcard else shard.literal


class Oracle:
    """Follows the job's input, micro-batch by micro-batch, and says what must have come of it.

    What the job writes to itself is left out: here a client ends on all of its parents at once, and so on. How the
    input is cut into micro-batches matters where quotas or the clock take part, and nowhere else.

    Args:
        routing: which topics share a shard; quotas are divided among the shards of a parent.
        inner_multi: whether `**` may stand inside a lite pattern.
        client_timeout_ms: for how long a client lives without a request; 0 is for ever.

    Attributes:
        decided: how often each rule had its say, so that tests can tell whether their histories reach it.
    """

    def __init__(self, routing: Routing = _ONE_SHARD, *, inner_multi: bool = False, client_timeout_ms: int = 0) -> None:
        self.decided: Counter[str] = Counter()
        self._routing = routing
        self._inner_multi = inner_multi
        self._timeout = client_timeout_ms
        self._shards: dict[tuple[str, int], _Shard] = defaultdict(_Shard)
        self._groups: dict[str, GroupEvent] = {}
        self._parents: dict[Client, dict[str, None]] = defaultdict(dict)
        self._last_request: dict[Client, int] = {}
        self._requests = 0
        self._clock = 0

    def batch(
        self,
        topics: Placed[TopicEvent] = (),
        requests: Placed[SubscriptionRequest] = (),
        groups: Placed[GroupEvent] = (),
        ticks: Placed[Tick | Alarm | Wake] = (),
    ) -> None:
        """Reads a micro-batch: groups, then requests, then topics, then ticks, each in the order of its stream."""
        for _, event in groups:
            if event.superseded_by is None:
                self._attributes(event)
        for place, request in requests:
            if request.as_of is None:
                self._request(place, request)
        for place, topic in topics:
            self._topic(place, topic)
        for _, tick in ticks:
            if isinstance(tick, Tick):
                self._clock = max(self._clock, tick.time)
                self._end_silent_clients(self._clock)
        self._end_old_topics(self._clock)

    def relation(self) -> set[Effective]:
        """Who receives which topic now."""
        return {
            Effective(parent, group, client_id, topic, entry.part)
            for (parent, number), shard in self._shards.items()
            for group in {group for group, _ in [*shard.literal.sets, *shard.wildcard.sets]}
            for client_id, topics in self._held(parent, number, group).items()
            for topic in topics
            for entry in self._matching(parent, (group, client_id), topic)
        }

    def patterns(self, row: Effective) -> tuple[str, ...]:
        """The texts of the entries that give a row, in order; none where the client receives everything."""
        entries = self._matching(row.parent, (row.group, row.client_id), row.lite_topic)
        return tuple(sorted({entry.pattern for entry in entries if entry.part == row.part and entry != EVERYTHING}))

    def bitmap(self, parent: str, topic: str) -> bytes | None:
        """Which groups' SQL92 selectors agree with an existing topic; None where no group has one in force."""
        shard = self._shard_of(parent, topic)
        agreeing = BloomFilter().bitmap()
        is_used = False
        for group in {*shard.literal.selections, *shard.wildcard.selections}:
            rules = self._rules(parent, group)
            selection = rules and rules.view(shard).selections.get(group)
            if selection and selection.kind == "SQL92":
                is_used = True
                if self._agrees(shard, selection, topic):
                    agreeing.add(f"{group}#{parent}")
        return bytes(agreeing) if is_used else None

    # What is said.

    def _attributes(self, event: GroupEvent) -> None:
        former = self._groups.get(event.group)
        if event.attributes:
            self._groups[event.group] = event
        elif former is not None and event.parent in (None, former.parent):
            del self._groups[event.group]

    def _request(self, place: Place, request: SubscriptionRequest) -> None:
        client = request.group, request.client_id
        self._last_request[client] = place.timestamp
        if request.parent:
            self._parents[client][request.parent] = None
            self._ask(request)
        else:
            self.decided["ended everywhere"] += 1
            self._ask_everywhere(request)

    def _ask_everywhere(self, request: SubscriptionRequest) -> None:
        for parent in self._parents[request.group, request.client_id]:
            self._ask(request._replace(parent=parent))

    def _ask(self, request: SubscriptionRequest) -> None:
        self._requests += 1
        for number in range(self._routing.shard_count(request.parent)):
            shard = self._shards[request.parent, number]
            after = _Shard(
                shard.topics,
                shard.literal.after(request, self._requests, wildcard=False, inner_multi=self._inner_multi),
                shard.wildcard.after(request, self._requests, wildcard=True, inner_multi=self._inner_multi),
            )
            if self._exceeds_quota(number, request, shard, after):
                self.decided["refused by quota"] += 1
            else:
                self._shards[request.parent, number] = after

    def _topic(self, place: Place, event: TopicEvent) -> None:
        topics = self._shard_of(event.parent, event.lite_topic).topics
        if event.created:
            topics.setdefault(event.lite_topic, event.metadata(place.timestamp))
        else:
            topics.pop(event.lite_topic, None)

    def _end_silent_clients(self, now: int) -> None:
        for (group, client_id), last in self._last_request.items():
            if self._timeout and last < now - self._timeout:
                self.decided["lease ended"] += 1
                self._ask_everywhere(SubscriptionRequest("", group, client_id, Action.COMPLETE_REMOVE, ()))

    def _end_old_topics(self, now: int) -> None:
        for shard in self._shards.values():
            for topic, metadata in list(shard.topics.items()):
                if metadata.deadline is not None and metadata.deadline <= now:
                    self.decided["topic expired"] += 1
                    del shard.topics[topic]

    # What follows from it.

    def _shard_of(self, parent: str, topic: str) -> _Shard:
        return self._shards[parent, self._routing.shard_of(parent, topic)]

    def _rules(self, parent: str, group: str) -> _Rules | None:
        """What holds for a group on a parent; None where it is bound to another one."""
        event = self._groups.get(group)
        if event is None:
            return _Rules(wildcard=False, exclusive=False, quota=DEFAULT_QUOTA)
        if event.parent != parent:
            return None
        return _Rules(
            WILDCARD in event.attributes,
            event.attributes.get(MODEL, "").lower() == "exclusive",
            int(event.attributes.get(QUOTA, DEFAULT_QUOTA)),
        )

    def _agrees(self, shard: _Shard, selection: SelectorSpec | None, topic: str) -> bool:
        metadata = shard.topics[topic]
        tags = () if metadata.tags is None else (metadata.tags,)
        return selection is None or _compiled(*selection).agrees(tags, metadata.properties)

    def _wanted(self, shard: _Shard, view: View, client: Client, topic: str) -> dict[Entry, int]:
        """The entries with which a client wants an existing topic, and their orders; limits are not considered."""
        orders = view.orders(client)
        found = {entry: orders[entry] for entry in orders if entry.matches(topic, inner_multi=self._inner_multi)}
        if found and not self._agrees(shard, view.selections.get(client[0]), topic):
            self.decided["selector disagreed"] += 1
            return {}
        return found

    def _matching(self, parent: str, client: Client, topic: str) -> dict[Entry, int]:
        """The same in the reading that counts; none where the group is bound elsewhere."""
        shard = self._shard_of(parent, topic)
        rules = self._rules(parent, client[0])
        return {} if rules is None else self._wanted(shard, rules.view(shard), client, topic)

    def _held(self, parent: str, number: int, group: str) -> dict[str, list[str]]:
        """The topics of a shard that each client of a group receives."""
        shard = self._shards[parent, number]
        rules = self._rules(parent, group)
        if rules is None:
            self.decided["bound elsewhere"] += 1
            return {}
        clients = {client for client in rules.view(shard).sets if client[0] == group}
        held: dict[str, list[str]] = defaultdict(list)
        for topic in shard.topics:
            newest = {
                client[1]: max(found.values()) for client in clients if (found := self._matching(parent, client, topic))
            }
            if rules.exclusive and len(newest) > 1:
                self.decided["evicted"] += 1
                newest = {max(newest, key=newest.__getitem__): 0}
            for client_id in newest:
                held[client_id].append(topic)
        for client_id, topics in held.items():
            limit = self._limit(parent, number, rules, rules.view(shard).orders((group, client_id)))
            self.decided["capped"] += limit is not None and len(topics) > limit
            held[client_id] = topics[:limit]
        return held

    def _limit(self, parent: str, number: int, rules: _Rules, orders: Iterable[Entry]) -> int | None:
        """How many topics of a shard a client with these entries may hold; None is any number."""
        if rules.quota == UNLIMITED or EVERYTHING in orders:
            return None
        share, rest = divmod(rules.quota, self._routing.shard_count(parent))
        return share + (number < rest)

    def _exceeds_quota(self, number: int, request: SubscriptionRequest, before: _Shard, after: _Shard) -> bool:
        """Whether a request asks for more topics than before, and for more than the client may hold."""
        rules = self._rules(request.parent, request.group)
        if rules is None or request.action not in (Action.COMPLETE_ADD, Action.PARTIAL_ADD):
            return False
        client = request.group, request.client_id
        limit = self._limit(request.parent, number, rules, rules.view(after).orders(client))
        wanted = self._count(after, rules.view(after), client)
        return limit is not None and wanted > limit and wanted > self._count(before, rules.view(before), client)

    def _count(self, shard: _Shard, view: View, client: Client) -> int:
        if EVERYTHING in view.orders(client):
            return 0
        return sum(bool(self._wanted(shard, view, client, topic)) for topic in shard.topics)
