"""The topics and patterns that are there after what the input streams say, by parent."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

import orjson

from streaming.coordinator import COORDINATOR, CoordinatorState, follow
from streaming.errors import Rejected
from streaming.events.columns import Event
from streaming.events.model import (
    GroupEvent,
    Notation,
    Place,
    Source,
    Stream,
    SubscriptionRequest,
    TopicEvent,
    TopicMetadata,
)
from streaming.events.parsing import PARSERS
from streaming.expansion import apply_events
from streaming.state import Shard, ShardState
from streaming.subscription.client import Mode
from streaming.subscription.interests import pattern_of
from streaming.tuning import DEFAULT_TUNING

Record = tuple[Place, bytes | None]
"""Where a record stands in its stream, and its value."""


class Entry(NamedTuple):
    """One entry of a client's set, as a shard keeps it."""

    pattern: str
    notation: Notation


class Holding(NamedTuple):
    """What there is under one parent.

    Attributes:
        topics: by name, with what the job keeps of them.
        asked: its groups and clients, as a job with one shard keeps them; without topics.
    """

    topics: Mapping[str, TopicMetadata]
    asked: ShardState

    def entries(self) -> Iterator[Entry]:
        """The entries of all clients: names in literal groups, patterns in all others."""
        for key, client in self.asked.clients.items():
            group = self.asked.groups.get(key.group)
            for block in client.subscription(Mode.WILDCARD if group is None else group.mode).blocks:
                for entry in block.entries:
                    yield Entry(pattern_of(entry, block.notation), block.notation)

    @property
    def least_quota(self) -> int | None:
        """The smallest quota of a client; None when none has any."""
        quotas = {self.asked.group(key.group).quota for key in self.asked.clients}
        return min((quota for quota in quotas if quota >= 0), default=None)


class Inventory:
    """Follows the streams with the job's own rules: one shard a parent, and no updates.

    Groups come first, then subscriptions: whether a request holds depends on its group. Quotas refuse nothing here.

    Attributes:
        refused: how many records and entries are not valid.
        first_refused: what is wrong with the first of them, in words; blank for none.
    """

    def __init__(self, *, inner_multi: bool = False) -> None:
        self.refused = 0
        self.first_refused = ""
        self._inner_multi = inner_multi
        self._topics: dict[str, dict[str, TopicMetadata]] = {}
        self._asked: dict[str, ShardState] = defaultdict(lambda: ShardState(inner_multi=inner_multi))
        self._home = CoordinatorState()

    def feed(self, stream: Stream, records: Iterable[Record]) -> None:
        """Takes in records of a stream, in the order in which they stand there."""
        events = list(self._events(stream, records))
        if stream is Stream.TOPICS:
            for source, event in events:
                if isinstance(event, TopicEvent):
                    self._topic(source, event)
        else:
            # What concerns a client or group on all of its parents, its home tells each of them.
            told = follow(self._home, events)
            self._home.apply(told.delta)
            echoes = [(_ECHO, PARSERS[to](record.value)) for to, record in told.records]
            self._on_parents(events)
            self._on_parents(echoes)

    def holdings(self, now: int) -> dict[str, Holding]:
        """What there is at a time, in milliseconds since the epoch, by parent; the largest ones first."""
        found = {}
        for parent in {**self._topics, **self._asked}:
            topics = self._topics.get(parent, {})
            living = {
                name: metadata
                for name, metadata in topics.items()
                if metadata.deadline is None or metadata.deadline > now
            }
            asked = self._asked.get(parent, ShardState(inner_multi=self._inner_multi))
            if living or asked.clients:
                found[parent] = Holding(living if len(living) < len(topics) else topics, asked)
        return dict(sorted(found.items(), key=lambda item: (-len(item[1].topics), item[0])))

    def _events(self, stream: Stream, records: Iterable[Record]) -> Iterator[tuple[Source, Event]]:
        for place, payload in records:
            values = _entries_of(payload) if stream is Stream.SUBSCRIPTIONS else [payload]
            for number, value in enumerate(values):
                try:
                    event = PARSERS[stream](value)
                except Rejected as rejected:
                    self._refuse(stream, place, str(rejected))
                else:
                    yield Source(stream, place.partition, place.offset, number, place.timestamp), event

    def _topic(self, source: Source, event: TopicEvent) -> None:
        topics = self._topics.setdefault(event.parent, {})
        known = topics.get(event.lite_topic)
        if not event.created:
            topics.pop(event.lite_topic, None)
        elif known is None or (known.deadline is not None and known.deadline <= source.timestamp):
            topics[event.lite_topic] = event.metadata(source.timestamp)

    def _on_parents(self, events: Iterable[tuple[Source, Event]]) -> None:
        by_parent: dict[str, list[tuple[Source, Event]]] = defaultdict(list)
        for source, event in events:
            if isinstance(event, GroupEvent | SubscriptionRequest) and event.parent is not None:
                by_parent[event.parent].append((source, event))
        by_parent.pop(COORDINATOR, None)
        for parent, own in by_parent.items():
            state = self._asked[parent]
            batch = apply_events(state, own, Shard(parent, inner_multi=self._inner_multi), DEFAULT_TUNING)
            state.apply(batch.delta)
            for source, _, message in batch.problems:
                self._refuse(Stream(source.topic), source.place, message)

    def _refuse(self, stream: Stream, place: Place, why: str) -> None:
        if not self.refused:
            self.first_refused = f"{stream}, partition {place.partition}, record {place.offset}: {why}"
        self.refused += 1


_ECHO = Source(Stream.SUBSCRIPTIONS, -1, -1, 0, 0)
"""What a home says carries the place of its cause with it."""


def _entries_of(payload: bytes | None) -> list[bytes | None]:
    """The entries of a subscription record; what is no set of entries is one itself."""
    try:
        record = orjson.loads(payload or b"")
    except orjson.JSONDecodeError:
        return [payload]
    listed = record.get("subscriptionSet") if isinstance(record, dict) else None
    return [orjson.dumps(entry) for entry in listed] if isinstance(listed, list) and listed else [payload]
