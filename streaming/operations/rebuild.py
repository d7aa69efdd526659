"""`reexpand rebuild`: create a checkpoint from the inputs for an existing updates topic, in repeatable stages."""

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count, repeat
from typing import Any, Final, NamedTuple

from streaming.config import Settings
from streaming.errors import NotVerified, RebuildFailed, RebuildRefused, TopicUnreadable
from streaming.kafka.facts import Offsets
from streaming.kafka.reader import Partition, Span, TopicReader, partition_of_record
from streaming.operations import adoption
from streaming.operations.checkpoint import JobCheckpoint, Progress
from streaming.operations.verify.findings import Fault, Findings
from streaming.operations.verify.session import Choices as VerifyChoices
from streaming.operations.verify.session import verify
from streaming.records.model import Source
from streaming.spark import positions, query, service
from streaming.spark.checkpoint import CheckpointFiles, absolute
from streaming.spark.notes import RebuildNote, Stage
from streaming.spark.query import InputProgress
from streaming.spark.states import StateReader
from streaming.storage import folder
from streaming.storage.folder import IDENTITY, QUERY
from streaming.worker.quarantine import NOTE
from streaming.worker.signature import Origin, Signer

log = logging.getLogger("reexpand")

_ROUNDS: Final = 5
"""Attempts to finish between two changes of the relation while producers run."""

ROUNDS: Final = 10
"""Rounds until every record that the job wrote in reaction to its inputs has been read. Backfills may take longer.

A chain of such records is at most this long: a tick ends a lease, a request makes a longer record of it.
"""

_TICK: Final = b'"tick"'
_STEP: Final = b'"wake":0'
"""Field of the records by which a shard wakes itself for the next step of a backfill."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Options of a rebuild: the checkpoint to replace, if it is not lost, and whether to start with its states."""

    former: str | None
    client: Mapping[str, str] = field(default_factory=dict)
    from_state: bool = False


def rebuild(settings: Settings, plan: Plan, progress: Progress) -> RebuildNote:
    """Create the checkpoint of the settings from the inputs, and write the differences to the updates topic.

    Stages are idempotent, so the same call resumes an interrupted rebuild.

    Raises:
        CheckpointUnusable: a checkpoint is not a folder, or cannot be read or written.
        RebuildRefused: a checkpoint is unsuitable.
        RebuildFailed: it was interrupted, or producers change the relation faster than it is compared.
        ReexpandError: see `streaming.spark.service.run`.
    """
    settings = settings.model_copy(update={"checkpoint": absolute(settings.checkpoint)})
    for location in (settings.checkpoint, plan.former):
        if location is not None:
            folder.check(location, writes=True)
    signal, begun = threading.Event(), time.monotonic()
    with service.started(settings, signal) as spark:
        files = CheckpointFiles(spark, settings.checkpoint)
        note = _taken_up(files, settings, plan)
        if note.stage is Stage.COMPLETE:
            return note
        with _held(spark, settings, plan) as check:
            run = _Rebuild(spark, settings, plan.client, signal, progress)
            former = JobCheckpoint(absolute(plan.former or ""))
            if note.stage is Stage.ADOPTING:
                adoption.check(settings, former)
            note.write(files)
            if plan.former is not None and not files.exists(NOTE):
                files.write(NOTE, former.quarantine.renewed().dump())  # the inputs still contain these entries
            if note.stage is Stage.ADOPTING:
                note = replace(note, begins_at=adoption.adopt(spark, settings, former, run.checked))
            adopted = positions.parse(note.begins_at) if note.begins_at else None
            found = run.until_settled(adopted, lambda stage: replace(note, stage=stage).write(files))
            check()
            if note.begins_at:
                adoption.forget(settings)
            done = replace(
                note,
                stage=Stage.COMPLETE,
                added=found.corrected[Fault.MISSING_UPDATE],
                removed=found.corrected[Fault.SURPLUS_UPDATE],
                rows=found.rows["state"] or 0,
                seconds=round(time.monotonic() - begun, 1),
            )
            if plan.former is not None:
                replaced = RebuildNote(Stage.REPLACED, successor=settings.checkpoint)
                replaced.write(CheckpointFiles(spark, former.location))
            done.write(files)
    return done


def _taken_up(files: CheckpointFiles, settings: Settings, plan: Plan) -> RebuildNote:
    """Return the note of an interrupted rebuild, or a new note; refuse others."""
    note = RebuildNote.read(files, settings.checkpoint)
    if note is None and (files.exists(IDENTITY) or files.exists(QUERY)):
        raise RebuildRefused(
            f"{settings.checkpoint} is the checkpoint of a job. Give --checkpoint for a new folder, and --former for "
            "the checkpoint to replace."
        )
    if note is None:
        return RebuildNote(Stage.ADOPTING if plan.from_state else Stage.READING, settings.updates)
    if note.stage is Stage.REPLACED:
        raise RebuildRefused(
            f"{settings.checkpoint} was replaced by {note.successor}. Give --checkpoint for a new folder."
        )
    if note.updates != settings.updates:
        raise RebuildRefused(
            f"{settings.checkpoint} is being rebuilt for the updates topic {note.updates}, not for {settings.updates}. "
            "Continue with that topic, or give --checkpoint for a new folder."
        )
    if plan.from_state != (note.stage is Stage.ADOPTING or bool(note.begins_at)):
        raise RebuildRefused(
            f"the rebuild of {settings.checkpoint} was started {'without' if plan.from_state else 'with'} "
            "--from-state. Continue the same way, or give --checkpoint for a new folder."
        )
    return note


@contextmanager
def _held(spark: Any, settings: Settings, plan: Plan) -> Iterator[Callable[[], None]]:
    """Hold the lease of the former checkpoint, and yield a function that raises if a job has taken it over.

    Raises:
        RebuildRefused: it is not a checkpoint, or another checkpoint has replaced it.
        CheckpointInUse: a job is running.
    """
    if plan.former is None:
        yield lambda: None
        return
    location = absolute(plan.former)
    if location == settings.checkpoint:
        raise RebuildRefused("--checkpoint and --former are the same; give --checkpoint for a new folder.")
    former = JobCheckpoint(location)
    try:
        checkpoint_id, clock = former.id, former.topics[-1]
    except NotVerified as error:
        raise RebuildRefused(f"{error} If the former checkpoint is lost, give --without-former.") from None
    note = RebuildNote.read(CheckpointFiles(spark, location), location)
    if note is not None and note.successor not in ("", settings.checkpoint):
        raise RebuildRefused(f"{location} was replaced by {note.successor}. Give --former {note.successor}.")
    if checkpoint_id is None:
        log.warning("the checkpoint %s is of a release without leases: make sure that its job has ended", location)
        yield lambda: None
        return
    held = settings.model_copy(update={"checkpoint": location, "clock": clock})
    with query.held(spark, held, checkpoint_id, former.partitions) as check:
        yield check


@dataclass(frozen=True, slots=True)
class _Rebuild:
    spark: Any
    settings: Settings
    client: Mapping[str, str]
    signal: threading.Event
    progress: Progress

    def until_settled(self, adopted: Offsets | None, enter: Callable[[Stage], None]) -> Findings:
        """Read and correct until no row is in flight, and return the corrections; begin at the `adopted` offsets."""
        corrected = Findings(0).corrected
        for _ in range(_ROUNDS):
            enter(Stage.READING)
            log.info("reading the inputs into %s", self.settings.checkpoint)
            self._read(adopted)
            # The updates of a planned micro-batch would count as written, because it was planned without updates.
            try:
                if JobCheckpoint(self.settings.checkpoint).micro_batches().begun is not None:
                    continue
            except NotVerified:
                raise RebuildRefused("the inputs have no records for a checkpoint.") from None
            enter(Stage.CORRECTING)
            log.info("comparing with %s", self.settings.updates)
            found = self._correct()
            corrected.update(found.corrected)
            if found.in_flight:
                continue
            if not found.is_right:
                raise RebuildFailed(
                    f"{self.settings.updates} differs from the new checkpoint after the correction. If another job "
                    "writes to it, stop that job, and run the same command again."
                )
            found.corrected = corrected
            return found
        raise RebuildFailed(
            f"the relation was changing at each of {_ROUNDS} comparisons. Run the same command again in a "
            "quieter hour: it resumes."
        )

    def _read(self, adopted: Offsets | None) -> None:
        settings = self.settings
        with TopicReader(settings.bootstrap_servers, self.client) as reader:
            topics = settings.clock, {settings.group_events, settings.subscription_events}
            # The signer is created when the query starts.
            look = partial(followed, reader, topics, lambda: JobCheckpoint(settings.checkpoint).signer)
            query.read_inputs(
                self.spark, settings, self.signal, lambda reading: settling(reading, look, self.checked), adopted
            )
        self._check_signal()

    def _correct(self) -> Findings:
        reader = StateReader(self.spark, self.settings.checkpoint)
        options = VerifyChoices(inputs=False, repair=True, client=self.client)
        try:
            return verify(self.settings, options, self.checked, lambda _: nullcontext(reader))
        except (NotVerified, TopicUnreadable) as error:
            raise RebuildFailed(f"{error} Run the same command again: it resumes.") from None

    def checked(self, what: str, done: int, of: int | None) -> None:
        self._check_signal()
        self.progress(what, done, of)

    def _check_signal(self) -> None:
        if self.signal.is_set():
            raise RebuildFailed("the rebuild was interrupted. Run the same command again: it resumes.")


class Followed(NamedTuple):
    """True if the job wrote records to itself in a part of the inputs, and if a backfill continues there."""

    own: bool
    steps: bool


def settling(
    reading: InputProgress, look: Callable[[Offsets, Offsets], Followed], progress: Progress
) -> Callable[[], bool]:
    """Return a check on a running query, to be called repeatedly: True if the query may end.

    The query first reads the records that existed at its start. Then a tick sets the current time. From then on the
    inputs are read in rounds, each up to their ends, until the job wrote no record to itself within a round. If other
    producers write continuously, `ROUNDS` rounds are enough. `look` inspects records between two positions.
    """

    def is_read(target: Offsets) -> bool:
        read = reading.read()
        ends = {(topic, number): end for topic, offsets in target.items() for number, end in offsets.items()}
        done = sum(min(end, read.get(topic, {}).get(number, 0)) for (topic, number), end in ends.items())
        progress("inputs", done, sum(ends.values()))
        return not positions.unread(target, read)

    def until_read(target: Offsets) -> Iterator[bool]:
        yield False
        while not is_read(target):
            yield False

    def checks(target: Offsets) -> Iterator[bool]:
        while not (is_read(target) and reading.has_told_present()):
            yield False
        target = reading.ends()  # after the tick, and before the records that follow from it
        yield from until_read(target)
        for rounds in count(1):
            former, target = target, reading.ends()
            yield from until_read(target)
            wrote = look(former, target)
            if not wrote.own or (rounds >= ROUNDS and not wrote.steps):
                break
        yield from repeat(True)

    return checks(reading.ends()).__next__


def followed(
    reader: TopicReader, topics: tuple[str, set[str]], signer: Callable[[], Signer | None], start: Offsets, end: Offsets
) -> Followed:
    """Return what a job wrote to its inputs between two positions.

    `topics` are the clock, and the other topics to which the job writes.
    """
    clock, events = topics
    spans = {
        Partition(topic, number): Span(start.get(topic, {}).get(number, 0), offset)
        for topic in (clock, *events)
        for number, offset in end[topic].items()
    }
    by, own, steps = signer(), False, False
    for block in reader.read(spans):
        for message in block:
            if message.topic() == clock:
                own = own or _TICK not in (message.value() or b"")
                steps = steps or _STEP in (message.value() or b"")
            elif not own:
                source = Source(*partition_of_record(message), message.offset() or 0, 0, 0)
                own = by is None or by.origin(message.value(), source) is Origin.OWN
    return Followed(own, steps)
