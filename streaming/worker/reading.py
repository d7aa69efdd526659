"""Input rows of one key as checked events; each invalid entry is yielded as a problem.

Many topic events of one key are read by column (`Tuning.columnar_min_topics`). Here the two ways of judging topics
part: `streaming.expansion` judges by column the events that come by column, as far as policies let it.
"""

from collections.abc import Iterator, Mapping
from itertools import chain
from math import inf

import numpy as np

from streaming.coordinator import COORDINATOR, UNROUTABLE, bucket_of
from streaming.errors import Rejected
from streaming.events.columns import Event, SourceColumns, TopicEventColumns
from streaming.events.json_fields import json_object
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
from streaming.events.parsing import READERS, parse_plain_topic_events
from streaming.updates.model import Problem
from streaming.worker.bounds import Bounds
from streaming.worker.failures import not_applicable
from streaming.worker.rows import STREAMS, InputRows, position
from streaming.worker.signature import Origin, Signer, sets_own_fields

_READERS = tuple(READERS[stream] for stream in STREAMS)
_GROUPS, _SUBSCRIPTIONS, _TOPICS, _CLOCK = range(4)

StreamTopics = tuple[str, str, str, str]
"""Kafka topics of the input streams, in the order of `STREAMS`."""

Entry = tuple[Source, Event] | Problem

_NOT_ROUTABLE = "Spark reads this JSON text differently: it has too long a number, or too long a field name"

_RESERVED = "asOf, expired, supersededBy and boundTo are fields for the job alone; leave them out"


class KeyReader:
    """Reads the rows of one key.

    Args:
        excluded: problems to yield in place of entries, by topic, partition, offset, and position in the record.
    """

    def __init__(
        self,
        parent: str,
        number: int,
        topics: StreamTopics,
        columnar_min_topics: float,
        *,
        bounds: Bounds | None = None,
        signer: Signer | None = None,
        excluded: Mapping[tuple[str, int, int, int], Problem] | None = None,
    ) -> None:
        self._parent = parent
        self._number = number
        self._topics = topics
        self._columnar_min_topics = columnar_min_topics
        self._bounds = bounds
        self._signer = signer
        self._free_bytes = inf if bounds is None or signer is None else bounds.least_bytes
        self._excluded = excluded or {}
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
        is_whole = not self._excludes_some(rows)
        plain = parse_plain_topic_events(payloads.tolist(), self._parent) if is_whole else None
        if plain is not None and (self._bounds is None or self._bounds.allow(plain[0])):
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

    def _excludes_some(self, rows: InputRows) -> bool:
        """Return True if an entry of some rows is left out."""
        return any(
            ((rows.offsets == offset) & (rows.partitions == partition) & (position(rows.entries) == entry)).any()
            for _, partition, offset, entry in self._excluded
        )

    def _one_by_one(self, rows: InputRows) -> Iterator[Entry]:
        """Yield the events of rows."""
        first, behind = rows.streams.searchsorted((_SUBSCRIPTIONS, _TOPICS)).tolist()
        yield from self._in_order(rows.take(slice(first)))
        yield from sorted(self._in_order(rows.take(slice(first, behind))), key=_turn)
        yield from self._in_order(rows.take(slice(behind, None)))

    def _in_order(self, rows: InputRows) -> Iterator[Entry]:
        for stream, partition, offset, entry, timestamp, payload in rows.by_row():
            source = Source(self._topics[stream], partition, offset, position(entry), timestamp)
            if self._excluded and (left_out := self._excluded.get(source[:4])):
                yield left_out
                continue
            try:
                event = self._checked(stream, payload, source)
            except Rejected as rejected:
                if self._reports_invalid(stream, entry):
                    yield Problem(source, Reason(rejected.reason), str(rejected))
                continue
            except Exception as error:  # noqa: BLE001 - a defect here must not keep the other entries from being read
                yield not_applicable(source, error)
                continue
            if event is None:
                continue
            if self._is_routed_here(event, entry):
                yield source, event
            elif self._reports_misrouted(stream, entry):
                yield Problem(source, Reason.NOT_ROUTABLE, _NOT_ROUTABLE)

    def _checked(self, stream: int, payload: bytes | None, source: Source) -> SingleEvent | None:
        """Return the event in a payload; None if another job wrote it to itself.

        Raises:
            Rejected: the payload is not valid.
        """
        if payload is not None and len(payload) > self._free_bytes:
            self._check_size(stream, payload, source)
        if self._number == UNROUTABLE and self._is_coordinator and stream == _SUBSCRIPTIONS and self._bounds:
            reason = self._bounds.explain_set(payload)
            if reason is not None:
                raise reason
        record = json_object(payload)
        if self._signer is not None and sets_own_fields(STREAMS[stream], record):
            origin = self._signer.origin(payload, source)
            if origin is Origin.UNSIGNED:
                raise Rejected(Reason.RESERVED_FIELD, _RESERVED)
            return _READERS[stream](record) if origin is Origin.OWN else None
        event = _READERS[stream](record)
        if self._bounds is not None:
            self._bounds.check(event, source.timestamp)
        return event

    def _check_size(self, stream: int, payload: bytes, source: Source) -> None:
        """Reject a value that is too large, unless the job has written it: the JVM cannot check a signature."""
        if self._bounds is None or self._signer is None or self._signer.origin(payload, source) is Origin.OWN:
            return
        self._bounds.check_size(STREAMS[stream], len(payload))

    def _reports_invalid(self, stream: int, entry: int) -> bool:
        """Tell whether this key reports an invalid entry, of all keys that see it."""
        if stream == _CLOCK:
            return not entry % 2
        return self._is_coordinator or stream == _TOPICS

    def _reports_misrouted(self, stream: int, entry: int) -> bool:
        """Tell whether this key reports an entry as not routable, of all keys that see it."""
        if stream == _GROUPS:
            return self._is_coordinator
        if self._number == UNROUTABLE:
            return True
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
        if isinstance(event, Tick):
            return self._number != UNROUTABLE
        if isinstance(event, SubscriptionRequest) and (event.parent == COORDINATOR) != bool(entry % 2):
            return False
        return not isinstance(event, Wake) and self._number == bucket_of(
            event.parent if isinstance(event, Alarm) else event.group
        )


def _turn(entry: Entry) -> tuple[int, int, bool]:
    """Return what orders the requests of a micro-batch.

    An end that the coordinator wrote comes right behind the last request of which it knew, which is nearly always of an
    earlier micro-batch: the requests between that one and the record come after it.
    """
    source, event = entry[:2]
    through = event.through if isinstance(event, SubscriptionRequest) else None
    place = source.place if through is None else through
    return place.partition, place.position, through is not None
