"""The pace of micro-batches, and their end: at once when idle, spaced under a trickle by a budget of CPU time."""

from typing import Any, Final

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from streaming.config import Settings
from streaming.errors import ReexpandError

LONGEST_WAIT_MS: Final = 500
"""Longest time in milliseconds between two micro-batches, however much CPU they use."""

ENOUGH_RECORDS: Final = 200
"""Number of records in a micro-batch from which on the next follows at once: more may wait."""

GRACE_MS: Final = 60_000
"""Time in milliseconds after the start without waits: Java compiles what is hot, and records may wait."""


def trigger_ms(settings: Settings) -> int:
    """Return the trigger interval in milliseconds: 1 for none, the minimum at which Spark asks a clock to wait."""
    return max(settings.trigger_interval_ms, 1)


def cores(settings: Settings) -> float:
    """Return the budget of CPU; 0 for none, as when a trigger interval takes its place."""
    return 0.0 if settings.trigger_interval_ms else settings.pace_cpu


def keep(settings: Settings, query: StreamingQuery) -> None:
    """Let a query that has just begun keep its pace (see `jvm/reexpand/Pace.java`)."""
    _java().keep(_execution(query), cores(settings), LONGEST_WAIT_MS, ENOUGH_RECORDS, GRACE_MS)


def end_after_batch(query: StreamingQuery) -> None:
    """Let a query that keeps its pace end as soon as its running micro-batch is committed; do not wait for that.

    `StreamingQuery.stop` interrupts the micro-batch, so that the next start repeats it: nothing is lost, but with
    delivery at least once its updates are written twice.
    """
    _java().endAfterBatch(_execution(query))


def _java() -> Any:
    session = SparkSession.getActiveSession()
    if session is None:
        raise ReexpandError("there is no Spark session")
    jvm: Any = session._jvm  # noqa: SLF001 - the only way to our own Java classes
    return jvm.reexpand.Pace


def _execution(query: StreamingQuery) -> Any:
    java: Any = query
    return java._jsq.streamingQuery()  # noqa: SLF001 - Spark has no public way
