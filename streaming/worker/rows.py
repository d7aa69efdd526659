"""Input rows of one key by column, as Spark passes them, and the facts about a key for metrics."""

import itertools
from collections.abc import Iterable, Iterator, Sequence
from hashlib import blake2b
from typing import Any, Final, NamedTuple, Self, TypeVar

import numpy as np
import numpy.typing as npt

from streaming.coordinator import COORDINATOR
from streaming.records.columns import Ints
from streaming.records.model import Stream

STREAMS = tuple(Stream)
"""Input streams by their number in a row; also the order in which a micro-batch is read."""

CLOCK = STREAMS.index(Stream.CLOCK)
"""Number of the clock stream."""

Number = TypeVar("Number", int, Ints)


class InputRow(NamedTuple):
    """One input entry; rows sort in the order in which they are read.

    Attributes:
        stream: its number in `STREAMS`.
        entry: twice its position in the record; one more if no shard sees it, because it names no parent. Of a tick,
            which many keys receive: 0 for the key that reports it if it is invalid, 1 for the others.
        timestamp: of the record, in milliseconds since the epoch.
    """

    stream: int
    partition: int
    offset: int
    entry: int
    timestamp: int
    payload: bytes | None


class InputRows(NamedTuple):
    """Input rows by column."""

    streams: Ints
    partitions: Ints
    offsets: Ints
    entries: Ints
    timestamps: Ints
    payloads: npt.NDArray[Any]

    @classmethod
    def of(cls, rows: Iterable[InputRow]) -> Self:
        """Return the columns of some rows."""
        kinds = (np.int64,) * 5 + (np.object_,)
        return cls(*map(np.array, zip(*rows, strict=True), kinds))

    @property
    def has_events(self) -> bool:
        """True if there are rows of other streams than the clock."""
        return bool((self.streams != CLOCK).any())

    @classmethod
    def concat(cls, several: Sequence[Self]) -> Self:
        """Return all rows of one or more tables."""
        return several[0] if len(several) == 1 else cls(*map(np.concatenate, zip(*several, strict=True)))

    def ordered(self) -> Self:
        """Return the rows in the order in which they are read."""
        order = np.lexsort((self.entries, self.offsets, self.partitions, self.streams))
        in_order = bool((order[1:] > order[:-1]).all())  # nearly always: a parent's events are in one partition
        return self if in_order else self.take(order)

    def take(self, which: Ints | slice) -> Self:
        """Return the rows at some places."""
        return type(self)(*(column[which] for column in self))

    def places(self, topics: Sequence[str]) -> set[tuple[str, int, int, int]]:
        """Return Kafka topic, partition, offset and position of each entry.

        Args:
            topics: Kafka topics of the input streams, in the order of `STREAMS`.
        """
        columns = (self.streams, self.partitions, self.offsets, position(self.entries))
        rows = zip(*(column.tolist() for column in columns), strict=True)
        return {(topics[stream], partition, offset, entry) for stream, partition, offset, entry in rows}

    def by_row(self) -> "Iterator[tuple[int, int, int, int, int, bytes | None]]":
        """Yield the rows, with the fields of `InputRow`; to name the fields takes 0.4 us a row."""
        return zip(*(column.tolist() for column in self), strict=True)


def joined(rows: InputRows, pieces: Ints) -> InputRows:
    """Return rows with their payloads whole, in the order in which they are read.

    Args:
        rows: in any order; a long payload is spread over several of them.
        pieces: number of the piece in each row, from 1; 0 for a payload that is whole.
    """
    order = np.lexsort((pieces, rows.entries, rows.offsets, rows.partitions, rows.streams))
    rows, pieces = rows.take(order), pieces[order]
    starts = np.flatnonzero(pieces <= 1)
    payloads = np.empty(len(starts), np.object_)
    for number, (start, end) in enumerate(itertools.pairwise((*starts.tolist(), len(pieces)))):
        payloads[number] = rows.payloads[start] if end == start + 1 else b"".join(rows.payloads[start:end])
    return rows.take(starts)._replace(payloads=payloads)


def position(entry: Number) -> Number:
    """Return the position in its record of an entry, or of each of many."""
    return entry // 2


LABEL_CHARACTERS: Final = 128
"""Greatest length of the name of a parent in metrics."""

_TIMES: Final = 16
"""Largest number of timestamps that a key reports."""


class KeyFacts(NamedTuple):
    """A key after a micro-batch, and the events that it has applied.

    Attributes:
        parent: the parent topic as `label` returns it; empty for a bucket of the coordinator.
        shard: number of the shard, or of the bucket.
        topics: number of lite topics of the shard.
        clients: number of clients on the shard, or known to the bucket of the coordinator.
        state_bytes: size of its journal, parts included.
        times: timestamps of the events, in milliseconds since the epoch: all, or an even sample of them.
        weight: number of events that each of these times represents.
        newest: latest timestamp of each input partition that was read: number of the stream, partition, timestamp.
    """

    parent: str
    shard: int
    topics: int
    clients: int
    state_bytes: int
    times: list[int]
    weight: float
    newest: list[tuple[int, int, int]]


def facts(parent: str, number: int, size: tuple[int, int, int], rows: InputRows) -> KeyFacts:
    """Return the facts about a key.

    Args:
        parent: the parent topic.
        number: the shard.
        size: numbers of its topics, its clients, and the bytes of its journal.
        rows: its input rows, in the order in which they are read.
    """
    times = rows.timestamps[rows.streams != CLOCK]
    count = len(times)
    if count > _TIMES:
        times = np.sort(times)[(2 * np.arange(_TIMES) + 1) * count // (2 * _TIMES)]
    name = "" if parent == COORDINATOR else label(parent)
    return KeyFacts(name, number, *size, times.tolist(), count / max(1, len(times)), _newest(rows))


def label(name: str) -> str:
    """Return a name in the length that metrics show; a long one ends in its digest."""
    if len(name) <= LABEL_CHARACTERS:
        return name
    digest = blake2b(name.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()
    return f"{name[: LABEL_CHARACTERS - len(digest) - 3]}...{digest}"


def _newest(rows: InputRows) -> list[tuple[int, int, int]]:
    """Return the latest timestamp of each stream and partition among the rows, which are ordered by both."""
    streams, partitions, times = rows.streams, rows.partitions, rows.timestamps
    if streams[0] == streams[-1] and partitions[0] == partitions[-1]:  # nearly always: a parent's events are together
        return [(int(streams[0]), int(partitions[0]), int(times.max()))]
    changes = (streams[1:] != streams[:-1]) | (partitions[1:] != partitions[:-1])
    begins = np.concatenate(([0], np.flatnonzero(changes) + 1))
    newest = np.maximum.reduceat(times, begins)
    return list(zip(streams[begins].tolist(), partitions[begins].tolist(), newest.tolist(), strict=True))
