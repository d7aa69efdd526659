"""`reexpand rebuild`: from the inputs to a checkpoint that a job can start on, in stages that can be repeated."""

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
from streaming.quarantine.decisions import NOTE
from streaming.spark import positions, service, silent
from streaming.spark.checkpoint import CheckpointFiles, absolute
from streaming.spark.rebuild_note import RebuildNote, Stage
from streaming.spark.states import StateReader
from streaming.storage import folder
from streaming.storage.layout import IDENTITY, QUERY

_ROUNDS: Final = 5
"""Attempts to end between two changes of the relation, beside producers that go on."""

log = logging.getLogger("reexpand")


@dataclass(frozen=True, slots=True)
class Plan:
    """Choices of a rebuild.

    Attributes:
        former: checkpoint that the new one replaces; None if it is lost.
        client: Kafka client options, in the names of librdkafka.
        from_state: begin with the states of the former checkpoint instead of the beginning of the inputs.
    """

    former: str | None
    client: Mapping[str, str] = field(default_factory=dict)
    from_state: bool = False


def rebuild(settings: Settings, plan: Plan, progress: Progress) -> RebuildNote:
    """Make a checkpoint from the inputs, write the differences to the updates topic, and return what was done.

    Each stage can be repeated, so the same call goes on after an interruption.

    Args:
        settings: settings of the job, with the new checkpoint.
        plan: choices.
        progress: called now and then.

    Raises:
        CheckpointUnusable: a checkpoint is no folder, or may not be read or written.
        RebuildRefused: a checkpoint is not what the rebuild needs.
        RebuildFailed: it was interrupted, or producers change the relation faster than it is compared.
        ReexpandError: as `streaming.spark.service.run` says.
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
                files.write(NOTE, run.former.quarantine.renewed().dump())  # the inputs hold these entries still
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
                added=found.mended[Fault.MISSING_UPDATE],
                removed=found.mended[Fault.SURPLUS_UPDATE],
                rows=found.rows["state"] or 0,
                seconds=round(time.monotonic() - begun, 1),
            )
            if plan.former is not None:
                former = CheckpointFiles(spark, absolute(plan.former))
                RebuildNote(Stage.REPLACED, successor=settings.checkpoint).write(former)
            done.write(files)
    return done


def _taken_up(files: CheckpointFiles, settings: Settings, plan: Plan) -> RebuildNote:
    """Return the note of a rebuild that goes on, or a new one.

    Raises:
        RebuildRefused: the checkpoint is another one.
    """
    note = RebuildNote.read(files, settings.checkpoint)
    if note is None and (files.exists(IDENTITY) or files.exists(QUERY)):
        raise RebuildRefused(
            f"{settings.checkpoint} is the checkpoint of a job. Give --checkpoint for a new folder, and --former for "
            "the checkpoint that it is to replace."
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
            "Go on with that one, or give --checkpoint for a new folder."
        )
    if plan.from_state != (note.stage is Stage.ADOPTING or bool(note.begins_at)):
        raise RebuildRefused(
            f"the rebuild of {settings.checkpoint} was begun {'without' if plan.from_state else 'with'} --from-state. "
            "Go on in the same way, or give --checkpoint for a new folder."
        )
    return note


@contextmanager
def _held(spark: Any, settings: Settings, plan: Plan) -> Iterator[Callable[[], None]]:
    """Keep jobs from the former checkpoint; the context is a function that raises an error if one came by force.

    Raises:
        RebuildRefused: it is no checkpoint, or was replaced by another one.
        CheckpointInUse: a job lives.
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
        raise RebuildRefused(f"{error} If the former checkpoint is lost, say --without-former.") from None
    note = RebuildNote.read(CheckpointFiles(spark, location), location)
    if note is not None and note.successor not in ("", settings.checkpoint):
        raise RebuildRefused(f"{location} was replaced by {note.successor}. Give --former {note.successor}.")
    if checkpoint_id is None:
        log.warning("the checkpoint %s is of a release without leases: see to it that its job has ended", location)
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
    """A rebuild on a checkpoint that no job works on."""

    def __init__(self, spark: Any, settings: Settings, plan: Plan, signal: threading.Event, progress: Progress) -> None:
        self._spark = spark
        self._settings = settings
        self._plan = plan
        self._signal = signal
        self._progress = progress
        self._checkpoint = JobCheckpoint(settings.checkpoint)

    @property
    def former(self) -> JobCheckpoint:
        """Checkpoint that the new one replaces."""
        return JobCheckpoint(absolute(self._plan.former or ""))

    def adopt(self) -> str:
        """Take over the states of the former checkpoint, and return the positions that they have read, as JSON."""
        return adoption.adopt(self._spark, self._settings, self.former, self._checked)

    def until_settled(self, adopted: Offsets | None, enter: Callable[[Stage], None]) -> Findings:
        """Read and correct until no row is about to change, and return what was corrected.

        Args:
            adopted: positions that the states have read with which the checkpoint begins; None if it has none.
            enter: notes a stage.
        """
        mended = Findings(0).mended
        for _ in range(_ROUNDS):
            enter(Stage.READING)
            log.info("reading the inputs into %s", self._settings.checkpoint)
            self._read(adopted)
            # What a planned micro-batch has to write would count as written: it was planned without updates.
            if self._is_within_a_micro_batch():
                continue
            enter(Stage.CORRECTING)
            log.info("comparing with %s", self._settings.updates)
            found = self._correct()
            mended.update(found.mended)
            if found.in_flight:
                continue
            if not found.is_right:
                raise RebuildFailed(
                    f"{self._settings.updates} differs from the new checkpoint after the correction: does another job "
                    "write to it? End that job, and run the same command again."
                )
            found.mended = mended
            return found
        raise RebuildFailed(
            f"the relation was about to change at each of {_ROUNDS} looks. Run the same command again in a quieter "
            "hour: it goes on."
        )

    def _is_within_a_micro_batch(self) -> bool:
        try:
            return self._checkpoint.micro_batches().begun is not None
        except NotVerified:
            raise RebuildRefused("the inputs hold no record from which a checkpoint could be made.") from None

    def _read(self, adopted: Offsets | None) -> None:
        settings = self._settings
        with TopicReader(settings.bootstrap_servers, self._plan.client) as reader:
            # The signer is made when the query begins.
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
            raise RebuildFailed(f"{error} Run the same command again: it goes on.") from None

    def _checked(self, what: str, done: int, of: int | None) -> None:
        self._check_signal()
        self._progress(what, done, of)

    def _check_signal(self) -> None:
        if self._signal.is_set():
            raise RebuildFailed("the rebuild was interrupted. Run the same command again: it goes on.")
