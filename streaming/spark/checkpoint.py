"""What a checkpoint fixes for ever, written beside it and compared at each start.

Spark and the routing both keep data by these values: under others, state would be looked for where it is not.
"""

import os
from typing import Any

import orjson
from pyspark.sql import SparkSession

from streaming import coordinator
from streaming.config import Settings
from streaming.errors import CheckpointMismatch
from streaming.storage import journal

MAX_DEFAULT_PARTITIONS = 8


class Identity:
    """The file `reexpand.json` of a checkpoint, on any file system that Spark knows."""

    def __init__(self, spark: SparkSession, checkpoint: str) -> None:
        jvm: Any = spark._jvm  # noqa: SLF001 - the one way to Hadoop's file systems from Python
        context: Any = spark.sparkContext
        self._path = jvm.org.apache.hadoop.fs.Path(f"{checkpoint.rstrip('/')}/reexpand.json")
        self._files = self._path.getFileSystem(context._jsc.hadoopConfiguration())  # noqa: SLF001 - as above
        self._streams = jvm.org.apache.commons.io.IOUtils

    def read(self) -> dict[str, Any] | None:
        """The values with which the checkpoint was made; None for a new one."""
        if not self._files.exists(self._path):
            return None
        stream = self._files.open(self._path)
        try:
            values: dict[str, Any] = orjson.loads(bytes(self._streams.toByteArray(stream)))
        finally:
            stream.close()
        return values

    def write(self, values: dict[str, Any]) -> None:
        """Writes the values of a new checkpoint."""
        stream = self._files.create(self._path, True)
        try:
            stream.write(orjson.dumps(values, option=orjson.OPT_INDENT_2))
        finally:
            stream.close()


def default_partitions() -> int:
    """State partitions of a new checkpoint when none are configured: a task each for the processors here."""
    return min(os.cpu_count() or 1, MAX_DEFAULT_PARTITIONS)


def values(settings: Settings, shuffle_partitions: int) -> dict[str, Any]:
    """What must stay as it is as long as a checkpoint lives."""
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
    """Compares the settings with the checkpoint's, or writes them into a new one.

    Returns:
        The number of shuffle partitions to use: the checkpoint's, the configured one, or the default, in this order.

    Raises:
        CheckpointMismatch: naming each setting that differs.
    """
    identity = Identity(spark, settings.checkpoint)
    fixed = identity.read()
    if fixed is None:
        partitions = settings.shuffle_partitions or default_partitions()
        identity.write(values(settings, partitions))
        return partitions
    partitions = settings.shuffle_partitions or fixed.get("shuffle_partitions") or default_partitions()
    wanted = values(settings, partitions)
    former = fixed.get("format") != journal.FORMAT and fixed.get("format") in journal.READ_FORMATS
    different = [
        f"{name} is {wanted.get(name)!r}, the checkpoint has {fixed.get(name)!r}"
        for name in sorted(wanted.keys() | fixed.keys())
        if wanted.get(name) != fixed.get(name) and not (former and name == "format")
    ]
    if different:
        raise CheckpointMismatch(
            f"the checkpoint {settings.checkpoint} was made with other settings: {'; '.join(different)}. "
            "Set them back, or start with an empty checkpoint directory and an empty updates topic: "
            "the job then reads its inputs from the beginning."
        )
    if former:  # from now on the release that made it cannot read it
        identity.write({**fixed, "format": journal.FORMAT})
    return partitions
