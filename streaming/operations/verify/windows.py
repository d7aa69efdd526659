"""Windows of the inputs that fit into memory, in order of time across partitions."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from heapq import merge
from itertools import groupby
from typing import Final, NamedTuple

from streaming.kafka.reader import Partition, Span
from streaming.records.model import Stream

WINDOW_RECORDS: Final = 100_000
"""Maximum number of records in memory, unless more have the same timestamp."""

STEP_MS: Final = 1_000
"""Length of a micro-batch in milliseconds of record time."""

_END_OF_TIME: Final = 1 << 53
"""Upper bound of all timestamps, in milliseconds since the epoch."""


OffsetsAt = Callable[[int, Mapping[Partition, int]], Mapping[Partition, int | None]]
"""Function that returns the first offset of each partition at or after a time, such as `TopicReader.offsets_at`."""


class StoredInput(NamedTuple):
    """A record of an input stream."""

    stream: Stream
    partition: int
    offset: int
    timestamp: int
    value: bytes | None

    @property
    def is_of_job(self) -> bool:
        """True for a record of the job that wakes a shard or ends a client."""
        value = self.value or b""
        if self.stream is Stream.CLOCK:
            return b'"wake"' in value
        return self.stream is Stream.SUBSCRIPTIONS and b'"asOf"' in value


def windows(
    offsets_at: OffsetsAt, spans: Mapping[Partition, Span], records: int = WINDOW_RECORDS
) -> Iterator[dict[Partition, Span]]:
    """Yield consecutive windows, cut at points in time, with at most `records` records.

    A window is larger if a single millisecond has more records.
    """
    position = {partition: span.start for partition, span in spans.items()}
    ends = {partition: span.end for partition, span in spans.items()}

    def at(time: int) -> dict[Partition, int]:
        found = offsets_at(time, position)
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
    """Return the latest cut within `records`, and its time; a cut has at least one record.

    Args:
        at: returns the cut at a time.
        size: returns the number of records before a cut.
        records: maximum number of records.
        low: time of the previous cut.
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
    """Yield the records of a window as micro-batches, in order of time and of each partition.

    A micro-batch contains the records of `STEP_MS`, like a job without lag: a quota counts the topics that existed
    before. Records of the job are in separate micro-batches: their effect depends on earlier records, and within a
    micro-batch the streams are read one after another.
    """
    ordered = merge(*map(_in_time, partitions), key=lambda placed: placed[0])
    # A key that differs between consecutive micro-batches.
    for _, run in groupby(ordered, key=lambda placed: (placed[0][0] // STEP_MS, placed[1].is_of_job)):
        yield [record for _, record in run]


def _in_time(records: Iterable[StoredInput]) -> Iterator[tuple[tuple[int, int], StoredInput]]:
    """Yield the records of a partition with a sort key that never decreases."""
    latest = 0
    for record in records:
        latest = max(latest, record.timestamp)
        yield (latest, _NUMBER[record.stream]), record


_NUMBER = {stream: number for number, stream in enumerate(Stream)}
