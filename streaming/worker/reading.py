"""The rows of one key in a micro-batch as checked events; what is not valid becomes a dead letter."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Any, NamedTuple, Self, TypeVar

import numpy as np
import numpy.typing as npt

from streaming import coordinator
from streaming.coordinator import COORDINATOR
from streaming.errors import Rejected
from streaming.events.columns import COLUMNAR_MIN_TOPICS, Event, Ints, SourceColumns, TopicEventColumns
from streaming.events.model import (
    NO_METADATA,
    Alarm,
    GroupEvent,
    Reason,
    Source,
    Stream,
    SubscriptionRequest,
    Tick,
    TopicEvent,
    Wake,
)
from streaming.events.parsing import PARSERS, parse_plain_topic_events
from streaming.updates.records import dead_letter
from streaming.worker.output import Output, OutputKind

STREAMS = tuple(Stream)
"""The input streams by their number in a row; also the order in which a micro-batch is read."""

_PARSERS = tuple(PARSERS[stream] for stream in STREAMS)
_GROUPS, _SUBSCRIPTIONS, _TOPICS, _CLOCK = range(4)

Number = TypeVar("Number", int, Ints)

Topics = tuple[str, str, str, str]
"""Kafka topic names of the input streams, in the order of `STREAMS`."""


class Row(NamedTuple):
    """One input entry; rows sort in the order in which they are read.

    Attributes:
        entry: twice its position in the record; one more where no shard sees it, because it names no parent.
    """

    stream: int
    partition: int
    offset: int
    entry: int
    timestamp: int
    payload: bytes | None


class Rows(NamedTuple):
    """Rows by column."""

    streams: Ints
    partitions: Ints
    offsets: Ints
    entries: Ints
    timestamps: Ints
    payloads: npt.NDArray[Any]

    @classmethod
    def of(cls, rows: Iterable[Row]) -> Self:
        """The same by row."""
        kinds = (np.int64,) * 5 + (np.object_,)
        return cls(*map(np.array, zip(*rows, strict=True), kinds))

    @classmethod
    def concat(cls, several: Sequence[Self]) -> Self:
        """All of them, at least one."""
        return several[0] if len(several) == 1 else cls(*map(np.concatenate, zip(*several, strict=True)))

    def ordered(self) -> Self:
        """In the order in which they are read."""
        order = np.lexsort((self.entries, self.offsets, self.partitions, self.streams))
        in_order = bool((order[1:] > order[:-1]).all())  # nearly always: a parent's events are in one partition
        return self if in_order else self.take(order)

    def take(self, which: Ints | slice) -> Self:
        """Some of them."""
        return type(self)(*(column[which] for column in self))

    def by_row(self) -> "Iterator[tuple[int, int, int, int, int, bytes | None]]":
        """One after the other, the fields as in `Row`; to name them takes 0.4 us each."""
        return zip(*(column.tolist() for column in self), strict=True)


def position(entry: Number) -> Number:
    """Where in its record an entry of a row stands, or each of many."""
    return entry // 2


def read(parent: str, number: int, rows: Rows, topics: Topics, output: Output) -> Iterator[tuple[Source, Event]]:
    """The valid events of a key, whose rows are ordered; of what is not valid one of the keys that see it says so."""
    first, behind = rows.streams.searchsorted((_TOPICS, _TOPICS + 1)).tolist()
    if parent == COORDINATOR or behind - first < COLUMNAR_MIN_TOPICS:
        return _one_by_one(parent, number, rows, topics, output)
    return chain(
        _one_by_one(parent, number, rows.take(slice(first)), topics, output),
        _all_at_once(parent, rows.take(slice(first, behind)), topics, output),
        _one_by_one(parent, number, rows.take(slice(behind, None)), topics, output),
    )


def _all_at_once(parent: str, rows: Rows, topics: Topics, output: Output) -> Iterator[tuple[Source, Event]]:
    """`_one_by_one` for many topic events."""
    _, partitions, offsets, entries, timestamps, payloads = rows
    columns = (partitions, offsets, position(entries), timestamps)
    sources = SourceColumns(topics[_TOPICS], *(column.astype(np.int64) for column in columns))
    plain = parse_plain_topic_events(payloads.tolist(), parent)
    if plain is not None:
        yield sources.at(0), TopicEventColumns(*plain, [NO_METADATA] * len(payloads), sources)
        return
    read_singly = _one_by_one(parent, 0, rows, topics, output)
    valid = [(source, event) for source, event in read_singly if isinstance(event, TopicEvent)]
    if valid:
        places, events = zip(*valid, strict=True)
        names, created = [event.lite_topic for event in events], [event.created for event in events]
        metadata = [event.metadata(source.timestamp) for source, event in valid]
        yield places[0], TopicEventColumns(names, created, metadata, SourceColumns.of(places))


def _one_by_one(parent: str, number: int, rows: Rows, topics: Topics, output: Output) -> Iterator[tuple[Source, Event]]:
    at_home = parent == COORDINATOR
    for stream, partition, offset, entry, timestamp, payload in rows.by_row():
        source = Source(topics[stream], partition, offset, position(entry), timestamp)
        try:
            event = _PARSERS[stream](payload)
        except Rejected as rejected:
            if at_home or stream in (_TOPICS, _CLOCK):
                output.add(OutputKind.DEAD_LETTER, dead_letter(source, rejected.reason, str(rejected), payload))
            continue
        if _is_routed_right(event, parent, number, entry):
            yield source, event
        elif _reports(stream, number, entry, at_home=at_home):
            output.add(OutputKind.DEAD_LETTER, dead_letter(source, Reason.NOT_ROUTABLE, _NOT_ROUTABLE, payload))


def _reports(stream: int, number: int, entry: int, *, at_home: bool) -> bool:
    """Whether this key is the one of those that see an entry that says that it was routed wrongly."""
    if stream == _GROUPS:
        return at_home
    if stream == _SUBSCRIPTIONS:  # the shards decide what a request means, where there is one
        return bool(entry % 2) if at_home else number == 0
    return True


_NOT_ROUTABLE = (
    "Spark reads this JSON text differently: a field stands in it twice, it nests too deep, or it has too long a number"
)


def _is_routed_right(event: Event, parent: str, number: int, entry: int) -> bool:
    """Whether the JVM has read what Python reads."""
    if isinstance(event, TopicEvent) or (parent != COORDINATOR and isinstance(event, SubscriptionRequest | GroupEvent)):
        return event.parent == parent
    if parent != COORDINATOR:
        return isinstance(event, Wake) and (event.parent, event.shard) == (parent, number)
    if isinstance(event, GroupEvent):
        return number == coordinator.bucket_of(event.group)
    if isinstance(event, SubscriptionRequest):
        return number == coordinator.bucket_of(event.group) and (event.parent == COORDINATOR) == bool(entry % 2)
    if isinstance(event, Alarm):
        return number == coordinator.bucket_of(event.parent)
    return isinstance(event, Tick)
