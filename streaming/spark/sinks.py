"""The Kafka sink: output rows become records, written exactly once or at least once.

Exactly once: a sink of our own writes the records of a state partition in one transaction (see `jvm/reexpand`). At
least once: Spark's sink writes them; a repeated micro-batch writes the same keys and event ids again.
"""

from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - its usual name
from pyspark.sql.streaming.query import StreamingQuery

from streaming.config import Settings
from streaming.records.model import Stream
from streaming.records.writing import TABLE_END, Tables
from streaming.spark import kafka_options, pace
from streaming.spark.checkpoint import for_java
from streaming.worker.output import OutputKind

_FENCED = "reexpand.FencedKafka"
"""Java class of the sink that writes exactly once."""

_TEXTS = ("middle", "end")
"""Tables of one text; the others have a line for each part."""

_KEY = "key key_starts[r] names[t] key_ends[r]"
_VALUE = (
    "starts[r] names[t] middle names[t] patterns[p] versions[r] digests[t] digest_ends[r] places[t] timestamps[t] end"
)
"""Parts of keys and values, as `Tables` documents them; a tombstone has no pattern, so its value is null."""


def topics(settings: Settings, *, silent: bool = False, answers: bool = True) -> dict[str, str | None]:
    """Return the Kafka topic of output rows by their kind; rows of counts have none, and other kinds are dropped.

    Args:
        settings: settings of the job.
        silent: write only records for the job's own inputs.
        answers: the topic of answers can be written.
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


def address(expanded: DataFrame) -> DataFrame:
    """Return the Kafka records (topic, key, value) of output rows (see `expand.OUTPUT_SCHEMA`).

    Rows of counts hold no tables, so they become no records. Spark plans this in each micro-batch: each branch
    here costs as much as the work on some events.
    """
    texts = F.split(F.col("value").cast("string"), TABLE_END)
    tables = {name: F.get("texts", F.lit(number)) for number, name in enumerate(Tables._fields)}
    numbers = _lines(tables.pop("records"))
    shared = [(table if name in _TEXTS else _lines(table)).alias(name) for name, table in tables.items()]
    return (
        expanded.select("topic", F.col("key").cast("string"), texts.alias("texts"))
        .select("topic", "key", *shared, numbers.alias("numbers"))
        # A separate step: Spark computes the columns next to `explode` for each record, and tables have thousands of
        # lines. The cast is part of it: of a bare column Spark infers a filter of empty ones, for which it splits all
        # tables again.
        .select("topic", "key", *tables, F.explode(F.col("numbers").cast("array<bigint>")).alias("number"))
        .select(
            "*",
            F.expr("number % (size(patterns) + 1) - 1").alias("p"),
            F.expr("number div (size(patterns) + 1) % size(key_starts)").alias("r"),
            F.expr("number div (size(patterns) + 1) div size(key_starts)").alias("t"),
        )
        .select("topic", _joined(_KEY).alias("key"), _joined(_VALUE).alias("value"))
    )


@dataclass(frozen=True, slots=True)
class Fence:
    """Identity that a driver writes under: checkpoint id, generation and run.

    Attributes:
        checkpoint_id: id of the checkpoint.
        generation: number of the driver; larger for each later driver.
        run: number of its query.
    """

    checkpoint_id: str
    generation: int
    run: int = 0


def start(records: DataFrame, settings: Settings, fence: Fence | None = None) -> StreamingQuery:
    """Start writing the records to Kafka; without a fence, at least once.

    A producer keeps the order of its records (idempotence is Kafka's default), and one task writes all updates of a
    shard, so the updates of one client and topic are in the order in which they happened.
    """
    # Tens of thousands of small records go in few large requests. A task flushes when it ends, so lingering delays
    # nothing. Compression is left to the client options: not every client library can read every codec.
    producer = {"kafka.batch.size": "262144", "kafka.linger.ms": "5"}
    if fence is None or settings.delivery == "at-least-once":
        sink, own = "kafka", {}
    else:
        sink = _FENCED
        numbers = {"generation": str(fence.generation), "run": str(fence.run)}
        own = {"checkpoint": fence.checkpoint_id, **numbers, "markers": settings.clock}
    query = (
        records.writeStream.format(sink)
        .options(**{**producer, **kafka_options.for_spark(settings), **own})
        .option("checkpointLocation", f"{for_java(settings.checkpoint).rstrip('/')}/query")
        .trigger(processingTime=f"{pace.trigger_ms(settings)} milliseconds")
        .queryName("reexpand")
        .outputMode("update")
        .start()
    )
    pace.keep(settings, query)
    return query


def _joined(parts: str) -> Column:
    """Return the concatenation of columns; `names[t]` is the line of `names` with the number `t`."""
    return F.concat(*(F.get(*part[:-1].split("[")) if part.endswith("]") else F.col(part) for part in parts.split()))


def _lines(text: Column) -> Column:
    return F.split(text, "\n")
