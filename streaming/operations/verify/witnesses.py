"""Readers of the three sources of a relation, which fill the ledger: state, updates, inputs."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple, Protocol

import orjson
from confluent_kafka import Message

from streaming.errors import NotVerified, StateError, TopicMissing
from streaming.kafka.reader import Partition, Span, TopicReader, partition_of_record
from streaming.operations.checkpoint import JobCheckpoint, MicroBatches
from streaming.operations.verify.findings import DamagedState
from streaming.operations.verify.ledger import BOTH_STATES, Ledger, Says, UpdateMark
from streaming.operations.verify.replay import (
    Replay,
    Rules,
    StoredInput,
    in_order,
    read_state,
    refused_requests,
    windows,
    work_off,
)
from streaming.operations.verify.values import CONTRADICTORY, RequestLog, announced, name_of, stated
from streaming.records.model import Stream
from streaming.records.op import Op
from streaming.state import ShardState
from streaming.storage.store import Key
from streaming.worker import Worker
from streaming.worker.rows import STREAMS, InputRow

Progress = Callable[[str, int, int | None], None]
"""Callback with the source, the number of records or rows so far, and their total (None: unknown)."""

_ATTEMPTS: Final = 200
"""Attempts to read a moment while the job commits faster than Kafka returns the ends of topics."""

_ADD: Final = b'{"op":"ADD",'
_REMOVE: Final = b'{"op":"REMOVE",'


class States(Protocol):
    """Reader of the states of a job."""

    def values(self, micro_batch: int) -> Iterator[tuple[str, int, bytes]]:
        """Yield parent, number and state bytes of each key after a committed micro-batch."""


class Moment(NamedTuple):
    """A moment at which the state and the updates of a job correspond.

    Attributes:
        updates: offsets of the updates topic, with all records of committed micro-batches, and without records after
            the started micro-batch.
    """

    batches: MicroBatches
    updates: dict[Partition, Span]


@dataclass(frozen=True, slots=True)
class JobView:
    """A job to verify, with access to its data."""

    checkpoint: JobCheckpoint
    states: States
    reader: TopicReader
    updates: str
    dead_letters: str
    rules: Rules

    def moment(self) -> Moment:
        """Return the current moment."""
        for _ in range(_ATTEMPTS):
            committed = self.checkpoint.micro_batches().committed
            spans = self.reader.spans([self.updates])
            now = self.checkpoint.micro_batches()
            begun = now.committed if now.begun is None else now.begun
            if begun <= committed + 1:  # no later micro-batch had started when the ends were read
                return Moment(MicroBatches(committed, begun if begun > committed else None), spans)
        raise NotVerified("the job commits micro-batches faster than Kafka answers; verify it in a quieter hour")

    def begun(self, batches: MicroBatches) -> dict[Key, list[InputRow]]:
        """Return the input rows of the started micro-batch, by shard."""
        if batches.begun is None:
            return {}
        start, end = self.checkpoint.offsets(batches.committed), self.checkpoint.offsets(batches.begun)
        spans = {partition: Span(start.get(partition, 0), offset) for partition, offset in end.items()}
        return self.rules.rows(record for block in self.reader.read(spans) for record in map(self.stored, block))

    def stored(self, message: Message) -> StoredInput:
        """Return a record of an input stream."""
        stream = STREAMS[self.rules.topics.index(message.topic() or "")]
        return StoredInput(
            stream, message.partition() or 0, message.offset() or 0, message.timestamp()[1], message.value()
        )

    def shards(self, moment: Moment, folder: Path) -> Iterator["ShardPair | DamagedState"]:
        """Yield the state of each shard at a moment, one at a time; parts are written to an empty folder."""
        begun = self.begun(moment.batches)
        worker = self.rules.worker(folder, self.checkpoint.location)
        for parent, number, value in self.states.values(moment.batches.committed):
            if not self.rules.concern(parent):
                continue
            key, rows = (parent, number), begun.pop((parent, number), None)
            try:
                yield ShardPair(key, *self._pair(worker, key, value, rows))
            except StateError as error:
                yield DamagedState(parent, number, str(error))
        for key, rows in begun.items():
            yield ShardPair(key, *self._pair(worker, key, None, rows))

    def _pair(
        self, worker: Worker, key: Key, value: bytes | None, rows: list[InputRow] | None
    ) -> tuple[ShardState, ShardState]:
        state = read_state(worker, key, value)
        if rows is None and not state.backfills:
            return state, state
        after = read_state(worker, key, work_off(worker, key, rows, value) if rows else value)
        after.complete_backfills()
        return state, after


class ShardPair(NamedTuple):
    """State of a shard after the last committed micro-batch, and after all started work; often the same object."""

    key: Key
    state: ShardState
    after: ShardState


def hear_state(job: JobView, moment: Moment, ledger: Ledger, folder: Path, progress: Progress) -> list[DamagedState]:
    """Fill the ledger from the state, and return the damaged shards."""
    damaged = []
    for number, pair in enumerate(job.shards(moment, folder), 1):
        if isinstance(pair, DamagedState):
            damaged.append(pair)
        elif pair.after is pair.state:
            ledger.mark_values(stated(job.rules, pair.key, pair.state), BOTH_STATES)
        else:
            ledger.mark_values(stated(job.rules, pair.key, pair.state), Says.STATE)
            ledger.mark_values(stated(job.rules, pair.key, pair.after), Says.NEXT)
        progress("shards of the state", number, None)
    return damaged


def hear_updates(job: JobView, moment: Moment, ledger: Ledger, progress: Progress) -> tuple[dict[Partition, int], int]:
    """Fill the ledger from the updates topic; return its present end, and the number of records that are no updates."""
    spans = job.reader.spans([job.updates])
    foreign = 0
    total, done = sum(span.end - span.start for span in spans.values()), 0
    for block in job.reader.read(spans):
        marks = []
        for message in block:
            parent = _parent_of(message.key())
            op, where = operation(message.value()), partition_of_record(message)
            if parent is None or (op is None and message.value() is not None):
                foreign += 1
                continue
            if not job.rules.concern(parent):
                continue
            key, text = message.key() or b"", message.value()
            value = announced(name_of(key), text or b"") if op is Op.ADD else CONTRADICTORY
            offset, known = message.offset() or 0, moment.updates.get(where)
            is_late = known is None or offset >= known.end
            says = (Says.UPDATES if op is Op.ADD else 0) | (Says.LATE if is_late else 0)
            marks.append(UpdateMark(key, int(says), where.number, offset, text is None, value))
        ledger.fold(marks)
        done += len(block)
        progress("updates", done, total)
    return {partition: span.end for partition, span in spans.items()}, foreign


def operation(value: bytes | None) -> Op | None:
    """Return the operation of an update; None for a tombstone, or a record that is not an update."""
    if value is None:
        return None
    if value.startswith(_ADD):
        return Op.ADD
    if value.startswith(_REMOVE):
        return Op.REMOVE
    try:
        return Op(orjson.loads(value)["op"])
    except (orjson.JSONDecodeError, KeyError, TypeError, ValueError):
        return None


def _parent_of(key: bytes | None) -> str | None:
    """Return the parent of an update's row, or None if the key is not an update's."""
    try:
        names = orjson.loads(key or b"")
    except orjson.JSONDecodeError:
        return None
    if type(names) is not list or len(names) not in (4, 5) or set(map(type, names)) != {str}:
        return None
    return str(names[0])


def missing_input(job: JobView) -> str | None:
    """Return an input topic, except the clock, whose beginning is gone; None if there is none."""
    clock = job.rules.topics[STREAMS.index(Stream.CLOCK)]
    spans = job.reader.spans(job.rules.topics).items()
    return next((partition.topic for partition, span in spans if span.start and partition.topic != clock), None)


def hear_inputs(
    job: JobView, moment: Moment, ledger: Ledger, log: RequestLog, folder: Path, *, progress: Progress
) -> set[tuple[str, str]]:
    """Fill the ledger and the log from the inputs up to the last committed micro-batch.

    Returns parent and group of each request that a quota refused, now or in the job.
    """
    ends = job.checkpoint.offsets(moment.batches.committed)
    spans = job.reader.spans(job.rules.topics)
    wanted = {partition: Span(span.start, ends.get(partition, 0)) for partition, span in spans.items()}
    replay = Replay(job.rules, folder, log.note)
    total, done = sum(max(0, span.end - span.start) for span in wanted.values()), 0
    for window in windows(job.reader.offsets_at, wanted):
        partitions: dict[Partition, list[StoredInput]] = {partition: [] for partition in window}
        for block in job.reader.read(window):
            for message in block:
                partitions[partition_of_record(message)].append(job.stored(message))
        for batch in in_order(partitions.values()):
            replay.feed(batch)
            done += len(batch)
            progress("inputs", done, total)
    for key, state in replay.states():
        ledger.mark((row for row, _, _ in job.rules.held(key, state)), Says.INPUTS)
    refused = set(replay.refused)
    with suppress(TopicMissing):
        for block in job.reader.read(job.reader.spans([job.dead_letters])):
            refused.update(refused_requests(message.value() for message in block))
    return refused
