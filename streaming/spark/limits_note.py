"""The limits of input records, noted in the checkpoint for `reexpand verify`, which applies them again."""

from pyspark.sql import SparkSession

from streaming.config import Settings
from streaming.errors import CheckpointMismatch
from streaming.kafka.facts import Offsets
from streaming.spark import checkpoint
from streaming.spark.checkpoint import CheckpointFiles
from streaming.worker.bounds import bounds_of
from streaming.worker.limits_note import LIMITS, Limits, dump, parse


def write(spark: SparkSession, settings: Settings, adopted: Offsets | None = None) -> None:
    """Note the limits of the settings in the checkpoint, unless its latest limits are the same.

    A checkpoint that a former release has begun has no note: its former limits are assumed to be the present limits.

    Args:
        spark: session of the job.
        settings: settings of the job.
        adopted: positions that the states have read with which a new checkpoint begins; None if it has none.

    Raises:
        CheckpointMismatch: the note cannot be read.
    """
    files = CheckpointFiles(spark, settings.checkpoint)
    known = _read(files, settings) if files.exists(LIMITS) else ()
    limits = Limits(bounds_of(settings), settings.cap_requests)
    if known and known[-1].equal(limits):
        return
    since = {} if not known else checkpoint.progress(spark, settings).read or adopted or {}
    former = [each for each in known if each.since != since]  # under these, no record was read
    files.write(LIMITS, dump([*former, limits._replace(since=since)]))


def _read(files: CheckpointFiles, settings: Settings) -> tuple[Limits, ...]:
    try:
        return parse(files.read(LIMITS))
    except (OSError, ValueError) as error:
        raise CheckpointMismatch(
            f"{settings.checkpoint.rstrip('/')}/{LIMITS} cannot be read: {error}. Restore the file from a copy of the "
            "checkpoint, or delete it while the job is stopped: the job then writes a new one."
        ) from None
