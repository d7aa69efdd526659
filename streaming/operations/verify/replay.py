"""Process the inputs again in this process, by the rules of the job, in windows that fit into memory."""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from heapq import merge
from itertools import groupby
from math import inf
from pathlib import Path
from typing import Final, NamedTuple

import orjson

from streaming import coordinator, state
from streaming.errors import Rejected
from streaming.expansion import apply_events
from streaming.kafka.reader import Partition, Span
from streaming.records.model import Reason, Source, Stream
from streaming.records.routing import Routing, placed
from streaming.records.subscribers import SubscriberKey
from streaming.records.writing import TABLE_END, Tables, update_key
from streaming.state import Shard, ShardState
from streaming.state.holdings import holdings
from streaming.storage.archive import Folder
from streaming.storage.journal import Key
from streaming.tuning import DEFAULT_TUNING
from streaming.worker.limits_note import Limits
from streaming.worker.quarantine import partition_of
from streaming.worker.reading import KeyReader
from streaming.worker.rows import STREAMS, InputRow, InputRows, OutputKind, StreamTopics, position
from streaming.worker.signature import Origin, Signer
from streaming.worker.worker import Worker, WorkerConfig

STATE_CACHE_BYTES: Final = 256 * 1024 * 1024
"""Memory for decoded states."""

_NUMBERS = {stream: number for number, stream in enumerate(STREAMS)}

WINDOW_RECORDS: Final = 100_000
"""Maximum number of records in memory, unless more have the same timestamp."""

STEP_MS: Final = 1_000
"""Length of a micro-batch in milliseconds of record time."""

_END_OF_TIME: Final = 1 << 53
"""Upper bound of all timestamps, in milliseconds since the epoch."""

# Nothing is written, so wide requests need no backfill.
_TUNING = replace(DEFAULT_TUNING, backfill_topics=1 << 62, retained_micro_batches=0)


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


@dataclass(frozen=True, slots=True)
class Rules:
    """Settings of a job that affect how inputs are applied.

    Attributes:
        inner_multi: `**` is allowed inside a pattern.
        parents: parents to compare; empty: all.
        limits: limits of input records, latest last; empty: no limits.
        signer: signer of the job's records to itself; None: accept all records as the job's.
        left_out: state partitions that apply a quarantined entry anyway, by its place.
    """

    topics: StreamTopics
    routing: Routing
    inner_multi: bool
    parents: frozenset[str] = frozenset()
    limits: tuple[Limits, ...] = ()
    signer: Signer | None = None
    left_out: Mapping[tuple[str, int, int, int], Collection[int]] = field(default_factory=dict)
    partitions: int = 1

    @property
    def cap_requests(self) -> bool:
        """True if, by the latest limits, quotas refuse no requests."""
        return bool(self.limits) and self.limits[-1].cap_requests

    def concern(self, parent: str) -> bool:
        """Return True if a parent is compared."""
        return parent != coordinator.COORDINATOR and (not self.parents or parent in self.parents)

    def shard(self, parent: str, number: int) -> Shard:
        """Return a shard."""
        return Shard(parent, number, self.routing, self.inner_multi, self.cap_requests)

    def held(
        self, key: Key, state: ShardState, topics: Collection[str] | None = None
    ) -> Iterator[tuple[bytes, SubscriberKey, list[str]]]:
        """Yield the rows of a shard, of all or some topics: update key, subscriber, and the matching entries."""
        for topic, found in holdings(state, self.shard(*key)):
            if topics is None or topic in topics:
                for subscriber, texts in found.items():
                    group, client_id, part = subscriber
                    yield update_key(key[0], group, client_id, topic, part), subscriber, texts

    def rows(self, records: Iterable[StoredInput]) -> dict[Key, list[InputRow]]:
        """Return the input rows of each shard."""
        found: dict[Key, list[InputRow]] = defaultdict(list)
        for record in records:
            if self._is_beyond_bounds(record):
                continue
            stream, partition, offset, timestamp, value = record
            for parent, number, entry, payload in placed(stream, value, self.routing):
                exempt = self.left_out.get((self.topics[_NUMBERS[stream]], partition, offset, position(entry)))
                is_left_out = exempt is not None and partition_of(parent, number, self.partitions) not in exempt
                if self.concern(parent) and not is_left_out:
                    row = InputRow(_NUMBERS[stream], partition, offset, entry, timestamp, payload)
                    found[parent, number].append(row)
        return found

    def under(self, number: int) -> "Rules":
        """Return the rules with one of the limits."""
        return replace(self, limits=self.limits[number : number + 1])

    def limits_of(self, record: StoredInput) -> int:
        """Return the index of the limits with which the job read a record."""
        topic = self.topics[_NUMBERS[record.stream]]
        later = range(len(self.limits) - 1, 0, -1)
        return next((at for at in later if self.limits[at].apply_to(topic, record.partition, record.offset)), 0)

    def _is_beyond_bounds(self, record: StoredInput) -> bool:
        """Return True if a whole record exceeds its limits; records of the job have none."""
        value = record.value
        if not self.limits or value is None:
            return False
        bounds = self.limits[-1].bounds
        if len(value) > bounds.value_bytes:
            source = Source(self.topics[_NUMBERS[record.stream]], record.partition, record.offset, 0, record.timestamp)
            return self.signer is not None and self.signer.origin(value, source) is not Origin.OWN
        try:
            return record.stream is Stream.SUBSCRIPTIONS and bounds.explain_set(value) is not None
        except Rejected:  # not a JSON object, which is another dead letter
            return False

    def apply(self, state: ShardState, key: Key, rows: Iterable[InputRow]) -> None:
        """Apply input rows, in any order, to the state of a shard."""
        bounds = self.limits[-1].bounds if self.limits else None
        reader = KeyReader(*key, self.topics, inf, bounds=bounds, signer=self.signer)
        events = reader.read(InputRows.of(rows).ordered()).events
        state.apply(apply_events(state, events, self.shard(*key), _TUNING).delta)

    def worker(self, folder: str) -> Worker:
        """Return a worker whose parts are in a folder."""
        config = WorkerConfig(
            self.topics,
            self.routing,
            self.inner_multi,
            archives=Folder(folder),
            bounds=self.limits[-1].bounds if self.limits else None,
            signer=self.signer,
            state_cache_bytes=STATE_CACHE_BYTES,
            cap_requests=self.cap_requests,
        )
        return Worker(config, _TUNING)


class Replay:
    """States of all shards, computed from the inputs.

    The job's records to itself are among the inputs, so the coordinator is not computed.

    Args:
        rules: settings of the job.
        folder: folder for parts of the states.
        note: called with the input rows of the first shard of each parent, and the index of their limits.

    Attributes:
        refused: parent and group of each request that a quota refused.
    """

    def __init__(
        self, rules: Rules, folder: Path, note: Callable[[str, int, list[InputRow]], None] = lambda *_: None
    ) -> None:
        self._rules = rules
        self._folder = str(folder)
        self._note = note
        self._limits = 0
        self._worker = rules.under(0).worker(self._folder)
        self._states: dict[Key, bytes] = {}
        self._batch = 0
        self.refused: set[tuple[str, str]] = set()

    def feed(self, records: Iterable[StoredInput]) -> None:
        """Apply a micro-batch; several if the limits of its records differ."""
        by_limits: dict[int, list[StoredInput]] = defaultdict(list)
        for record in records:
            by_limits[self._rules.limits_of(record)].append(record)
        for number, own in sorted(by_limits.items()):
            rules = self._rules.under(number)
            if number != self._limits:  # rare: the job was restarted with other limits
                self._limits, self._worker = number, rules.worker(self._folder)
            self._batch += 1
            for key, rows in rules.rows(own).items():
                if key[1] == 0:  # each shard sees all requests
                    self._note(key[0], number, rows)
                self._work(key, rows)

    def _work(self, key: Key, rows: Iterable[InputRow]) -> None:
        steps = self._worker.work(*key, InputRows.of(rows), self._states.pop(key, None), batch=self._batch)
        column = Tables._fields.index("starts")  # of an output row with one record, its value
        while True:
            try:
                output = next(steps)
            except StopIteration as end:
                if end.value is not None:
                    self._states[key] = end.value
                return
            letters = (tables for kind, _, tables in output.rows if kind == OutputKind.DEAD_LETTER)
            self.refused.update(refused_requests(each.split(TABLE_END.encode())[column] for each in letters))

    def states(self) -> Iterator[tuple[Key, ShardState]]:
        """Yield the state of each shard, one at a time."""
        for key, data in self._states.items():
            yield key, read_state(self._worker, key, data)


def refused_requests(letters: Iterable[bytes | None]) -> Iterator[tuple[str, str]]:
    """Yield parent and group of each request that a quota refused, from dead letters."""
    for letter in letters:
        if letter is None or Reason.QUOTA_EXCEEDED.encode() not in letter:
            continue
        try:
            fields = orjson.loads(letter)
            request = orjson.loads(fields["original"])
            names = request["topic"], request["group"]
            if fields["reason"] == Reason.QUOTA_EXCEEDED and all(type(name) is str for name in names):
                yield names
        except (orjson.JSONDecodeError, KeyError, TypeError):  # about a topic, or truncated
            continue


def read_state(worker: Worker, key: Key, data: bytes | None) -> ShardState:
    """Return a separate copy of a shard's state; raise `StateError` if damaged."""
    decoded = ShardState(inner_multi=worker.config.inner_multi)
    state.replay(decoded, worker.states.open(key, data).journal.changes())
    return decoded


def windows(
    offsets_at: Callable[[int, Mapping[Partition, int]], Mapping[Partition, int | None]],
    spans: Mapping[Partition, Span],
    records: int = WINDOW_RECORDS,
) -> Iterator[dict[Partition, Span]]:
    """Yield consecutive windows, cut at points in time, with at most `records` records.

    A window is larger if a single millisecond has more records. See `TopicReader.offsets_at`.
    """
    position = {partition: span.start for partition, span in spans.items()}
    ends = {partition: span.end for partition, span in spans.items()}

    def cut_at(time: int) -> dict[Partition, int]:
        found = offsets_at(time, position)
        ats = {partition: ends[partition] if at is None else at for partition, at in found.items()}
        return {each: max(start, min(ends[each], ats[each])) for each, start in position.items()}

    def size(cut: Mapping[Partition, int]) -> int:
        return sum(cut.values()) - sum(position.values())

    low = 0
    while size(ends):
        cut = ends
        if size(ends) > records:  # the latest cut that is small enough, but with at least one record
            behind = bisect_right(range(_END_OF_TIME), records, low + 1, key=lambda time: size(cut_at(time)))
            low = behind - 1
            cut = cut_at(low)
            if not size(cut):
                cut, low = cut_at(behind), behind
        yield {partition: Span(position[partition], end) for partition, end in cut.items()}
        position = cut


def in_order(partitions: Iterable[Sequence[StoredInput]]) -> Iterator[list[StoredInput]]:
    """Yield the records of a window as micro-batches, in order of time and of each partition.

    A micro-batch contains the records of `STEP_MS`, like a job without lag: a quota counts the topics that existed
    before. Records of the job are in separate micro-batches: their effect depends on earlier records, and within a
    micro-batch the streams are read one after another.
    """
    ordered = merge(*map(_in_time, partitions), key=lambda placed: placed[:2])
    # A key that differs between consecutive micro-batches.
    for _, run in groupby(ordered, key=lambda placed: (placed[0] // STEP_MS, placed[2].is_of_job)):
        yield [record for *_, record in run]


def _in_time(records: Iterable[StoredInput]) -> Iterator[tuple[int, int, StoredInput]]:
    """Yield the records of a partition with the latest time so far, and the order of the streams within a moment."""
    latest = 0
    for record in records:
        latest = max(latest, record.timestamp)
        yield latest, _NUMBERS[record.stream], record
