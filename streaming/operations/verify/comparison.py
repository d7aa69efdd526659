"""Compare the inputs, the state and the updates of a job, and classify each difference."""

from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, NamedTuple

import orjson
from confluent_kafka import Message

from streaming.client.rows import read_key
from streaming.errors import Malformed, NotVerified, StateCorrupted, StateError, TopicMissing
from streaming.kafka.reader import Partition, Span, TopicReader, partition_of_record
from streaming.operations.checkpoint import JobCheckpoint, MicroBatches, Progress
from streaming.operations.verify import replay, values
from streaming.operations.verify.findings import DamagedState, Difference, Fault, Findings, UpdateRecord
from streaming.operations.verify.ledger import BOTH_STATES, Ledger, LedgerRow, Says, UpdateMark
from streaming.operations.verify.replay import Replay, Rules, StoredInput, read_state
from streaming.operations.verify.values import CONTRADICTORY, name_of
from streaming.printable import counted
from streaming.records.model import Stream
from streaming.records.op import Op
from streaming.state import ShardState
from streaming.state.delta import carried_out
from streaming.storage.journal import Key
from streaming.tuning import DEFAULT_TUNING
from streaming.worker.rows import STREAMS, InputRow

_MOMENTS: Final = 200
"""Attempts to read a moment while the job commits faster than Kafka returns the ends of topics."""

_STATES: Final = 3
"""Attempts to read a state before Spark deletes it."""

_KEPT_MICRO_BATCHES: Final = DEFAULT_TUNING.retained_micro_batches // 2
"""Micro-batches that the job may commit while a state is read, without deleting it."""

_ADD: Final = b'{"op":"ADD",'
_REMOVE: Final = b'{"op":"REMOVE",'


class Moment(NamedTuple):
    """A moment at which the state and the updates of a job correspond.

    The updates have all records of committed micro-batches, and no records after the started micro-batch.
    """

    batches: MicroBatches
    updates: dict[Partition, Span]


class ShardPair(NamedTuple):
    """State of a shard after the last committed micro-batch, and after all started work; often the same object."""

    key: Key
    state: ShardState
    after: ShardState


@dataclass(frozen=True, slots=True)
class JobView:
    """A job to verify, with access to its data.

    Attributes:
        values: returns parent, number and state bytes of each key after a committed micro-batch.
    """

    checkpoint: JobCheckpoint
    values: Callable[[int], Iterator[tuple[str, int, bytes]]]
    reader: TopicReader
    updates: str
    dead_letters: str
    rules: Rules

    def moment(self) -> Moment:
        """Return the current moment."""
        for _ in range(_MOMENTS):
            committed = self.checkpoint.micro_batches().committed
            spans = self.reader.spans([self.updates])
            now = self.checkpoint.micro_batches()
            begun = now.committed if now.begun is None else now.begun
            if begun <= committed + 1:  # no later micro-batch had started when the ends were read
                return Moment(MicroBatches(committed, begun if begun > committed else None), spans)
        raise NotVerified("the job commits micro-batches faster than Kafka answers; verify it in a quieter hour")

    def shards(self, batches: MicroBatches) -> Iterator[ShardPair | DamagedState]:
        """Yield the state of each shard, one at a time."""
        begun = self._begun(batches)
        worker = self.rules.worker(self.checkpoint.location)
        for parent, number, value in self.values(batches.committed):
            if not self.rules.concern(parent):
                continue
            key = parent, number
            rows = begun.pop(key, [])
            try:
                state = after = read_state(worker, key, value)
                if rows or state.backfills:
                    after = self._after(key, read_state(worker, key, value), rows)
            except StateError as error:
                yield DamagedState(parent, number, str(error))
            else:
                yield ShardPair(key, state, after)
        for key, rows in begun.items():
            yield ShardPair(key, read_state(worker, key, None), self._after(key, read_state(worker, key, None), rows))

    def _begun(self, batches: MicroBatches) -> dict[Key, list[InputRow]]:
        if batches.begun is None:
            return {}
        start, end = self.checkpoint.offsets(batches.committed), self.checkpoint.offsets(batches.begun)
        spans = {partition: Span(start.get(partition, 0), offset) for partition, offset in end.items()}
        return self.rules.rows(record for block in self.reader.read(spans) for record in map(self.stored, block))

    def _after(self, key: Key, state: ShardState, rows: list[InputRow]) -> ShardState:
        self.rules.apply(state, key, rows)
        state.apply(carried_out(state.backfills))
        return state

    def stored(self, message: Message) -> StoredInput:
        """Return a record of an input stream."""
        stream = STREAMS[self.rules.topics.index(message.topic() or "")]
        return StoredInput(
            stream, message.partition() or 0, message.offset() or 0, message.timestamp()[1], message.value()
        )


@dataclass(frozen=True, slots=True)
class Look:
    """Result of one comparison, and the end of the updates that were read."""

    moment: Moment
    ends: dict[Partition, int]
    findings: Findings


def look(job: JobView, folder: Path, progress: Progress, *, inputs: bool, doubted: Collection[bytes] = ()) -> Look:
    """Compare the sources once. Rows in `doubted` had a wrong value before.

    Raises:
        NotVerified: the job has not committed a micro-batch, or its checkpoint cannot be read.
        TopicUnreadable: Kafka does not answer, or lacks a topic.
    """

    def is_decided(row: LedgerRow) -> bool:
        return row.said == CONTRADICTORY or row.key in doubted

    notes = []
    with TemporaryDirectory(dir=folder) as temporary, Ledger(Path(temporary) / "rows.sqlite") as ledger:
        moment, damaged = _read_state(job, ledger, progress)
        ends, foreign = _read_updates(job, moment, ledger, progress)
        wrong = list(filter(is_decided, ledger.doubts()))
        missing = _missing_input(job) if inputs else None
        if missing is not None:
            notes.append(f"the beginning of {missing} is gone, so only state and updates are compared")
        if foreign:
            notes.append(f"{counted(foreign, 'record')} of the updates topic cannot be parsed as updates: ignored")
        refused = None
        if inputs and missing is None:
            clients = {values.ClientName(*name_of(row.key)[:3]) for row in ledger.doubts() if not is_decided(row)}
            with values.RequestLog(Path(temporary) / "requests.sqlite", clients) as log:
                refused = _read_inputs(job, moment, ledger, Replay(job.rules, Path(temporary), log.note), progress)
                rows = (row for row in ledger.doubts() if not is_decided(row))
                wrong += values.unexplained(
                    job.rules, log, (row for row in rows if name_of(row.key)[:2] not in refused)
                )
        found = _differences(job, ledger, damaged, wrong, refused)
        counts = ledger.counts()
        findings = Findings(
            moment.batches.committed,
            {
                "inputs": None if refused is None else counts[Says.INPUTS],
                "state": counts[Says.STATE],
                "updates": counts[Says.UPDATES],
            },
            ledger.count_in_flight(),
            _with_records(job, found),
            damaged,
            notes,
        )
    return Look(moment, ends, findings)


def _read_state(job: JobView, ledger: Ledger, progress: Progress) -> tuple[Moment, list[DamagedState]]:
    """Fill the ledger from the state, again if Spark deleted it because the job committed too much meanwhile."""
    attempt = 0
    while True:
        attempt += 1
        moment = job.moment()
        ledger.clear()
        damaged = []
        try:
            for number, pair in enumerate(job.shards(moment.batches), 1):
                if isinstance(pair, DamagedState):
                    damaged.append(pair)
                else:
                    is_still = pair.after is pair.state
                    ledger.mark(values.stated(job.rules, pair.key, pair.state), BOTH_STATES if is_still else Says.STATE)
                    if not is_still:
                        ledger.mark(values.stated(job.rules, pair.key, pair.after), Says.NEXT)
                progress("shards of the state", number, None)
        except StateCorrupted as error:
            damaged = [DamagedState("", -1, str(error))]
        went_on = job.checkpoint.micro_batches().committed - moment.batches.committed
        if not damaged or went_on < _KEPT_MICRO_BATCHES or attempt == _STATES:
            return moment, damaged


def _read_updates(job: JobView, moment: Moment, ledger: Ledger, progress: Progress) -> tuple[dict[Partition, int], int]:
    """Fill the ledger from the updates topic; return its present end, and the number of records that are no updates."""
    spans = job.reader.spans([job.updates])
    foreign = 0
    total, done = sum(span.end - span.start for span in spans.values()), 0
    for block in job.reader.read(spans):
        marks = []
        for message in block:
            key, text = message.key() or b"", message.value()
            parent, op, where = _parent_of(key), operation(text), partition_of_record(message)
            if parent is None or (op is None and text is not None):
                foreign += 1
                continue
            if not job.rules.concern(parent):
                continue
            value = values.announced(name_of(key), text or b"") if op is Op.ADD else CONTRADICTORY
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


def _parent_of(key: bytes) -> str | None:
    """Return the parent of an update's row, or None if the key is not an update's."""
    try:
        return read_key(key)[0].parent
    except Malformed:
        return None


def _missing_input(job: JobView) -> str | None:
    """Return an input topic, except the clock, whose beginning is gone; None if there is none."""
    clock = job.rules.topics[STREAMS.index(Stream.CLOCK)]
    spans = job.reader.spans(job.rules.topics).items()
    return next((partition.topic for partition, span in spans if span.start and partition.topic != clock), None)


def _read_inputs(
    job: JobView, moment: Moment, ledger: Ledger, replayed: Replay, progress: Progress
) -> set[tuple[str, str]]:
    """Fill the ledger from the inputs up to the last committed micro-batch.

    Returns parent and group of each request that a quota refused, now or in the job.
    """
    ends = job.checkpoint.offsets(moment.batches.committed)
    spans = job.reader.spans(job.rules.topics)
    wanted = {partition: Span(span.start, ends.get(partition, 0)) for partition, span in spans.items()}
    total, done = sum(max(0, span.end - span.start) for span in wanted.values()), 0
    for window in replay.windows(job.reader.offsets_at, wanted):
        partitions: dict[Partition, list[StoredInput]] = {partition: [] for partition in window}
        for block in job.reader.read(window):
            for message in block:
                partitions[partition_of_record(message)].append(job.stored(message))
        for batch in replay.in_order(partitions.values()):
            replayed.feed(batch)
            done += len(batch)
            progress("inputs", done, total)
    for key, state in replayed.states():
        ledger.mark(((row, None) for row, _, _ in job.rules.held(key, state)), Says.INPUTS)
    refused = set(replayed.refused)
    with suppress(TopicMissing):
        for block in job.reader.read(job.reader.spans([job.dead_letters])):
            refused.update(replay.refused_requests(message.value() for message in block))
    return refused


def _differences(
    job: JobView,
    ledger: Ledger,
    damaged: Iterable[DamagedState],
    wrong: Iterable[LedgerRow],
    refused: Collection[tuple[str, str]] | None,
) -> list[Difference]:
    """Return the differences in order of their keys. `refused` is None if the inputs were not read."""
    lost = {(each.parent, each.shard) for each in damaged}

    def difference(row: LedgerRow, fault: Fault | None = None) -> Difference | None:
        name = name_of(row.key)
        inputs = None if refused is None else bool(row.says & Says.INPUTS)
        state: bool | None = bool(row.says & Says.STATE)
        updates = bool(row.says & Says.UPDATES)
        if fault is None:
            shard = name.parent, job.rules.routing.shard_of(name.parent, name.lite_topic)
            if not lost.isdisjoint((shard, ("", -1))):
                state = None
                fault = None if inputs in (None, updates) else Fault.STATE_DAMAGED
            elif inputs in (None, state):
                fault = Fault.SURPLUS_UPDATE if updates else Fault.MISSING_UPDATE
            else:
                fault = Fault.QUOTA_ORDER if name[:2] in (refused or ()) else Fault.STATE_DIFFERS
        place = None if row.last is None else UpdateRecord(*row.last, 0, None)
        return None if fault is None else Difference(row.key, name, fault, inputs, state, updates, place)

    found = {row.key: difference(row, Fault.WRONG_VALUE) for row in wrong}
    found |= {row.key: difference(row) for row in ledger.disagreements(inputs=refused is not None)}
    return sorted(filter(None, found.values()), key=lambda each: each.key)


def _with_records(job: JobView, differences: list[Difference]) -> list[Difference]:
    """Return the differences with the last record of each row in the updates topic; compaction may have removed it."""
    wanted = {each.record[:2] for each in differences if each.record is not None}
    spans: dict[Partition, Span] = {}
    for number, offset in wanted:
        where = Partition(job.updates, number)
        start, end = spans.get(where, Span(offset, offset + 1))
        spans[where] = Span(min(start, offset), max(end, offset + 1))
    found: dict[tuple[int, int], UpdateRecord] = {}
    for block in job.reader.read(spans):
        for message in block:
            place = message.partition() or 0, message.offset() or 0
            if place in wanted:
                found[place] = UpdateRecord(*place, message.timestamp()[1], _update(message.value()))
    return [each if each.record is None else replace(each, record=found.get(each.record[:2])) for each in differences]


def _update(value: bytes | None) -> dict[str, Any] | None:
    """Return an update, or an empty one if the value is not a JSON object."""
    if value is None:
        return None
    try:
        update = orjson.loads(value)
    except orjson.JSONDecodeError:
        return {}
    return update if isinstance(update, dict) else {}
