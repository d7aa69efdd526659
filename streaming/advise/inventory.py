"""Topics and patterns of each parent, folded from the input streams."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

import orjson

from streaming.coordinator import COORDINATOR, CoordinatorState, follow
from streaming.errors import Rejected
from streaming.events.columns import Event
from streaming.events.json_text import requests_of
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

InputRecord = tuple[Place, bytes | None]
"""Place of a record in its stream, and its value."""


class PatternEntry(NamedTuple):
    """One entry of a client's set, as a shard keeps it."""

    pattern: str
    notation: Notation


class Holding(NamedTuple):
    """Topics and subscriptions of one parent.

    Attributes:
        topics: the topics by name, with their metadata.
        subscriptions: groups and clients in the form of a job with one shard; without topics.
    """

    topics: Mapping[str, TopicMetadata]
    subscriptions: ShardState

    def entries(self) -> Iterator[PatternEntry]:
        """Yield the entries of all clients: names in literal groups, patterns in wildcard groups."""
        for key, client in self.subscriptions.clients.items():
            group = self.subscriptions.groups.get(key.group)
            for block in client.subscription(Mode.WILDCARD if group is None else group.mode).blocks:
                for entry in block.entries:
                    yield PatternEntry(pattern_of(entry, block.notation), block.notation)

    @property
    def least_quota(self) -> int | None:
        """Smallest quota of a client; None if no client has a quota."""
        quotas = {self.subscriptions.group(key.group).quota for key in self.subscriptions.clients}
        return min((quota for quota in quotas if quota >= 0), default=None)


class Inventory:
    """Fold of the input streams under the job's own rules, with one shard a parent and without updates.

    Feed groups first, then subscriptions, as the validity of a request depends on its group. Quotas refuse nothing.

    Attributes:
        refused: number of invalid records and entries.
        first_refused: description of the first of them; blank for none.
    """

    def __init__(self, *, inner_multi: bool = False) -> None:
        self.refused = 0
        self.first_refused = ""
        self._inner_multi = inner_multi
        self._topics: dict[str, dict[str, TopicMetadata]] = {}
        self._subscriptions: dict[str, ShardState] = defaultdict(lambda: ShardState(inner_multi=inner_multi))
        self._coordinator = CoordinatorState()

    def feed(self, stream: Stream, records: Iterable[InputRecord]) -> None:
        """Apply records of a stream, in their order in the stream."""
        events = list(self._parse(stream, records))
        if stream is Stream.TOPICS:
            for source, event in events:
                if isinstance(event, TopicEvent):
                    self._apply_topic(source, event)
        else:
            # The coordinator sends each parent its part of an event that spans parents.
            outcome = follow(self._coordinator, events)
            self._coordinator.apply(outcome.delta)
            coordinated = [(_COORDINATOR_SOURCE, PARSERS[to](record.value)) for to, record in outcome.records]
            self._apply_on_parents(events)
            self._apply_on_parents(coordinated)

    def holdings(self, now: int) -> dict[str, Holding]:
        """Return the contents of each parent at a time, in milliseconds since the epoch; the largest parent first."""
        found = {}
        for parent in {**self._topics, **self._subscriptions}:
            topics = self._topics.get(parent, {})
            unexpired = {
                name: metadata
                for name, metadata in topics.items()
                if metadata.deadline is None or metadata.deadline > now
            }
            subscriptions = self._subscriptions.get(parent, ShardState(inner_multi=self._inner_multi))
            if unexpired or subscriptions.clients:
                found[parent] = Holding(unexpired if len(unexpired) < len(topics) else topics, subscriptions)
        return dict(sorted(found.items(), key=lambda item: (-len(item[1].topics), item[0])))

    def _parse(self, stream: Stream, records: Iterable[InputRecord]) -> Iterator[tuple[Source, Event]]:
        for place, payload in records:
            values = _entries_of(payload) if stream is Stream.SUBSCRIPTIONS else [payload]
            for number, value in enumerate(values):
                try:
                    event = PARSERS[stream](value)
                except Rejected as rejected:
                    self._refuse(stream, place, str(rejected))
                else:
                    yield Source(stream, place.partition, place.offset, number, place.timestamp), event

    def _apply_topic(self, source: Source, event: TopicEvent) -> None:
        topics = self._topics.setdefault(event.parent, {})
        known = topics.get(event.lite_topic)
        if not event.created:
            topics.pop(event.lite_topic, None)
        elif known is None or (known.deadline is not None and known.deadline <= source.timestamp):
            topics[event.lite_topic] = event.metadata(source.timestamp)

    def _apply_on_parents(self, events: Iterable[tuple[Source, Event]]) -> None:
        by_parent: dict[str, list[tuple[Source, Event]]] = defaultdict(list)
        for source, event in events:
            if isinstance(event, GroupEvent | SubscriptionRequest) and event.parent is not None:
                by_parent[event.parent].append((source, event))
        by_parent.pop(COORDINATOR, None)
        for parent, own in by_parent.items():
            state = self._subscriptions[parent]
            batch = apply_events(state, own, Shard(parent, inner_multi=self._inner_multi), DEFAULT_TUNING)
            state.apply(batch.delta)
            for source, _, message, _ in batch.problems:
                self._refuse(Stream(source.topic), source.place, message)

    def _refuse(self, stream: Stream, place: Place, why: str) -> None:
        """Count an invalid record or entry, and describe the first."""
        if not self.refused:
            self.first_refused = f"{stream}, partition {place.partition}, record {place.offset}: {why}"
        self.refused += 1


_COORDINATOR_SOURCE = Source(Stream.SUBSCRIPTIONS, -1, -1, 0, 0)
"""Source of the coordinator's records, which carry the place of their cause themselves."""


def _entries_of(payload: bytes | None) -> list[bytes | None]:
    """Split a subscription record into its entries; any other record is one entry itself."""
    try:
        record = orjson.loads(payload or b"")
    except orjson.JSONDecodeError:
        return [payload]
    listed = record.get("subscriptionSet") if isinstance(record, dict) else None
    if not isinstance(listed, list) or not listed:
        return [payload]
    return list(requests_of(payload or b"")) or [payload]  # of a record with a repeated field none is applied
