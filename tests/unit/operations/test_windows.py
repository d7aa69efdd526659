"""The inputs in windows, and in order of time."""

from collections.abc import Mapping
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from streaming.kafka.reader import Partition, Span
from streaming.operations.verify.replay import StoredInput, in_order, windows
from streaming.records.model import Stream


class Log:
    """Partitions by the timestamps of their records, asked as a broker is."""

    def __init__(self, timestamps: Mapping[Partition, list[int]]) -> None:
        self._timestamps = timestamps

    def offsets_at(self, milliseconds: int, partitions: Mapping[Partition, int]) -> dict[Partition, int | None]:
        """Return the first offset of each partition at or after a time."""
        return {
            partition: next((o for o, time in enumerate(self._timestamps[partition]) if time >= milliseconds), None)
            for partition in partitions
        }


@given(seed=st.integers(0, 2**32), count=st.integers(0, 60), limit=st.integers(1, 20))
def test_windows_cover_each_record_once_and_are_small(seed: int, count: int, limit: int) -> None:
    """Also where timestamps go back; a window is too large only where one millisecond is."""
    random = Random(seed)
    where = [Partition("a", 0), Partition("a", 1), Partition("b", 0)]
    times: dict[Partition, list[int]] = {partition: [] for partition in where}
    for _ in range(count):
        times[random.choice(where)].append(random.randint(1, 30) * 1_000)
    spans = {partition: Span(0, max(0, len(times[partition]) - random.randint(0, 2))) for partition in where}
    read = dict.fromkeys(where, 0)
    for window in windows(Log(times).offsets_at, spans, limit):
        size = sum(span.end - span.start for span in window.values())
        assert size > 0
        latest = {max(times[partition][: span.end]) for partition, span in window.items() if span.end > span.start}
        assert size <= limit or len(latest) == 1, "not of one millisecond"
        for partition, span in window.items():
            assert span.start == read[partition]
            read[partition] = span.end
    assert read == {partition: span.end for partition, span in spans.items()}


def test_windows_are_cut_in_time_across_partitions() -> None:
    first, second = Partition("a", 0), Partition("b", 0)
    log = Log({first: [10, 20, 30], second: [15, 25, 35]})
    cuts = [
        {partition: span.end for partition, span in window.items()}
        for window in windows(log.offsets_at, {first: Span(0, 3), second: Span(0, 3)}, 2)
    ]
    assert cuts == [{first: 1, second: 1}, {first: 2, second: 2}, {first: 3, second: 3}]


def stored(stream: Stream, offset: int, timestamp: int, value: bytes = b"{}") -> StoredInput:
    return StoredInput(stream, 0, offset, timestamp, value)


def test_records_come_in_order_of_time_and_each_partition_in_its_own() -> None:
    topics = [stored(Stream.TOPICS, 0, 5), stored(Stream.TOPICS, 1, 2), stored(Stream.TOPICS, 2, 9)]
    groups = [stored(Stream.GROUPS, 0, 5), stored(Stream.GROUPS, 1, 7)]
    assert order_of(topics, groups) == [[
        (Stream.GROUPS, 0), (Stream.TOPICS, 0), (Stream.TOPICS, 1), (Stream.GROUPS, 1), (Stream.TOPICS, 2)
    ]]  # fmt: skip


def order_of(*partitions: list[StoredInput]) -> list[list[tuple[Stream, int]]]:
    return [[(record.stream, record.offset) for record in batch] for batch in in_order(partitions)]


def test_what_the_job_wrote_to_itself_stands_in_micro_batches_of_its_own() -> None:
    """So that a topic that comes after a wake-up is not there before it."""
    clock = [stored(Stream.CLOCK, 0, 3, b'{"tick":3}'), stored(Stream.CLOCK, 1, 4, b'{"wake":3,"parentTopic":"p"}')]
    topics = [stored(Stream.TOPICS, 0, 1), stored(Stream.TOPICS, 1, 8)]
    requests = [stored(Stream.SUBSCRIPTIONS, 0, 4, b'{"asOf":[0,0,0]}')]
    assert order_of(clock, topics, requests) == [
        [(Stream.TOPICS, 0), (Stream.CLOCK, 0)],
        [(Stream.SUBSCRIPTIONS, 0), (Stream.CLOCK, 1)],
        [(Stream.TOPICS, 1)],
    ]


def test_records_of_other_seconds_are_worked_off_one_after_the_other() -> None:
    """So that a quota counts the topics that were there before a request."""
    topics = [stored(Stream.TOPICS, number, time) for number, time in enumerate((100, 900, 1_100))]
    requests = [stored(Stream.SUBSCRIPTIONS, 0, 1_200)]
    assert order_of(topics, requests) == [
        [(Stream.TOPICS, 0), (Stream.TOPICS, 1)], [(Stream.TOPICS, 2), (Stream.SUBSCRIPTIONS, 0)]
    ]  # fmt: skip
