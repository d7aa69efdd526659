"""Input rows of one key as checked events; each invalid entry is yielded as a problem.

Many topic events of one key are read by column (`Tuning.columnar_min_topics`). Here the two ways of judging topics
part: `streaming.expansion` judges by column the events that come by column, as far as policies let it.
"""

from collections.abc import Iterator
from itertools import chain

import numpy as np

from streaming.coordinator import COORDINATOR, bucket_of
from streaming.errors import Rejected
from streaming.events.columns import Event, SourceColumns, TopicEventColumns
from streaming.events.model import (
    NO_METADATA,
    Alarm,
    GroupEvent,
    Reason,
    SingleEvent,
    Source,
    SubscriptionRequest,
    Tick,
    TopicEvent,
    Wake,
)
from streaming.events.parsing import PARSERS, parse_plain_topic_events
from streaming.updates.model import Problem
from streaming.worker.rows import STREAMS, InputRows, position

_PARSERS = tuple(PARSERS[stream] for stream in STREAMS)
_GROUPS, _SUBSCRIPTIONS, _TOPICS, _CLOCK = range(4)

StreamTopics = tuple[str, str, str, str]
"""Kafka topics of the input streams, in the order of `STREAMS`."""

Entry = tuple[Source, Event] | Problem

_NOT_ROUTABLE = (
    "Spark reads this JSON text differently: a field stands in it twice, it nests too deep, or it has too long a number"
)


class KeyReader:
    """Reads the rows of one key."""

    def __init__(self, parent: str, number: int, topics: StreamTopics, columnar_min_topics: float) -> None:
        self._parent = parent
        self._number = number
        self._topics = topics
        self._columnar_min_topics = columnar_min_topics
        self._is_coordinator = parent == COORDINATOR

    def read(self, rows: InputRows) -> Iterator[Entry]:
        """Yield the events of ordered rows with their coordinates, and a problem for each invalid entry.

        Several keys may see an invalid entry; one of them reports it.
        """
        first, behind = rows.streams.searchsorted((_TOPICS, _TOPICS + 1)).tolist()
        if self._is_coordinator or behind - first < self._columnar_min_topics:
            return self._one_by_one(rows)
        return chain(
            self._one_by_one(rows.take(slice(first))),
            self._by_column(rows.take(slice(first, behind))),
            self._one_by_one(rows.take(slice(behind, None))),
        )

    def _by_column(self, rows: InputRows) -> Iterator[Entry]:
        """Yield the topic events of some rows as one."""
        _, partitions, offsets, entries, timestamps, payloads = rows
        columns = (partitions, offsets, position(entries), timestamps)
        sources = SourceColumns(self._topics[_TOPICS], *(column.astype(np.int64) for column in columns))
        plain = parse_plain_topic_events(payloads.tolist(), self._parent)
        if plain is not None:
            yield sources.at(0), TopicEventColumns(*plain, [NO_METADATA] * len(payloads), sources)
            return
        valid: list[tuple[Source, TopicEvent]] = []
        for entry in self._one_by_one(rows):
            if isinstance(entry, Problem):
                yield entry
            elif isinstance(entry[1], TopicEvent):
                valid.append((entry[0], entry[1]))
        if valid:
            places, events = zip(*valid, strict=True)
            names, created = [event.lite_topic for event in events], [event.created for event in events]
            metadata = [event.metadata(source.timestamp) for source, event in valid]
            yield places[0], TopicEventColumns(names, created, metadata, SourceColumns.of(places))

    def _one_by_one(self, rows: InputRows) -> Iterator[Entry]:
        for stream, partition, offset, entry, timestamp, payload in rows.by_row():
            source = Source(self._topics[stream], partition, offset, position(entry), timestamp)
            try:
                event = _PARSERS[stream](payload)
            except Rejected as rejected:
                if self._is_coordinator or stream in (_TOPICS, _CLOCK):
                    yield Problem(source, Reason(rejected.reason), str(rejected))
                continue
            if self._is_routed_here(event, entry):
                yield source, event
            elif self._reports_misrouted(stream, entry):
                yield Problem(source, Reason.NOT_ROUTABLE, _NOT_ROUTABLE)

    def _reports_misrouted(self, stream: int, entry: int) -> bool:
        """Tell whether this key, of those that see an entry, reports it as not routable."""
        if stream == _GROUPS:
            return self._is_coordinator
        if stream == _SUBSCRIPTIONS:  # the first shard reports, where there is one
            return bool(entry % 2) if self._is_coordinator else self._number == 0
        return True

    def _is_routed_here(self, event: SingleEvent, entry: int) -> bool:
        """Tell whether the JVM placed an event where Python would place it."""
        if isinstance(event, TopicEvent):
            return event.parent == self._parent
        if not self._is_coordinator:
            if isinstance(event, SubscriptionRequest | GroupEvent):
                return event.parent == self._parent
            return isinstance(event, Wake) and (event.parent, event.shard) == (self._parent, self._number)
        if isinstance(event, GroupEvent):
            return self._number == bucket_of(event.group)
        if isinstance(event, SubscriptionRequest):
            return self._number == bucket_of(event.group) and (event.parent == COORDINATOR) == bool(entry % 2)
        return isinstance(event, Tick) or (isinstance(event, Alarm) and self._number == bucket_of(event.parent))
