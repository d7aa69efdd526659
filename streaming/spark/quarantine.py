"""Decisions of the driver to leave out entries that kill or hang workers; see `streaming.worker.quarantine`."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from streaming.config import Settings
from streaming.errors import EntriesLethal, JobFailed
from streaming.spark import checkpoint, kafka_admin
from streaming.spark.checkpoint import Agreement, CheckpointFiles, read_note
from streaming.spark.expand import Precautions
from streaming.spark.gateway import java_class
from streaming.spark.kafka_admin import KafkaAdmin
from streaming.worker.quarantine import MAX_PER_HOUR, NOTE, Decision, Quarantine, now_ms
from streaming.worker.rehearsal import lethal_entries

log = logging.getLogger("reexpand")

_STATE_PARTITION = "state_partition"


def read(files: CheckpointFiles, location: str) -> Quarantine:
    """Return the decisions of a checkpoint; raise `CheckpointMismatch`."""
    remedy = "Restore the file from a copy of the checkpoint."
    return read_note(files, location, NOTE, Quarantine.parse, remedy) or Quarantine.parse(None)


def precautions(spark: SparkSession, settings: Settings) -> Precautions:
    """Return the precautions of a query that is about to start, and note the start in the checkpoint.

    A planned micro-batch that is not committed may have ended the job, perhaps with its whole container. So the first
    start on it reads with bounded memory until the job ends: more such micro-batches may follow. At the second start,
    its keys are rehearsed.
    """
    files = CheckpointFiles(spark, settings.checkpoint)
    noted, progress = read(files, settings.checkpoint), checkpoint.progress(spark, settings)
    if progress.planned == progress.read:
        return Precautions(noted.unread(progress.read))
    repeated = noted.started(progress.micro_batches - 1)
    files.write(NOTE, repeated.dump())
    has_failed = repeated.starts > 1
    is_bounded = repeated.starts % 2 == 1  # other starts read as usual, in case the bounded source fails
    log.log(
        logging.WARNING if has_failed else logging.INFO,
        "start %d on micro-batch %d%s%s",
        repeated.starts,
        repeated.micro_batch,
        "; until the next start, records are read with bounded memory" if is_bounded else "",
        "; the work on its keys is tried first" if has_failed else "",
    )
    return Precautions(noted.unread(progress.read), repeated.micro_batch if has_failed else -1, is_bounded)


class FailureWatch:
    """Failures of a running query's tasks that name entries, as soon as Spark has them."""

    def __init__(self, query: StreamingQuery) -> None:
        java: Any = query
        self._session = java._jsq.sparkSession()  # noqa: SLF001 - PySpark does not expose it
        session: Any = SparkSession.getActiveSession()
        failures = java_class(session, "reexpand.TaskFailures")
        failures.listen(self._session.sparkContext(), f"{EntriesLethal.__name__}: ")
        self._take = failures.take

    def found(self) -> EntriesLethal | None:
        """Return the error of a task that names entries; None if there is none."""
        text = self._take()
        return None if text is None else lethal(text)


def lethal(text: str) -> EntriesLethal | None:
    """Return the error that names entries in a text of Spark; None if it is another failure."""
    named = lethal_entries(text)
    return None if named is None else EntriesLethal(named)


def leave_out(
    spark: SparkSession, settings: Settings, admin: KafkaAdmin, agreed: Agreement, error: EntriesLethal
) -> None:
    """Note that entries are left out, after the query; the caller has the lease.

    Raises:
        JobFailed: no entry is to blame, or too many are.
        KafkaUnavailable: no broker answers.
    """
    files = CheckpointFiles(spark, settings.checkpoint)
    noted = read(files, settings.checkpoint)
    if not error.entries:
        raise JobFailed(
            "the work on a key kills or hangs Python workers whatever entry is left out: its state or its memory is to "
            "blame. Give the machine more memory, or raise stall_seconds; the log names the attempts."
        )
    written = kafka_admin.written(settings, admin, agreed.partition_names) or []
    for details in error.entries:
        noted = _decided(noted, details, written)
    files.write(NOTE, noted.dump())


def _decided(noted: Quarantine, details: Mapping[str, Any], written: Sequence[int]) -> Quarantine:
    """Return the decisions with one about the entry of `lethal_entries`.

    `written` has the number of micro-batches that each state partition has written; it is empty if that is not known.
    """
    partition = int(details[_STATE_PARTITION])
    fields = {name: value for name, value in details.items() if name != _STATE_PARTITION}
    decision = Decision(**fields, decided=now_ms())
    former = noted.of(decision.place)
    if former is not None and partition not in former.exempt:
        return noted  # two tasks have found it at the same time
    exempt = tuple(number for number, count in enumerate(written) if count > decision.micro_batch)
    if partition in exempt or former is not None:
        raise JobFailed(
            f"the entry {decision.place} kills or hangs workers of state partition {partition}, which has "
            "already written this micro-batch with it. Give the machine more memory, or raise stall_seconds."
        )
    if noted.is_full(now_ms()):
        raise JobFailed(
            f"the job has left out {MAX_PER_HOUR} entries within an hour, so the machine is to blame rather than the "
            "entries: look at its memory, and at stall_seconds. `reexpand quarantine list` names the entries."
        )
    log.error(
        "left out the entry %s of micro-batch %d: %s. Its dead letter has the reason quarantined%s",
        decision.place,
        decision.micro_batch,
        decision.reason,
        f"; state partitions {', '.join(map(str, exempt))} had applied it" if exempt else "",
    )
    return noted.with_(replace(decision, exempt=exempt))
