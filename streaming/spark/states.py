"""Reader of a job's state in its checkpoint, independent of the job."""

from collections.abc import Iterator
from contextlib import contextmanager

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from streaming.config import Settings
from streaming.errors import StateCorrupted
from streaming.spark import session
from streaming.spark.checkpoint import absolute, for_java
from streaming.storage.folder import QUERY

_PARTITIONS = 2
"""Number of shuffle partitions of the session, which shuffles nothing."""


class StateReader:
    """Reader of Spark's state store, of one checkpoint."""

    def __init__(self, spark: SparkSession, checkpoint: str) -> None:
        self._spark = spark
        _ = spark.streams.active  # Spark's state stores report to a part of it, which otherwise does not exist
        self._query = f"{for_java(checkpoint).rstrip('/')}/{QUERY}"

    def values(self, micro_batch: int) -> Iterator[tuple[str, int, bytes]]:
        """Yield parent, number and state bytes of each key after a micro-batch.

        Raises `StateCorrupted` if Spark cannot read its state, or has deleted that of this committed micro-batch.
        """
        try:
            stored = self._spark.read.format("statestore").option("batchId", micro_batch).load(self._query)
            rows = stored.select("key.parent", "key.shard", "value.groupState.value")
            for parent, number, value in rows.toLocalIterator(prefetchPartitions=False):
                yield parent, number, bytes(value)
        except (PySparkException, Py4JError) as error:
            reason = str(error).strip().partition("\n")[0]
            raise StateCorrupted(
                f"Spark cannot read the state after micro-batch {micro_batch} in {self._query}: {reason}"
            ) from error


@contextmanager
def reading(settings: Settings) -> Iterator[StateReader]:
    """Start Spark on this machine to read the states of a checkpoint; raise `SparkUnavailable` if it does not start."""
    checkpoint = absolute(settings.checkpoint)
    local = settings.model_copy(update={"checkpoint": checkpoint, "master": None})
    spark = session.build(local, _PARTITIONS)
    try:
        yield StateReader(spark, checkpoint)
    finally:
        spark.stop()
