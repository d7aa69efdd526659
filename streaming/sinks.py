"""Where output rows go: the Kafka sink, at least once, made effectively once by keys and event ids."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F  # noqa: N812 - the name everybody knows

from streaming.events import Stream
from streaming.output import Kind

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


def address(expanded: "DataFrame", settings: "Settings") -> "DataFrame":
    """Kafka records (topic, key, value) of the output rows (see `OutputRow`); rows that only count are dropped."""
    kind = F.col("kind")
    topic = (
        F.when(kind == Kind.UPDATES, settings.updates)
        .when(kind == Kind.DEAD_LETTER, settings.dead_letters)
        .when(kind == Kind.INPUT + Stream.GROUPS, settings.group_events)
        .when(kind == Kind.INPUT + Stream.SUBSCRIPTIONS, settings.subscription_events)
        .when(kind == Kind.INPUT + Stream.CLOCK, settings.clock)
    )
    key, value = F.col("key").cast("string"), F.col("value").cast("string")
    one = F.array(F.struct(key.alias("key"), value.alias("value")))
    many = F.arrays_zip(F.split(key, "\n").alias("key"), F.split(value, "\n").alias("value"))
    return (
        expanded.select(topic.alias("topic"), F.when(kind == Kind.UPDATES, many).otherwise(one).alias("records"))
        .where("topic IS NOT NULL")
        .select("topic", F.inline("records"))
        .withColumn("value", F.nullif("value", F.lit("")))
    )


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
