"""`reexpand rebuild`: create a checkpoint from the inputs, in repeatable stages."""

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any, Final

from streaming.config import Settings
from streaming.errors import NotVerified, RebuildFailed, RebuildRefused, TopicUnreadable
from streaming.kafka.facts import Offsets
from streaming.kafka.reader import TopicReader
from streaming.operations.rebuild import adoption
from streaming.operations.rebuild.settling import Settling, looking
from streaming.operations.verify.findings import Fault, Findings
from streaming.operations.verify.progress import JobCheckpoint
from streaming.operations.verify.session import Choices as VerifyChoices
from streaming.operations.verify.session import verify
from streaming.operations.verify.witnesses import Progress
from streaming.spark import positions, service, silent
from streaming.spark.checkpoint import CheckpointFiles, absolute
from streaming.spark.rebuild_note import RebuildNote, Stage
from streaming.spark.states import StateReader
from streaming.storage import folder
from streaming.storage.folder import IDENTITY, QUERY
from streaming.worker.quarantine import NOTE

_ROUNDS: Final = 5
"""Attempts to finish between two changes of the relation while producers run."""

log = logging.getLogger("reexpand")


@dataclass(frozen=True, slots=True)
class Plan:
    """Options of a rebuild.

    Attributes:
        former: checkpoint to replace; None if it is lost.
        client: Kafka client options of librdkafka.
        from_state: start with the states of the former checkpoint, not at the beginning of the inputs.
    """

    former: str | None
    client: Mapping[str, str] = field(default_factory=dict)
    from_state: bool = False


def rebuild(settings: Settings, plan: Plan, progress: Progress) -> RebuildNote:
    """Create a checkpoint from the inputs, and write the differences to the updates topic.

    Stages are idempotent, so the same call resumes an interrupted rebuild.

    Args:
        settings: settings of the job, with the new checkpoint.
        plan: options.
        progress: called with the progress.

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
            run = _Rebuild(spark, settings, plan, signal, progress)
            if note.stage is Stage.ADOPTING:
                adoption.check(settings, run.former)
            note.write(files)
            if plan.former is not None and not files.exists(NOTE):
                files.write(NOTE, run.former.quarantine.renewed().dump())  # the inputs still contain these entries
            if note.stage is Stage.ADOPTING:
                note = replace(note, begins_at=run.adopt())
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
                former = CheckpointFiles(spark, absolute(plan.former))
                RebuildNote(Stage.REPLACED, successor=settings.checkpoint).write(former)
            done.write(files)
    return done


def _taken_up(files: CheckpointFiles, settings: Settings, plan: Plan) -> RebuildNote:
    """Return the note of an interrupted rebuild, or a new note.

    Raises:
        RebuildRefused: the checkpoint is not of this rebuild.
    """
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
    with silent.held(
        spark,
        settings.model_copy(update={"checkpoint": location, "clock": clock}),
        checkpoint_id,
        former.partitions,
    ) as check:
        yield check


class _Rebuild:
    """A rebuild on a checkpoint that no job uses."""

    def __init__(self, spark: Any, settings: Settings, plan: Plan, signal: threading.Event, progress: Progress) -> None:
        self._spark = spark
        self._settings = settings
        self._plan = plan
        self._signal = signal
        self._progress = progress
        self._checkpoint = JobCheckpoint(settings.checkpoint)

    @property
    def former(self) -> JobCheckpoint:
        """Checkpoint to replace."""
        return JobCheckpoint(absolute(self._plan.former or ""))

    def adopt(self) -> str:
        """Transfer the states of the former checkpoint, and return their offsets as JSON."""
        return adoption.adopt(self._spark, self._settings, self.former, self._checked)

    def until_settled(self, adopted: Offsets | None, enter: Callable[[Stage], None]) -> Findings:
        """Read and correct until no row is in flight, and return the corrections.

        Args:
            adopted: offsets of the transferred states; None if there are none.
            enter: stores a stage.
        """
        corrected = Findings(0).corrected
        for _ in range(_ROUNDS):
            enter(Stage.READING)
            log.info("reading the inputs into %s", self._settings.checkpoint)
            self._read(adopted)
            # The updates of a planned micro-batch would count as written, because it was planned without updates.
            if self._is_within_a_micro_batch():
                continue
            enter(Stage.CORRECTING)
            log.info("comparing with %s", self._settings.updates)
            found = self._correct()
            corrected.update(found.corrected)
            if found.in_flight:
                continue
            if not found.is_right:
                raise RebuildFailed(
                    f"{self._settings.updates} differs from the new checkpoint after the correction. If another job "
                    "writes to it, stop that job, and run the same command again."
                )
            found.corrected = corrected
            return found
        raise RebuildFailed(
            f"the relation was changing at each of {_ROUNDS} comparisons. Run the same command again in a "
            "quieter hour: it resumes."
        )

    def _is_within_a_micro_batch(self) -> bool:
        try:
            return self._checkpoint.micro_batches().begun is not None
        except NotVerified:
            raise RebuildRefused("the inputs have no records for a checkpoint.") from None

    def _read(self, adopted: Offsets | None) -> None:
        settings = self._settings
        with TopicReader(settings.bootstrap_servers, self._plan.client) as reader:
            # The signer is created when the query starts.
            look = looking(reader, settings.clock, {settings.group_events, settings.subscription_events},
                           lambda: JobCheckpoint(settings.checkpoint).signer)  # fmt: skip
            silent.read_inputs(
                self._spark,
                settings,
                self._signal,
                lambda reading: Settling(reading, look, self._checked),
                adopted,
            )
        self._check_signal()

    def _correct(self) -> Findings:
        reader = StateReader(self._spark, self._settings.checkpoint)
        options = VerifyChoices(inputs=False, repair=True, client=self._plan.client)
        try:
            return verify(self._settings, options, self._checked, lambda _: nullcontext(reader))
        except (NotVerified, TopicUnreadable) as error:
            raise RebuildFailed(f"{error} Run the same command again: it resumes.") from None

    def _checked(self, what: str, done: int, of: int | None) -> None:
        self._check_signal()
        self._progress(what, done, of)

    def _check_signal(self) -> None:
        if self._signal.is_set():
            raise RebuildFailed("the rebuild was interrupted. Run the same command again: it resumes.")
