"""Topics that a micro-batch creates, deletes or expires: one by one, or many in bulk."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np

from streaming.records.columns import SourceColumns, TopicEventColumns
from streaming.records.model import NO_METADATA, Source, TopicEvent, TopicMetadata
from streaming.records.updates import Cause
from streaming.state import ShardState
from streaming.state.client import Ignored

_DETAILS: Final = TopicEvent._fields.index("tags")
_NO_DETAILS: Final = TopicEvent("", "", created=True)[_DETAILS:]
"""Fields of an event that has nothing but names."""


class Removal(NamedTuple):
    """The event that removed a topic."""

    source: Source
    cause: Cause


class SingleChange(NamedTuple):
    """A topic as it is after the events read so far, and the first event that removed it, if any."""

    exists: bool
    source: Source
    metadata: TopicMetadata = NO_METADATA
    removal: Removal | None = None


class BulkChange(NamedTuple):
    """Many topics that are created, or removed, for one cause; without metadata for removals."""

    exists: bool
    cause: Cause
    names: Sequence[str]
    metadata: Sequence[TopicMetadata]
    sources: SourceColumns

    def take(self, rows: Sequence[int]) -> "BulkChange":
        """Return the topics at some places."""
        names, metadata = [self.names[row] for row in rows], [self.metadata[row] for row in rows]
        return self._replace(names=names, metadata=metadata, sources=self.sources.take(np.array(rows, np.int64)))

    def outliving(self, now: int) -> "BulkChange":
        """Return the topics whose deadline is after `now`."""
        rows = [row for row, each in enumerate(self.metadata) if not _is_over(each, now)]
        return self if len(rows) == len(self.names) else self.take(rows)


@dataclass(slots=True)
class TopicChanges:
    """Changes of topics by the events of one micro-batch, one by one and by column; a topic is in one of both."""

    _state: ShardState
    _ignored: Counter[Ignored]
    _columnar_min_topics: float
    single: dict[str, SingleChange] = field(default_factory=dict)
    bulks: list[BulkChange] = field(default_factory=list)
    _bulk_sources: dict[str, Source] = field(default_factory=dict)

    def read(self, source: Source, event: TopicEvent) -> None:
        """Create or delete one topic."""
        is_plain = event[_DETAILS:] == _NO_DETAILS  # nearly always
        metadata = NO_METADATA if is_plain else event.metadata(source.timestamp)
        self._set(source, event.lite_topic, event.created, metadata)

    def read_columns(self, events: TopicEventColumns, *, in_bulk: bool) -> None:
        """Create and delete many topics, by column if `in_bulk`."""
        others: Iterable[int] = range(len(events.names))
        if in_bulk:
            self.bulks, others = split_bulk(events, self._state.topics)
        for row in others:
            self._set(events.sources.at(row), events.names[row], events.created[row], events.metadata[row])

    def _set(self, source: Source, name: str, created: bool, metadata: TopicMetadata) -> None:  # noqa: FBT001 - a column
        known = self.single.get(name)
        exists = name in self._state.topics if known is None else known.exists
        removal = None if known is None else known.removal
        if exists and _is_over(self._state.topics[name] if known is None else known.metadata, source.timestamp):
            # no tick has come yet
            exists, removal = False, removal or Removal(source, Cause.TOPIC_EXPIRED)
            self.single[name] = SingleChange(False, source, removal=removal)
        if exists == created:
            self._ignored[Ignored.TOPIC_EXISTS if exists else Ignored.TOPIC_UNKNOWN] += 1
            return
        self.single.pop(name, None)  # topics are in order of their creation
        if created:
            self.single[name] = SingleChange(True, source, metadata, removal)
        else:
            self.single[name] = SingleChange(False, source, removal=removal or Removal(source, Cause.TOPIC_DELETED))

    def expire(self, wakes: Iterable[tuple[Source, int]], *, in_bulk: bool) -> int:
        """Remove the topics whose time is over, and return the latest time in ms.

        The first time at or after its deadline is the cause; `in_bulk` as above.
        """
        times: list[int] = []
        expiries: list[Removal] = []
        for source, time in wakes:
            if not times or time > times[-1]:
                times.append(time)
                expiries.append(Removal(source, Cause.TOPIC_EXPIRED))
        now = times[-1]

        def expiry(metadata: TopicMetadata) -> Removal:
            return expiries[bisect_left(times, metadata.deadline or 0)]

        removed = {name for bulk in self.bulks if not bulk.exists for name in bulk.names}
        due = [name for name in self._state.due(now) if name not in self.single and name not in removed]
        over = [expiry(self._state.topics[name]) for name in due]
        if due and in_bulk and len(due) >= self._columnar_min_topics:
            sources = SourceColumns.of([removal.source for removal in over])
            self.bulks.append(BulkChange(False, Cause.TOPIC_EXPIRED, due, [NO_METADATA] * len(due), sources))
        else:
            self.single.update(
                (name, SingleChange(False, removal.source, removal=removal))
                for name, removal in zip(due, over, strict=True)
            )
        for name, topic in list(self.single.items()):
            if topic.exists and _is_over(topic.metadata, now):
                removal = expiry(topic.metadata)
                self.single[name] = SingleChange(False, removal.source, removal=topic.removal or removal)
        self.bulks = [bulk.outliving(now) if bulk.exists else bulk for bulk in self.bulks]
        return now

    def outcome(self) -> tuple[dict[str, None], dict[str, TopicMetadata]]:
        """Return the stored topics that are gone or created again, and the new topics in order of creation."""
        removed = dict.fromkeys(name for name in self.single if name in self._state.topics)
        added = {name: topic.metadata for name, topic in self.single.items() if topic.exists}
        is_mixed = bool(added) and any(bulk.exists for bulk in self.bulks)
        places = {name: self.single[name].source[1:3] for name in added} if is_mixed else {}
        for bulk in self.bulks:
            if not bulk.exists:
                removed.update(dict.fromkeys(bulk.names))
                continue
            added.update(zip(bulk.names, bulk.metadata, strict=True))
            if is_mixed:
                places.update(zip(bulk.names, bulk.sources.places(), strict=True))
        if is_mixed:
            added = {name: added[name] for name in sorted(added, key=places.__getitem__)}
        return removed, added

    def recreated(self) -> list[str]:
        """Return the stored topics that were deleted and created again: they now come last in order of creation."""
        return [name for name, topic in self.single.items() if topic.exists and name in self._state.topics]

    def source(self, name: str) -> Source:
        """Return the coordinates of the event that created a topic of the micro-batch."""
        if name in self.single:
            return self.single[name].source
        if not self._bulk_sources:
            for bulk in self.bulks:
                self._bulk_sources.update((each, bulk.sources.at(row)) for row, each in enumerate(bulk.names))
        return self._bulk_sources[name]


def split_bulk(events: TopicEventColumns, stored: Mapping[str, TopicMetadata]) -> tuple[list[BulkChange], list[int]]:
    """Split topic events into bulk changes and the numbers of the others.

    A topic goes in bulk if one event changes it, no other event names it, and its time is not over.
    """
    names, created, metadata, sources = events
    if len(set(names)) == len(names) and all(created) and stored.keys().isdisjoint(names):
        return [BulkChange(True, Cause.TOPIC_CREATED, names, metadata, sources)], []
    counts = Counter(names)
    rows: dict[bool, list[int]] = {True: [], False: []}
    others: list[int] = []
    for row, (name, exists) in enumerate(zip(names, created, strict=True)):
        is_plain = counts[name] == 1 and exists != (name in stored)
        if is_plain and not exists and _is_over(stored[name], int(sources.timestamps[row])):
            is_plain = False
        (rows[exists] if is_plain else others).append(row)
    return [
        BulkChange(exists, cause, names, metadata, sources).take(rows[exists])
        for exists, cause in ((False, Cause.TOPIC_DELETED), (True, Cause.TOPIC_CREATED))
        if rows[exists]
    ], others


def _is_over(metadata: TopicMetadata, now: int) -> bool:
    """Return True if a topic's deadline is at or before `now`."""
    return metadata.deadline is not None and metadata.deadline <= now
