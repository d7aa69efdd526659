"""The inputs in pieces that fit into memory, and in the order of time across partitions."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from heapq import merge
from itertools import groupby
from typing import Final, NamedTuple, Protocol

from streaming.events.model import Stream
from streaming.kafka.reader import Partition, Span

WINDOW_RECORDS: Final = 100_000
"""Most records that are in memory at once, unless more have one and the same timestamp."""

STEP_MS: Final = 1_000
"""Time whose records are worked off together, in milliseconds."""

_END_OF_TIME: Final = 1 << 53
"""Time after all timestamps, in milliseconds since the epoch."""


class Clocked(Protocol):
    """The part of a `TopicReader` that windows are found with."""

    def offsets_at(self, milliseconds: int, partitions: Mapping[Partition, int]) -> dict[Partition, int | None]:
        """Return the first offset of each partition at or after a time."""


class StoredInput(NamedTuple):
    """A record of an input stream."""

    stream: Stream
    partition: int
    offset: int
    timestamp: int
    value: bytes | None

    @property
    def is_of_job(self) -> bool:
        """True for a record that the job wrote to itself, because of others: it wakes a shard, or ends a client."""
        value = self.value or b""
        if self.stream is Stream.CLOCK:
            return b'"wake"' in value
        return self.stream is Stream.SUBSCRIPTIONS and b'"asOf"' in value


def windows(
    reader: Clocked, spans: Mapping[Partition, Span], records: int = WINDOW_RECORDS
) -> Iterator[dict[Partition, Span]]:
    """Yield spans that follow one another, each of at most some number of records, cut at points in time.

    Where one millisecond has more records, the window is larger.
    """
    position = {partition: span.start for partition, span in spans.items()}
    ends = {partition: span.end for partition, span in spans.items()}

    def at(time: int) -> dict[Partition, int]:
        found = reader.offsets_at(time, position)
        return {
            partition: max(start, min(ends[partition], ends[partition] if (at := found[partition]) is None else at))
            for partition, start in position.items()
        }

    def size(cut: Mapping[Partition, int]) -> int:
        return sum(cut.values()) - sum(position.values())

    low = 0
    while size(ends):
        cut = ends
        if size(ends) > records:
            cut, low = _largest_cut(at, size, records, low)
        yield {partition: Span(position[partition], end) for partition, end in cut.items()}
        position = dict(cut)


def _largest_cut(
    at: Callable[[int], dict[Partition, int]], size: Callable[[Mapping[Partition, int]], int], records: int, low: int
) -> tuple[dict[Partition, int], int]:
    """Return the largest cut at a point in time that is small enough, and that time; one record is the least.

    Args:
        at: returns the cut at a time.
        size: returns the number of records before a cut.
        records: most records.
        low: time of the former cut.
    """
    first, behind = low, _END_OF_TIME
    while behind - first > 1:
        middle = (first + behind) // 2
        if size(at(middle)) <= records:
            first = middle
        else:
            behind = middle
    cut = at(first)
    return (cut, first) if size(cut) else (at(behind), behind)


def in_order(partitions: Iterable[Sequence[StoredInput]]) -> Iterator[list[StoredInput]]:
    """Yield the records of a window as micro-batches: in order of time, and each partition in its own order.

    A micro-batch has the records of one step in time, as that of a job that keeps up: a quota counts the topics that
    existed before it. Records that the job wrote to itself begin and end a micro-batch as well: what they do depends on
    what came before them, and within a micro-batch the streams are read one after the other.
    """
    ordered = merge(*map(_in_time, partitions), key=_place_in_time)
    for _, run in groupby(ordered, key=_micro_batch):
        yield [record for _, record in run]


def _place_in_time(placed: tuple[tuple[int, int], StoredInput]) -> tuple[int, int]:
    return placed[0]


def _micro_batch(placed: tuple[tuple[int, int], StoredInput]) -> tuple[int, bool]:
    """Return a value that changes where a micro-batch begins."""
    (time, _), record = placed
    return time // STEP_MS, record.is_of_job


def _in_time(records: Iterable[StoredInput]) -> Iterator[tuple[tuple[int, int], StoredInput]]:
    """Yield the records of a partition with their place in time, which never goes back."""
    latest = 0
    for record in records:
        latest = max(latest, record.timestamp)
        yield (latest, _NUMBER[record.stream]), record


_NUMBER = {stream: number for number, stream in enumerate(Stream)}
