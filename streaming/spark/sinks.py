"""Where output rows go: the Kafka sink, at least once, made effectively once by keys and event ids."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - the name everybody knows

from streaming.events.model import Stream
from streaming.updates.tables import TABLE_END, Tables
from streaming.worker.output import OutputKind

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

    from streaming.config import Settings


def connection(settings: "Settings") -> dict[str, str]:
    """How Spark's Kafka source and sink reach the broker."""
    return {f"kafka.{key}": value for key, value in _client_options(settings).items()}


def client_properties(jvm: Any, settings: "Settings", defaults: Mapping[str, int]) -> Any:
    """The same for a Kafka client in Spark's JVM; `defaults` hold where the client options say nothing."""
    properties = jvm.java.util.Properties()
    for key, value in {**defaults, **_client_options(settings)}.items():
        properties.put(key, str(value))
    return properties


def _client_options(settings: "Settings") -> dict[str, str]:
    return {"bootstrap.servers": settings.bootstrap_servers, **settings.client_options()}


def topics(settings: "Settings") -> dict[str, str]:
    """The Kafka topic of output rows by their kind."""
    return {
        OutputKind.UPDATES: settings.updates,
        OutputKind.DEAD_LETTER: settings.dead_letters,
        OutputKind.INPUT + Stream.GROUPS: settings.group_events,
        OutputKind.INPUT + Stream.SUBSCRIPTIONS: settings.subscription_events,
        OutputKind.INPUT + Stream.CLOCK: settings.clock,
    }


def address(expanded: "DataFrame") -> "DataFrame":
    """Kafka records (topic, key, value) of output rows (see `job.OUTPUT_SCHEMA`); those of counts have no tables.

    Spark plans this anew in each micro-batch: each branch here costs as much as the work on some events.
    """
    texts = F.split(F.col("value").cast("string"), TABLE_END)
    tables = {name: F.get("texts", F.lit(number)) for number, name in enumerate(Tables._fields)}
    numbers = _lines(tables.pop("records"))
    shared = [(table if name in _TEXTS else _lines(table)).alias(name) for name, table in tables.items()]
    return (
        expanded.select("topic", F.col("key").cast("string"), texts.alias("texts"))
        .select("topic", "key", *shared, numbers.alias("numbers"))
        # A step of its own: what stands beside `explode` is computed for each record, tables of thousands as well. The
        # cast is in it: of a bare column Spark infers a filter of empty ones, for which it splits all tables again.
        .select("topic", "key", *tables, F.explode(F.col("numbers").cast("array<bigint>")).alias("number"))
        .select(
            "*",
            F.expr("number % (size(patterns) + 1) - 1").alias("p"),
            F.expr("number div (size(patterns) + 1) % size(key_starts)").alias("r"),
            F.expr("number div (size(patterns) + 1) div size(key_starts)").alias("t"),
        )
        .select("topic", _joined(_KEY).alias("key"), _joined(_VALUE).alias("value"))
    )


_TEXTS = ("middle", "end")
_KEY = "key key_starts[r] names[t] key_ends[r]"
_VALUE = (
    "starts[r] names[t] middle names[t] patterns[p] versions[r] digests[t] digest_ends[r] places[t] timestamps[t] end"
)
"""What `Tables` says of keys and values; the one of a tombstone is null, since its patterns have no line."""


def _joined(parts: str) -> Column:
    return F.concat(*(F.get(*part[:-1].split("[")) if part.endswith("]") else F.col(part) for part in parts.split()))


def _lines(text: Column) -> Column:
    return F.split(text, "\n")


def start(records: "DataFrame", settings: "Settings") -> "StreamingQuery":
    """Starts the query that writes the records.

    A producer keeps the order of its records (idempotence is Kafka's default), and one task writes all updates of a
    shard, so the updates of one client and topic stand in the order in which they happened.
    """
    # Tens of thousands of small records go in few large requests. A task flushes when it ends, so lingering delays
    # nothing. Compression is left to the client options: not every client library can read every codec.
    producer = {"kafka.batch.size": "262144", "kafka.linger.ms": "5"}
    return (
        records.writeStream.format("kafka")
        .options(**{**producer, **connection(settings)})
        .option("checkpointLocation", f"{settings.checkpoint.rstrip('/')}/query")
        .trigger(processingTime=f"{settings.trigger_interval_ms} milliseconds")
        .queryName("reexpand")
        .outputMode("update")
        .start()
    )
