"""The identity of a checkpoint: the settings fixed for its life.

Spark and the routing keep data by these settings: under others, the job would look for state where it is not. The file
`reexpand.json` of the checkpoint holds them. A start compares them before it does anything, and writes them right
before the query begins, so that a start that fails earlier fixes nothing.
"""

import os
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

import orjson
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from streaming import coordinator
from streaming.config import Settings
from streaming.errors import CheckpointMismatch
from streaming.storage import journal

MAX_DEFAULT_PARTITIONS = 8
"""Largest default number of state partitions of a new checkpoint."""

IDENTITY = "reexpand.json"
QUERY = "query"
"""Folder in which Spark keeps the query's progress and state."""

_START_ANEW = (
    "start with an empty checkpoint directory and an empty updates topic: "
    "the job then reads its inputs from the beginning."
)


class CheckpointFiles:
    """Small files of a checkpoint, on any file system known to Spark."""

    def __init__(self, spark: SparkSession, checkpoint: str) -> None:
        jvm: Any = spark._jvm  # noqa: SLF001 - the one way to Hadoop's file systems from Python
        session: Any = spark
        self._root = checkpoint.rstrip("/")
        self._path = jvm.org.apache.hadoop.fs.Path
        self._io = jvm.org.apache.commons.io.IOUtils
        # Spark's own manager knows how to replace a file at once on each kind of file system.
        self._manager = jvm.org.apache.spark.sql.execution.streaming.checkpointing.CheckpointFileManager.create(
            self._path(self._root),
            session._jsparkSession.sessionState().newHadoopConf(),  # noqa: SLF001 - as above
        )

    def exists(self, name: str) -> bool:
        """Return True if the checkpoint has a file or folder of that name."""
        return bool(self._manager.exists(self._in_checkpoint(name)))

    def read(self, name: str) -> bytes:
        """Return the content of a file.

        Raises:
            OSError: the file cannot be read.
        """
        try:
            stream = self._manager.open(self._in_checkpoint(name))
            try:
                return bytes(self._io.toByteArray(stream))
            finally:
                stream.close()
        except Py4JJavaError as error:
            raise OSError(str(error.java_exception)) from None

    def write(self, name: str, content: bytes) -> None:
        """Create or replace a file at once: a crash leaves the former content or the new one."""
        self._manager.mkdirs(self._path(self._root))
        stream = self._manager.createAtomic(self._in_checkpoint(name), True)
        try:
            stream.write(content)
        except BaseException:
            stream.cancel()
            raise
        stream.close()  # which gives the file its name

    def _in_checkpoint(self, name: str) -> Any:
        return self._path(f"{self._root}/{name}")


def absolute(checkpoint: str) -> str:
    """Return the absolute path of a local checkpoint: executors have working folders of their own.

    A URI is returned as it is.
    """
    return checkpoint if urlparse(checkpoint).scheme else str(Path(checkpoint).absolute())


def default_partitions() -> int:
    """Return the default number of state partitions: one task for each processor of this machine, up to a maximum."""
    return min(os.cpu_count() or 1, MAX_DEFAULT_PARTITIONS)


def identity(settings: Settings, shuffle_partitions: int) -> dict[str, Any]:
    """Return the settings fixed for the life of a checkpoint, and the format of its states."""
    return {
        "format": journal.FORMAT,
        "shuffle_partitions": shuffle_partitions,
        "topic_events": settings.topic_events,
        "subscription_events": settings.subscription_events,
        "group_events": settings.group_events,
        "clock": settings.clock,
        "shards": dict(sorted(settings.shards.items())),
        "route_depth": settings.route_depth,
        "allow_inner_multi": settings.allow_inner_multi,
        "home_buckets": coordinator.BUCKETS,
    }


def agree(spark: SparkSession, settings: Settings) -> int:
    """Compare the settings with the identity of the checkpoint, and write nothing.

    Returns:
        The number of shuffle partitions to use: the configured one, the checkpoint's, or the default, in this order.

    Raises:
        CheckpointMismatch: settings differ (the message names each), or the identity is missing or cannot be read.
    """
    fixed = _read(CheckpointFiles(spark, settings.checkpoint), settings.checkpoint)
    if fixed is None:
        return settings.shuffle_partitions or default_partitions()
    partitions: int = settings.shuffle_partitions or fixed.get("shuffle_partitions") or default_partitions()
    wanted = identity(settings, partitions)
    different = [
        f"{name} is {wanted.get(name)!r}, the checkpoint has {fixed.get(name)!r}"
        for name in sorted(wanted.keys() | fixed.keys())
        if wanted.get(name) != fixed.get(name)
        and not (name == "format" and fixed.get("format") in journal.READ_FORMATS)
    ]
    if different:
        raise CheckpointMismatch(
            f"the checkpoint {settings.checkpoint} was made with other settings: {'; '.join(different)}. "
            f"Set them back, or {_START_ANEW}"
        )
    return partitions


def fix(spark: SparkSession, settings: Settings, shuffle_partitions: int) -> None:
    """Write the identity of a checkpoint, after `agree`, if it is new or of a former format.

    Former releases cannot read the checkpoint from then on.
    """
    files = CheckpointFiles(spark, settings.checkpoint)
    wanted = identity(settings, shuffle_partitions)
    if _read(files, settings.checkpoint) != wanted:
        files.write(IDENTITY, orjson.dumps(wanted, option=orjson.OPT_INDENT_2))


def _read(files: CheckpointFiles, checkpoint: str) -> dict[str, Any] | None:
    """Return the identity of a checkpoint; None if it is new."""
    file = f"{checkpoint.rstrip('/')}/{IDENTITY}"
    if not files.exists(IDENTITY):
        if files.exists(QUERY):
            raise CheckpointMismatch(
                f"{file} is missing, so the settings with which the checkpoint was made are unknown. "
                f"Restore the file from a copy of the checkpoint, or {_START_ANEW}"
            )
        return None
    try:
        return _parse(files.read(IDENTITY))
    except (OSError, ValueError) as error:
        raise CheckpointMismatch(
            f"{file} cannot be read: {error}. Restore the file from a copy of the checkpoint, or {_START_ANEW}"
        ) from None


def _parse(content: bytes) -> dict[str, Any]:
    values = orjson.loads(content)
    if isinstance(values, dict):
        return values
    raise ValueError("it holds no JSON object")
