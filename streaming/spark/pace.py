"""The pace of micro-batches: at once when idle, spaced under a trickle of records, by a budget of CPU time."""

from typing import Any, Final

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from streaming.config import Settings

LONGEST_WAIT_MS: Final = 500
"""Longest time in milliseconds between two micro-batches, however much CPU they use."""

ENOUGH_RECORDS: Final = 200
"""Number of records in a micro-batch from which on the next one follows at once: more may wait."""

GRACE_MS: Final = 60_000
"""Time in milliseconds after the start without waits: Java compiles what is hot, and records may wait."""


def trigger_ms(settings: Settings) -> int:
    """Return the trigger interval in milliseconds: the shortest one at which Spark asks a clock to wait, if paced."""
    return max(settings.trigger_interval_ms, int(is_kept(settings)))


def is_kept(settings: Settings) -> bool:
    """Tell whether the budget decides on the pace; a trigger interval takes its place."""
    return settings.pace_cpu > 0 and not settings.trigger_interval_ms


def keep(spark: SparkSession, settings: Settings, query: StreamingQuery) -> None:
    """Let a query that has just begun keep its pace (see `jvm/reexpand/Pace.java`)."""
    if is_kept(settings):
        jvm: Any = spark._jvm  # noqa: SLF001 - the one way to our own Java classes
        java: Any = query
        execution = java._jsq.streamingQuery()  # noqa: SLF001 - Spark has no public way
        jvm.reexpand.Pace.keep(execution, settings.pace_cpu, LONGEST_WAIT_MS, ENOUGH_RECORDS, GRACE_MS)
