"""Reader of a job's state in its checkpoint, independent of the job."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from streaming.config import Settings
from streaming.errors import StateCorrupted
from streaming.spark import session
from streaming.spark.checkpoint import absolute, for_java
from streaming.storage.folder import QUERY, local_path

_PARTITIONS = 2
"""Number of shuffle partitions of the session, which shuffles nothing."""

_ENCODED: Final = re.compile(r"[^\w/.~!$&'()*+,;=:@-]")
"""Characters of a path that a URI encodes, such as spaces. Spark's reader of states encodes them, and never decodes."""


class StateReader:
    """Reader of Spark's state store, of one checkpoint."""

    def __init__(self, spark: SparkSession, checkpoint: str) -> None:
        self._spark = spark
        _ = spark.streams.active  # Spark's state stores report to a part of it, which otherwise does not exist
        self._query = f"{for_java(checkpoint).rstrip('/')}/{QUERY}"
        self._folder = local_path(checkpoint)

    def values(self, micro_batch: int) -> Iterator[tuple[str, int, bytes]]:
        """Yield parent, number and state bytes of each key after a micro-batch.

        Raises `StateCorrupted` if Spark cannot read its state, or has deleted that of this committed micro-batch.
        """
        try:
            with self._location() as location:
                stored = self._spark.read.format("statestore").option("batchId", micro_batch).load(location)
                rows = stored.select("key.parent", "key.shard", "value.groupState.value")
                for parent, number, value in rows.toLocalIterator(prefetchPartitions=False):
                    yield parent, number, bytes(value)
        except (PySparkException, Py4JError) as error:
            reason = str(error).strip().partition("\n")[0]
            raise StateCorrupted(
                f"Spark cannot read the state after micro-batch {micro_batch} in {self._query}: {reason}"
            ) from error

    @contextmanager
    def _location(self) -> Iterator[str]:
        """Yield the location of the query for Spark's reader: a link, if its path would be encoded."""
        if self._folder is None or not _ENCODED.search(str(self._folder.absolute())):
            yield self._query
            return
        with TemporaryDirectory(prefix="reexpand-state-") as links:
            link = Path(links, QUERY)
            link.symlink_to(self._folder.absolute() / QUERY)
            yield for_java(str(link))


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
