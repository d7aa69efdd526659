"""The Kafka sink and its pace: output rows become records, written exactly once or at least once.

It is our own (see `jvm/reexpand`). Exactly once: the records of a state partition are one transaction. At least once: a
repeated micro-batch writes the same keys and event ids again.

The pace: at once when idle, spaced under a trickle by a budget of CPU time.
"""

from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from py4j.protocol import Py4JJavaError
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from streaming.config import Settings
from streaming.errors import ReexpandError
from streaming.records.model import Stream
from streaming.spark import kafka_clients
from streaming.spark.checkpoint import for_java
from streaming.spark.gateway import java_class
from streaming.worker.rows import OutputKind

LONGEST_WAIT_MS: Final = 500
"""Longest time in milliseconds between two micro-batches, however much CPU they use."""

ENOUGH_RECORDS: Final = 200
"""Number of records in a micro-batch from which on the next follows at once: more may wait."""

GRACE_MS: Final = 60_000
"""Time in milliseconds after the start without waits: Java compiles what is hot, and records may wait."""

_SINK = "reexpand.FencedKafka"
"""Java class of the sink."""


def trigger_ms(settings: Settings) -> int:
    """Return the trigger interval in milliseconds: 1 for none, the minimum at which Spark asks a clock to wait."""
    return max(settings.trigger_interval_ms, 1)


def cores(settings: Settings) -> float:
    """Return the budget of CPU; 0 for none, as when a trigger interval takes its place."""
    return 0.0 if settings.trigger_interval_ms else settings.pace_cpu


def end_after_batch(query: StreamingQuery) -> None:
    """Let a query that keeps its pace end as soon as its running micro-batch is committed; do not wait for that.

    `StreamingQuery.stop` interrupts the micro-batch, so that the next start repeats it: nothing is lost, but with
    delivery at least once its updates are written twice.
    """
    _java_pace().endAfterBatch(_execution(query))


def _java_pace() -> Any:
    session = SparkSession.getActiveSession()
    if session is None:
        raise ReexpandError("there is no Spark session")
    return java_class(session, "reexpand.Pace")


def _execution(query: StreamingQuery) -> Any:
    java: Any = query
    return java._jsq.streamingQuery()  # noqa: SLF001 - Spark has no public way


def topics(settings: Settings, *, silent: bool = False, answers: bool = True) -> dict[str, str | None]:
    """Return the Kafka topic of output rows by kind, None for counts.

    Other kinds are dropped. `silent` leaves only the job's own inputs; without `answers` that topic cannot be written.
    """
    said = {
        OutputKind.UPDATES: settings.updates,
        OutputKind.DEAD_LETTER: settings.dead_letters,
        OutputKind.COUNTS: None,
        **({OutputKind.ANSWER: settings.answers} if answers else {}),
    }
    return {
        **({} if silent else said),
        OutputKind.INPUT + Stream.GROUPS: settings.group_events,
        OutputKind.INPUT + Stream.SUBSCRIPTIONS: settings.subscription_events,
        OutputKind.INPUT + Stream.CLOCK: settings.clock,
    }


@dataclass(frozen=True, slots=True)
class Fence:
    """Identity that a driver writes under: checkpoint id, generation (larger for each later driver) and query."""

    checkpoint_id: str
    generation: int
    run: int = 0


def start(expanded: DataFrame, settings: Settings, fence: Fence | None = None) -> StreamingQuery:
    """Start writing the records of output rows to Kafka; unfenced, at least once.

    A producer keeps the order of its records (idempotence is Kafka's default), and one task writes all updates of a
    shard, so the updates of one client and topic are in the order in which they happened.
    """
    # Tens of thousands of small records go in few large requests. A task flushes when it ends, so lingering delays
    # nothing. Compression is left to the client options: not every client library can read every codec.
    producer = {"kafka.batch.size": "262144", "kafka.linger.ms": "5"}
    if fence is None or settings.delivery == "at-least-once":
        own = {}
    else:
        numbers = {"generation": str(fence.generation), "run": str(fence.run)}
        own = {"checkpoint": fence.checkpoint_id, **numbers, "markers": settings.clock}
    _forget_origins(expanded.sparkSession)
    query = (
        expanded.writeStream.format(_SINK)
        .options(**{**producer, **kafka_clients.options_for_spark(settings), **own})
        .option("checkpointLocation", f"{for_java(settings.checkpoint).rstrip('/')}/query")
        .trigger(processingTime=f"{trigger_ms(settings)} milliseconds")
        .queryName("reexpand")
        .outputMode("update")
        .start()
    )
    _java_pace().keep(_execution(query), cores(settings), LONGEST_WAIT_MS, ENOUGH_RECORDS, GRACE_MS)
    return query


def _forget_origins(spark: SparkSession) -> None:
    """Remove from Hadoop's options the names of the files that they come from.

    Each micro-batch sends the options to its tasks. Hadoop compresses each of the 1,100 names separately, for 4 ms.
    """
    configuration = spark.sparkContext._jsc.hadoopConfiguration()  # noqa: SLF001 - Spark has no public way
    configuration.size()  # reads the files
    with suppress(Py4JJavaError):  # another release of Hadoop may not have the field
        origins = configuration.getClass().getDeclaredField("updatingResource")
        origins.setAccessible(True)
        origins.set(configuration, None)
