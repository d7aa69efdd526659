"""The settings with which a micro-batch was planned, noted in the checkpoint.

They determine the micro-batch's records. If it is written in part and not committed, it must be repeated with the same
settings: written records are skipped, and the state would follow other rules.
"""

import logging
from typing import Any, Final, NamedTuple

import orjson
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from streaming.config import Settings
from streaming.errors import CheckpointMismatch
from streaming.spark import checkpoint, kafka_admin
from streaming.spark.attend import Stop
from streaming.spark.checkpoint import Agreement, CheckpointFiles
from streaming.spark.kafka_admin import KafkaAdmin

log = logging.getLogger("reexpand")

NOTE: Final = "planned.json"
"""File of the checkpoint with the settings."""

DECIDING: Final = (
    "max_value_bytes",
    "max_requests",
    "max_entries",
    "max_name_bytes",
    "client_timeout_ms",
    "cap_requests",
)
"""Settings that decide results, and may differ from start to start."""


class Terms(NamedTuple):
    """Settings with which a query starts.

    Attributes:
        settings: the settings.
        through: number of the micro-batch after which the start's settings apply; None if they apply at once.
    """

    settings: Settings
    through: int | None = None

    def until(self, query: StreamingQuery, stop: Stop) -> Stop:
        """Return the request to end a query, also when that micro-batch is committed."""
        return stop if self.through is None else _Through(query, stop, self.through)


class _Through(NamedTuple):
    """Request to end a query when a micro-batch is committed, or for another reason."""

    query: StreamingQuery
    stop: Stop
    number: int

    def wait(self, timeout: float, /) -> bool:
        java: Any = self.query
        latest = java._jsq.lastProgress()  # noqa: SLF001 - PySpark's own objects ask the JVM for each field
        return self.stop.wait(timeout) or (latest is not None and latest.batchId() >= self.number)


def of(spark: SparkSession, settings: Settings, admin: KafkaAdmin, agreed: Agreement) -> Terms:
    """Return the settings with which the query starts, and note those with which it plans.

    Raises:
        CheckpointMismatch: the note cannot be read.
        KafkaUnavailable: no broker answers.
    """
    files = CheckpointFiles(spark, settings.checkpoint)
    wanted = {name: getattr(settings, name) for name in DECIDING}
    noted = _read(files, settings.checkpoint)
    if noted == wanted:
        return Terms(settings)
    progress = checkpoint.progress(spark, settings)
    number = progress.micro_batches - 1
    if noted and progress.planned != progress.read and _may_be_written(settings, admin, agreed, number):
        log.warning(
            "micro-batch %d is written in part, with %s: it is repeated with that first",
            number,
            ", ".join(f"{name}={noted[name]}" for name in DECIDING if noted[name] != wanted[name]),
        )
        return Terms(settings.model_copy(update=noted), number)
    files.write(NOTE, orjson.dumps(wanted, option=orjson.OPT_INDENT_2))
    return Terms(settings)


def _may_be_written(settings: Settings, admin: KafkaAdmin, agreed: Agreement, number: int) -> bool:
    written = kafka_admin.written(settings, admin, agreed.partition_names)
    return written is None or any(count > number for count in written)


def _read(files: CheckpointFiles, location: str) -> dict[str, Any] | None:
    """Return the noted settings; None in a checkpoint of a release without the note."""
    if not files.exists(NOTE):
        return None
    try:
        found = orjson.loads(files.read(NOTE))
        return {name: found[name] for name in DECIDING}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CheckpointMismatch(
            f"{location.rstrip('/')}/{NOTE} cannot be read: {error}. Restore it from a copy of the checkpoint, or "
            "delete it while the job is stopped, if the settings are those of the last start."
        ) from None
