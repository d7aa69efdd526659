"""Input rows of one key, read into checked events, problems and questions in one pass.

Many topic events of one key are read by column (`Tuning.columnar_min_topics`). `streaming.expansion` evaluates by
column the events that arrive by column, as far as policies allow it.
"""

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from math import inf
from typing import Final, Protocol, TypeVar

import numpy as np

from matcher.dialects import DIALECTS
from streaming.coordinator import COORDINATOR, UNROUTABLE, bucket_of
from streaming.errors import Rejected
from streaming.records.columns import Event, SourceColumns, TopicEventColumns
from streaming.records.json_fields import json_object
from streaming.records.model import (
    NO_METADATA,
    Action,
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
from streaming.records.parsing import READERS, parse_plain_topic_events
from streaming.records.updates import Problem
from streaming.worker.bounds import Bounds
from streaming.worker.failures import not_applicable
from streaming.worker.inquiry.answering import Inquiry
from streaming.worker.rows import STREAMS, InputRows, StreamTopics, position
from streaming.worker.signature import Origin, Signer, own_fields

T = TypeVar("T")

_READERS = tuple(READERS[stream] for stream in STREAMS)
_GROUPS, _SUBSCRIPTIONS, _TOPICS, _CLOCK = range(4)

_ORDER: Final = {GroupEvent: _GROUPS, SubscriptionRequest: _SUBSCRIPTIONS, TopicEvent: _TOPICS}
"""Place of each kind of event in the order of a micro-batch; the others come last."""

_NOT_ROUTABLE = "Spark reads this JSON text differently: a number or a field name is too long"

MAX_SUSPECTS: Final = 8
"""Maximum number of groups that a key reports in a micro-batch."""

_MAX_CHARACTERS: Final = 1_024
"""Maximum length of a reported parent, group and entry together: Spark's progress contains all of them."""


class Observer(Protocol):
    """Observer of the work on a key."""

    def follow(self, entries: Iterator[T], count: int) -> Iterator[T]:
        """Yield the same entries of a key, at most `count`, when read and when applied."""


@dataclass(slots=True)
class Reading:
    """Entries of a key in a micro-batch.

    Attributes:
        suspects: groups with an entry that looks like a pattern, each with the first such entry.
    """

    events: list[tuple[Source, Event]] = field(default_factory=list)
    rejected: list[Problem] = field(default_factory=list)
    inquiries: list[Inquiry] = field(default_factory=list)
    suspects: dict[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class KeyReader:
    """Reads the rows of one key.

    Attributes:
        excluded: problems to report in place of entries, by topic, partition, offset, and position in the record.
    """

    parent: str
    number: int
    topics: StreamTopics
    columnar_min_topics: float
    bounds: Bounds | None = None
    signer: Signer | None = None
    excluded: Mapping[tuple[str, int, int, int], Problem] = field(default_factory=dict)
    observer: Observer | None = None
    _free_bytes: float = field(init=False)

    def __post_init__(self) -> None:
        self._free_bytes = inf
        if self.bounds is not None and self.signer is not None:
            self._free_bytes = min(self.bounds.value_bytes, self.bounds.request_bytes)

    def read(self, rows: InputRows) -> Reading:
        """Read ordered rows.

        Several keys may contain an invalid entry. One of them reports it.
        """
        found = Reading()
        first, behind = rows.streams.searchsorted((_TOPICS, _CLOCK)).tolist()
        if self.parent == COORDINATOR or behind - first < self.columnar_min_topics:
            self._read(rows, found)
        else:
            self._read(rows.take(slice(first)), found)
            self._read_by_column(rows.take(slice(first, behind)), found)
            self._read(rows.take(slice(behind, None)), found)
        if self.number == 0 and self.parent != COORDINATOR:
            _note_suspects(found)
        return found

    def _read_by_column(self, rows: InputRows, found: Reading) -> None:
        _, partitions, offsets, entries, timestamps, payloads = rows
        columns = (partitions, offsets, position(entries), timestamps)
        sources = SourceColumns(self.topics[_TOPICS], *(column.astype(np.int64) for column in columns))
        is_whole = not self.excluded or self.excluded.keys().isdisjoint(rows.places(self.topics))
        plain = parse_plain_topic_events(payloads.tolist(), self.parent) if is_whole else None
        if plain is not None and (self.bounds is None or self.bounds.allow(plain[0])):
            found.events.append((sources.at(0), TopicEventColumns(*plain, [NO_METADATA] * len(payloads), sources)))
            return
        single = Reading()
        self._read(rows, single)
        found.rejected += single.rejected
        valid = [(source, event) for source, event in single.events if isinstance(event, TopicEvent)]
        if valid:
            places, events = zip(*valid, strict=True)
            names, created = [event.lite_topic for event in events], [event.created for event in events]
            metadata = [event.metadata(source.timestamp) for source, event in valid]
            found.events.append((places[0], TopicEventColumns(names, created, metadata, SourceColumns.of(places))))

    def _read(self, rows: InputRows, found: Reading) -> None:
        events: list[tuple[Source, Event]] = []
        by_row = rows.by_row()
        if self.observer is not None:
            by_row = self.observer.follow(by_row, len(rows.streams))
        for stream, partition, offset, entry, timestamp, payload in by_row:
            source = Source(self.topics[stream], partition, offset, entry // 2, timestamp)
            if self.excluded and (left_out := self.excluded.get(source[:4])):
                found.rejected.append(left_out)
                continue
            event = self._read_entry(stream, entry, payload, source, found.rejected)
            if event is None:
                continue
            if isinstance(event, Tick | Wake) and event.inquiry is not None:
                inquiry = Inquiry(source, event.inquiry)
                if inquiry.has_id and not inquiry.is_stale(time.time()):
                    found.inquiries.append(inquiry)
            else:
                events.append((source, event))
        if len(events) > 1:
            events.sort(key=_turn)
        found.events += events

    def _read_entry(
        self, stream: int, entry: int, payload: bytes | None, source: Source, rejected: list[Problem]
    ) -> SingleEvent | None:
        """Return the event of an entry; None if there is none for this key, with the problem if this key reports it."""
        try:
            event = self._checked(stream, payload, source)
        except Rejected as error:
            if self._reports_invalid(stream, entry):
                rejected.append(Problem(source, Reason(error.reason), str(error)))
            return None
        except Exception as error:  # noqa: BLE001 - a defect here must not keep the other entries from being read
            rejected.append(not_applicable(source, error))
            return None
        if event is None or self._is_routed_here(event, entry):
            return event
        if self._reports_misrouted(stream, entry):
            rejected.append(Problem(source, Reason.NOT_ROUTABLE, _NOT_ROUTABLE))
        return None

    def _checked(self, stream: int, payload: bytes | None, source: Source) -> SingleEvent | None:
        """Return the event in a payload, None if of another job; raise `Rejected`."""
        if payload is not None and len(payload) > self._free_bytes:
            self._check_size(stream, payload, source)
        if self.number == UNROUTABLE and self.parent == COORDINATOR and stream == _SUBSCRIPTIONS and self.bounds:
            reason = self.bounds.explain_set(payload)
            if reason is not None:
                raise reason
        record = json_object(payload)
        if self.signer is not None and (own := own_fields(STREAMS[stream], record)):
            origin = self.signer.origin(payload, source)
            if origin is Origin.UNSIGNED:
                kind, rest = ("is a field", "it") if len(own) == 1 else ("are fields", "them")
                raise Rejected(Reason.RESERVED_FIELD, f"{', '.join(own)} {kind} for the job alone; leave {rest} out")
            return _READERS[stream](record) if origin is Origin.OWN else None
        event = _READERS[stream](record)
        if self.bounds is not None:
            self.bounds.check(event, source.timestamp)
        return event

    def _check_size(self, stream: int, payload: bytes, source: Source) -> None:
        """Reject a value that is too large, unless the job has written it: the JVM cannot check a signature."""
        if self.bounds is None or self.signer is None or self.signer.origin(payload, source) is Origin.OWN:
            return
        self.bounds.check_size(STREAMS[stream], len(payload))

    def _reports_invalid(self, stream: int, entry: int) -> bool:
        """Return True if this key reports an invalid entry, of all keys that see it."""
        if stream == _CLOCK:
            return not entry % 2
        return self.parent == COORDINATOR or stream == _TOPICS

    def _reports_misrouted(self, stream: int, entry: int) -> bool:
        """Return True if this key reports an entry as not routable, of all keys that see it."""
        if stream == _GROUPS:
            return self.parent == COORDINATOR
        if self.number == UNROUTABLE:
            return True
        if stream == _SUBSCRIPTIONS:  # the first shard reports, if there is one
            return bool(entry % 2) if self.parent == COORDINATOR else self.number == 0
        return True

    def _is_routed_here(self, event: SingleEvent, entry: int) -> bool:
        """Return True if the JVM and Python place an event on this key."""
        if isinstance(event, TopicEvent):
            return event.parent == self.parent
        if self.parent != COORDINATOR:
            if isinstance(event, SubscriptionRequest | GroupEvent):
                return event.parent == self.parent
            return isinstance(event, Wake) and (event.parent, event.shard) == (self.parent, self.number)
        if isinstance(event, Tick):
            return self.number != UNROUTABLE
        if isinstance(event, SubscriptionRequest) and (event.parent == COORDINATOR) != bool(entry % 2):
            return False
        return not isinstance(event, Wake) and self.number == bucket_of(
            event.parent if isinstance(event, Alarm) else event.group
        )


def _turn(entry: tuple[Source, Event]) -> tuple[int, int, int, bool]:
    """Return the sort key of an event of a micro-batch.

    A record that the coordinator wrote, in any partition, comes directly after the last event that it follows from,
    nearly always one of an earlier micro-batch. Other events between that event and the record come after the record.
    """
    source, event = entry
    if isinstance(event, GroupEvent):
        cause = event.superseded_by
    elif isinstance(event, SubscriptionRequest):
        cause = event.through
    else:
        return _ORDER.get(type(event), _CLOCK), 0, 0, False
    place = source.place if cause is None else cause
    return _ORDER[type(event)], place.partition, place.position, cause is not None


def _note_suspects(found: Reading) -> None:
    """Collect groups whose clients send entries that look like patterns."""
    suspects = found.suspects
    for _, event in found.events:
        if (
            isinstance(event, SubscriptionRequest)
            and event.action in (Action.COMPLETE_ADD, Action.PARTIAL_ADD)
            and event.group not in suspects
            and len(suspects) < MAX_SUSPECTS
        ):
            signs = DIALECTS[event.notation.dialect].wildcards
            entry = next((text for text in event.entries if any(sign in text for sign in signs)), None)
            if entry is not None and len(event.parent) + len(event.group) + len(entry) <= _MAX_CHARACTERS:
                suspects[event.group] = entry
