"""Topics and patterns of each parent: readers of the input records, and their fold."""

import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import BinaryIO, NamedTuple

import orjson
from confluent_kafka import Message

from streaming.config import Settings
from streaming.coordinator import COORDINATOR, CoordinatorState, follow
from streaming.errors import ConfigInvalid, Rejected
from streaming.expansion import apply_events
from streaming.kafka.reader import TopicReader
from streaming.records.columns import Event
from streaming.records.model import (
    BIND_TOPIC,
    WILDCARD,
    Action,
    GroupEvent,
    Notation,
    Place,
    Source,
    Stream,
    SubscriptionRequest,
    TopicEvent,
    TopicMetadata,
    check_name,
)
from streaming.records.parsing import PARSERS
from streaming.records.routing import requests_of
from streaming.state import Shard, ShardState
from streaming.state.client import Mode
from streaming.state.interests import pattern_of
from streaming.tuning import DEFAULT_TUNING

InputRecord = tuple[Place, bytes | None]
"""Place of a record in its stream, and its value."""

_RECORDS_AT_ONCE = 10_000
_COORDINATOR_SOURCE = Source(Stream.SUBSCRIPTIONS, -1, -1, 0, 0)
"""Source of the coordinator's records, which contain the place of their cause."""


class InputBlock(NamedTuple):
    """Consecutive records of a stream, and the number of all of its records, if known."""

    stream: Stream
    records: Sequence[InputRecord]
    total: int | None = None


class Holding(NamedTuple):
    """Topics of one parent, and its groups and clients as a job with one shard holds them, without topics."""

    topics: Mapping[str, TopicMetadata]
    subscriptions: ShardState

    def entries(self) -> Iterator[tuple[str, Notation]]:
        """Yield the entries of all clients: names in literal groups, patterns in wildcard groups."""
        for key, client in self.subscriptions.clients.items():
            group = self.subscriptions.groups.get(key.group)
            for block in client.subscription(Mode.WILDCARD if group is None else group.mode).blocks:
                for entry in block.entries:
                    yield pattern_of(entry, block.notation), block.notation

    @property
    def least_quota(self) -> int | None:
        """Smallest quota of a client; None if no client has a quota."""
        quotas = {self.subscriptions.group(key.group).quota for key in self.subscriptions.clients}
        return min((quota for quota in quotas if quota >= 0), default=None)


class Inventory:
    """Fold of the input streams under the job's own rules, with one shard per parent and without updates.

    Feed groups first, then subscriptions, as the validity of a request depends on its group. Quotas refuse nothing.

    Attributes:
        refused: number of invalid records and entries.
        first_refused: description of the first of them; blank if there is none.
    """

    def __init__(self, *, inner_multi: bool = False) -> None:
        self.refused = 0
        self.first_refused = ""
        self._inner_multi = inner_multi
        self._topics: dict[str, dict[str, TopicMetadata]] = {}
        self._subscriptions: dict[str, ShardState] = defaultdict(lambda: ShardState(inner_multi=inner_multi))
        self._coordinator = CoordinatorState()

    def feed(self, stream: Stream, records: Iterable[InputRecord]) -> None:
        """Apply records of a stream, in the order of the stream."""
        events = list(self._parse(stream, records))
        if stream is Stream.TOPICS:
            for source, event in events:
                if isinstance(event, TopicEvent):
                    topics = self._topics.setdefault(event.parent, {})
                    known = topics.get(event.lite_topic)
                    if not event.created:
                        topics.pop(event.lite_topic, None)
                    elif known is None or (known.deadline is not None and known.deadline <= source.timestamp):
                        topics[event.lite_topic] = event.metadata(source.timestamp)
            return
        # The coordinator sends each parent its part of an event that spans parents.
        outcome = follow(self._coordinator, events)
        self._coordinator.apply(outcome.delta)
        self._apply_on_parents(events)
        self._apply_on_parents((_COORDINATOR_SOURCE, PARSERS[to](record.value)) for to, record in outcome.records)

    def holdings(self, now: int) -> dict[str, Holding]:
        """Return the contents of each parent at a time, in milliseconds since the epoch; the largest parent first."""
        found = {}
        for parent in {**self._topics, **self._subscriptions}:
            topics = self._topics.get(parent, {})
            topics = {name: each for name, each in topics.items() if each.deadline is None or each.deadline > now}
            subscriptions = self._subscriptions.get(parent, ShardState(inner_multi=self._inner_multi))
            if topics or subscriptions.clients:
                found[parent] = Holding(topics, subscriptions)
        return dict(sorted(found.items(), key=lambda item: (-len(item[1].topics), item[0])))

    def _parse(self, stream: Stream, records: Iterable[InputRecord]) -> Iterator[tuple[Source, Event]]:
        for place, payload in records:
            for number, value in enumerate(_entries_of(payload) if stream is Stream.SUBSCRIPTIONS else [payload]):
                try:
                    event = PARSERS[stream](value)
                except Rejected as rejected:
                    self._refuse(stream, place, str(rejected))
                else:
                    yield Source(stream, place.partition, place.offset, number, place.timestamp), event

    def _apply_on_parents(self, events: Iterable[tuple[Source, Event]]) -> None:
        by_parent: dict[str, list[tuple[Source, Event]]] = defaultdict(list)
        for source, event in events:
            parent = event.parent if isinstance(event, GroupEvent | SubscriptionRequest) else None
            if parent is not None and parent != COORDINATOR:
                by_parent[parent].append((source, event))
        for parent, own in by_parent.items():
            state = self._subscriptions[parent]
            batch = apply_events(state, own, Shard(parent, inner_multi=self._inner_multi), DEFAULT_TUNING)
            state.apply(batch.delta)
            for source, _, message, _ in batch.problems:
                self._refuse(Stream(source.topic), source.place, message)

    def _refuse(self, stream: Stream, place: Place, why: str) -> None:
        if not self.refused:
            self.first_refused = f"{stream}, partition {place.partition}, record {place.offset}: {why}"
        self.refused += 1


def _entries_of(payload: bytes | None) -> list[bytes | None]:
    """Split a subscription record into its requests; any other record is one entry, which its parser rejects."""
    try:
        is_object = isinstance(orjson.loads(payload or b""), dict)
    except orjson.JSONDecodeError:
        is_object = False
    requests = requests_of(payload or b"") if is_object else []
    return [*requests] or [payload]  # a record with a repeated field has no requests


def from_kafka(settings: Settings, options: Mapping[str, str]) -> Iterator[InputBlock]:
    """Read the job's input topics from their beginning to their present end.

    Raises:
        ConfigInvalid: an option is invalid.
        TopicUnreadable: Kafka does not answer, or a topic does not exist.
    """
    streams = (Stream.GROUPS, Stream.SUBSCRIPTIONS, Stream.TOPICS)
    with TopicReader(settings.bootstrap_servers, options) as reader:
        for stream, topic in zip(streams, settings.inputs, strict=False):  # the clock is not read
            spans = reader.spans([topic])
            total = sum(span.end - span.start for span in spans.values())
            for messages in reader.read(spans):
                yield InputBlock(stream, [*map(_record, messages)], total)


def from_files(topics: BinaryIO, patterns: BinaryIO | None) -> Iterator[InputBlock]:
    """Read files with one topic event, or one subscription event, per line.

    The groups of the entries are unknown, so the entries count as patterns.
    """
    if patterns is not None:
        yield from (InputBlock(Stream.SUBSCRIPTIONS, records) for records in _lines(patterns))
    yield from (InputBlock(Stream.TOPICS, records) for records in _lines(topics))


def from_plain_files(parent: str, topics: BinaryIO, patterns: BinaryIO | None) -> Iterator[InputBlock]:
    """Read files with one topic of a parent, or one pattern of one client in dialect `lite`, per line.

    Raises:
        ConfigInvalid: the name of the parent is invalid, or a line is not UTF-8.
    """
    problem = check_name("--parent", parent)
    if problem is not None:
        raise ConfigInvalid(problem)
    texts = [_text_of(record) for records in _lines(patterns) for record in records] if patterns is not None else []
    if texts:  # an empty set would subscribe to every topic
        group = {"group": "advise", "attributes": {BIND_TOPIC: parent, WILDCARD: "true"}}
        names = {"clientId": "advise", "group": "advise", "topic": parent}
        request = {"action": Action.COMPLETE_ADD, **names, "liteTopicSet": texts}
        for stream, value in ((Stream.GROUPS, group), (Stream.SUBSCRIPTIONS, request)):
            yield InputBlock(stream, [(Place(0, 0, 0), orjson.dumps(value))])
    event = {"event": "CREATED", "parentTopic": parent}
    for records in _lines(topics):
        events = [(each[0], orjson.dumps({**event, "liteTopic": _text_of(each)})) for each in records]
        yield InputBlock(Stream.TOPICS, events)


def _record(message: Message) -> InputRecord:
    return Place(message.partition() or 0, message.offset() or 0, message.timestamp()[1]), message.value()


def _lines(file: BinaryIO) -> Iterator[list[InputRecord]]:
    """Yield the nonblank lines of a file in blocks; the offset is the line number."""
    now = time.time_ns() // 1_000_000
    lines = ((Place(0, number, now), line.rstrip(b"\r\n")) for number, line in enumerate(file, 1) if not line.isspace())
    while records := list(islice(lines, _RECORDS_AT_ONCE)):
        yield [*records]


def _text_of(record: InputRecord) -> str:
    place, value = record
    try:
        return (value or b"").decode()
    except UnicodeDecodeError as error:
        raise ConfigInvalid(f"line {place.offset} is not UTF-8: {error.reason}") from None
