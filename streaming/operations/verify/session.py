"""`reexpand verify`: compare a job's inputs, state and updates, and repair the updates on request.

The job may change a row at any time. So a correction is written only if a fresh state still requires it and the topic
has no newer record of the row; then the topic is read further. If the job wrote the row in between, its record is
written again after the correction. The job is authoritative.
"""

import logging
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, NamedTuple

from streaming.config import Settings
from streaming.errors import NotVerified
from streaming.expansion.compare import Announcer
from streaming.expansion.micro_batch import apply_events
from streaming.kafka.reader import Partition, Span, TopicReader, partition_of_record
from streaming.kafka.writer import Writer
from streaming.operations.checkpoint import JobCheckpoint, Progress
from streaming.operations.verify.comparison import JobView, Look, ShardPair, look, operation
from streaming.operations.verify.findings import DamagedState, Difference, Fault, Findings
from streaming.operations.verify.replay import Rules
from streaming.printable import counted
from streaming.records.model import Source
from streaming.records.op import Cause, Op
from streaming.records.subscribers import SubscriberKey
from streaming.records.writing import UpdateWriter
from streaming.spark import states
from streaming.state.shard_state import ShardState
from streaming.storage import folder as folders
from streaming.storage.journal import Key
from streaming.tuning import DEFAULT_TUNING
from streaming.worker.bounds import bounds_of
from streaming.worker.limits_note import Limits

log = logging.getLogger("reexpand")

_ROUNDS: Final = 5
"""Attempts at a repair: a running job may change the rows in between."""

_ANSWER_SECONDS: Final = 60.0

_NONE: Final = -1
"""Partition and offset of a record that does not exist."""


@dataclass(frozen=True, slots=True)
class Choices:
    """Options of a verification; no parents select all."""

    parents: frozenset[str] = frozenset()
    inputs: bool = True
    repair: bool = False
    client: Mapping[str, str] = field(default_factory=dict)


def verify(
    settings: Settings,
    options: Choices,
    progress: Progress,
    reading: Callable[[Settings], AbstractContextManager[states.StateReader]] = states.reading,
) -> Findings:
    """Compare inputs, state and updates of a job, which may run meanwhile.

    The settings have the address of Kafka, the checkpoint, and the names of the output topics; for checkpoints of
    earlier releases without `limits.json` also the limits of input records. All else is in the checkpoint.

    Raises:
        CheckpointUnusable: the checkpoint is not a folder, or cannot be read.
        NotVerified: the checkpoint cannot be read, or Kafka rejects a correction.
        TopicUnreadable: Kafka does not answer, or lacks a topic.
        SparkUnavailable: Spark, which reads the state, does not start.
    """
    folders.check(settings.checkpoint, writes=False)
    checkpoint = JobCheckpoint(settings.checkpoint)
    given = Limits(bounds_of(settings), settings.cap_requests)
    rules = Rules(
        checkpoint.topics,
        checkpoint.routing,
        checkpoint.inner_multi,
        options.parents,
        checkpoint.limits or (given,),
        checkpoint.signer,
        {each.place: each.exempt for each in checkpoint.quarantine.decisions},
        checkpoint.partitions,
    )
    checkpoint.micro_batches()  # raises early if there is nothing to verify
    with (
        TopicReader(settings.bootstrap_servers, options.client) as reader,
        TemporaryDirectory(prefix="reexpand-verify-") as temporary,
    ):
        reader.spans([*rules.topics, settings.updates])  # raises early if a topic is missing
        progress("the state: Spark starts", 0, None)
        with reading(settings) as stored:
            job = JobView(checkpoint, stored.values, reader, settings.updates, settings.dead_letters, rules)
            compare = partial(look, job, Path(temporary), progress)
            found = compare(inputs=options.inputs)
            again = partial(compare, inputs=False, doubted=found.findings.doubted)
            if found.findings.repairable and checkpoint.micro_batches() != found.moment.batches:
                found = _merged(found, again(), set())  # without differences that were in flight
            if options.repair and found.findings.repairable:
                found = _repaired(job, found, Corrector(job, settings.bootstrap_servers, options.client), again)
            return found.findings


def _repaired(job: JobView, found: Look, corrector: "Corrector", again: Callable[[], Look]) -> Look:
    """Write corrections and compare again, until nothing is left to correct."""
    written: set[bytes] = set()
    latest = found
    for attempt in range(_ROUNDS):
        corrected = corrector.correct(latest)
        written |= corrected
        log.info("round %d: %s corrected in %s", attempt + 1, counted(len(corrected), "row"), job.updates)
        latest = _merged(found, again(), written)
        if not latest.findings.repairable:
            break
    return latest


def _merged(first: Look, later: Look, written: set[bytes]) -> Look:
    """Return the later result for state and updates, with the differences that only the first can detect."""
    known = {difference.key: difference.fault for difference in first.findings.repairable}
    kept = [difference for difference in first.findings.differences if difference.key not in known]
    again = [difference for difference in later.findings.differences if difference.key in known]
    left = {difference.key for difference in again}
    findings = replace(
        first.findings,
        rows={**first.findings.rows, "updates": later.findings.rows["updates"]},
        differences=sorted([*kept, *again], key=lambda difference: difference.key),
        corrected=Counter(known[key] for key in written - left if key in known),
    )
    return Look(later.moment, later.ends, findings)


class Correction(NamedTuple):
    """Records that correct a row in its partition, if known: an ADD, or a REMOVE and its tombstone."""

    key: bytes
    values: tuple[bytes | None, ...]
    partition: int | None


def corrections(rules: Rules, updates: str, pair: ShardPair, differences: Iterable[Difference]) -> Iterator[Correction]:
    """Yield corrections of the differences of one shard that its state still requires."""
    wanted = {difference.key: difference for difference in differences}
    topics = {difference.row.lite_topic for difference in wanted.values()}
    held = {key: texts for key, _, texts in rules.held(pair.key, pair.state, topics)}
    coming = held.keys()
    if pair.after is not pair.state:
        coming = {key: texts for key, _, texts in rules.held(pair.key, pair.after, topics)}.keys()
    announcer = Announcer(apply_events(pair.state, (), rules.shard(*pair.key), DEFAULT_TUNING))
    writer = UpdateWriter(pair.key[0])
    for key, difference in wanted.items():
        holds = key in held
        is_right = holds == difference.updates and difference.fault is not Fault.WRONG_VALUE
        if is_right or holds != (key in coming):  # corrected meanwhile, or changing
            continue
        row, record = difference.row, difference.record
        source = Source(updates, _NONE, _NONE, 0, 0)
        patterns = held.get(key, [])
        if record is not None:
            source = Source(updates, record.partition, record.offset, 0, record.timestamp)
            if not holds and record.update is not None:
                found = record.update.get("patterns")
                patterns = [str(each) for each in found] if isinstance(found, list) else []
        update = announcer.update(
            Op.ADD if holds else Op.REMOVE,
            SubscriberKey(row.group, row.client_id, row.part),
            row.lite_topic,
            patterns,
            cause=Cause.REPAIRED,
            source=source,
        )
        if announcer.needs_bitmaps:
            update = announcer.with_bitmap(update)
        value = writer.record(update).value
        yield Correction(key, (value,) if holds else (value, None), record.partition if record is not None else None)


class Corrector:
    """Writer of corrections."""

    def __init__(self, job: JobView, bootstrap_servers: str, options: Mapping[str, str]) -> None:
        self._job = job
        self._own: dict[Partition, set[int]] = defaultdict(set)
        self._writer = Writer(bootstrap_servers, options, lambda why: NotVerified(f"{why}; repair again"))

    def correct(self, found: Look) -> set[bytes]:
        """Correct the differences that remain, and return the keys of their rows."""
        due = {each.key: each for each in self._due(found.findings.repairable)}
        checked_to = self._drop_renewed(due, found.ends)
        self._write(due.values())
        while again := self._overwritten(due, checked_to):
            self._write(again)
        return set(due)

    def _due(self, differences: Iterable[Difference]) -> Iterator[Correction]:
        job, by_shard = self._job, defaultdict[Key, list[Difference]](list)
        for difference in differences:
            row = difference.row
            by_shard[row.parent, job.rules.routing.shard_of(row.parent, row.lite_topic)].append(difference)
        if not by_shard:
            return
        for pair in job.shards(job.moment().batches):
            if isinstance(pair, DamagedState):
                by_shard.pop((pair.parent, pair.shard), None)
            elif pair.key in by_shard:
                yield from corrections(job.rules, job.updates, pair, by_shard.pop(pair.key))
        for key, left in by_shard.items():  # these shards have no state
            nothing = ShardState()
            yield from corrections(job.rules, job.updates, ShardPair(key, nothing, nothing), left)

    def _drop_renewed(self, due: dict[bytes, Correction], ends: Mapping[Partition, int]) -> dict[Partition, int]:
        """Drop the corrections of rows that have records after these offsets; return the new ends."""
        spans = {
            partition: Span(ends.get(partition, span.start), span.end)
            for partition, span in self._job.reader.spans([self._job.updates]).items()
        }
        for block in self._job.reader.read(spans):
            for message in block:
                due.pop(message.key() or b"", None)
        return {partition: span.end for partition, span in spans.items()}

    def _write(self, written: Iterable[Correction]) -> None:
        for key, values, partition in written:
            for value in values:
                self._writer.send(self._job.updates, value, key, partition)
        for where, offset in self._writer.flush(_ANSWER_SECONDS):
            self._own[where].add(offset)

    def _overwritten(self, due: Mapping[bytes, Correction], checked_to: dict[Partition, int]) -> list[Correction]:
        """Return the job's last records of rows that a correction has overwritten, from `checked_to` on."""
        words: dict[bytes, Correction] = {}
        lost: dict[bytes, Correction] = {}
        for block in self._job.reader.read(self._unchecked(checked_to)):
            for message in block:
                where, key = partition_of_record(message), message.key() or b""
                if key not in due:
                    continue
                if message.offset() in self._own[where]:
                    if key in words:
                        lost[key] = words[key]
                    continue
                lost.pop(key, None)
                value = message.value()
                former = words[key].values[:1] if key in words and operation(value) is None else ()
                words[key] = Correction(key, (*former, value), where.number)
        return list(lost.values())

    def _unchecked(self, checked_to: dict[Partition, int]) -> dict[Partition, Span]:
        """Return the spans from `checked_to` to beyond all corrections, and advance `checked_to`.

        An open transaction of the job hides all records after its first record.
        """
        deadline = time.monotonic() + _ANSWER_SECONDS
        while True:
            spans = self._job.reader.spans([self._job.updates])
            if all(max(own, default=-1) < spans[partition].end for partition, own in self._own.items()):
                break
            if time.monotonic() > deadline:
                raise NotVerified(f"a transaction on {self._job.updates} does not end; verify again after its end")
            time.sleep(0.1)
        found = {partition: Span(checked_to.get(partition, span.start), span.end) for partition, span in spans.items()}
        checked_to.update({partition: span.end for partition, span in spans.items()})
        return found
