"""The streaming query on one screen: read, route, expand, write."""

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from streaming.config import Settings
from streaming.kafka.facts import Offsets
from streaming.spark import kafka_clients, notes, positions, sinks
from streaming.spark.expand import NO_PRECAUTIONS, Precautions, expand
from streaming.spark.kafka_admin import KafkaAdmin
from streaming.spark.route import BEGINNING_BYTES, longest_value, micro_batch_bytes, route

_SOURCE = "reexpand.BoundedKafka"
"""Java class of the source."""


def start(
    spark: SparkSession,
    settings: Settings,
    admin: KafkaAdmin,
    fence: sinks.Fence,
    *,
    silent: bool = False,
    answers: bool = True,
    adopted: Offsets | None = None,
    precautions: Precautions = NO_PRECAUTIONS,
) -> StreamingQuery:
    """Start the query on a session from `streaming.spark.session.build`.

    `silent` writes neither updates nor dead letters; the state takes them as written. `adopted` are positions that the
    states have read with which a new checkpoint begins.
    """
    beginning = positions.beginning(admin, settings, adopted)  # the first records, or those behind the adopted states
    # Kafka records of all input streams
    records = read(spark, settings, beginning, bounded=precautions.bounded)
    routed = route(records, settings)  # an input row for each entry and each of its keys (parent, shard)
    notes.note_limits(spark, settings, adopted)
    signer = notes.signer(spark, settings, admin)  # marks the records that the job writes to its own inputs
    # output rows of each key, made from its input rows and its state
    expanded = expand(
        routed, settings, signer, silent=silent, answers=answers, adopts=adopted is not None, precautions=precautions
    )
    # writes the Kafka records that output rows hold; Spark's progress gets the counts among them
    return sinks.start(expanded, settings, fence)


def read(
    spark: SparkSession,
    settings: Settings,
    beginning: str,
    *,
    bounded: bool = False,
    budget: int | None = None,
) -> DataFrame:
    """Read all inputs through one source, requests first if more records wait than a micro-batch may have.

    `bounded` reads records of any size with little memory, and cuts values beyond all bounds. The budget is the size in
    bytes of the values of a micro-batch; by default `route.micro_batch_bytes`.
    """
    options = {
        "subscribe": ",".join(settings.inputs),
        "startingOffsets": beginning,
        "maxOffsetsPerTrigger": str(settings.max_offsets_per_trigger),
        # The broker would hold a fetch for 500 ms when there is nothing to read: the largest part of the latency.
        "kafka.fetch.max.wait.ms": "10",
        "kafka.isolation.level": "read_committed",
        "first": f"{settings.group_events},{settings.subscription_events}",
        **kafka_clients.options_for_spark(settings),
    }
    budget = micro_batch_bytes(settings) if budget is None else budget
    bounds = {"budget": budget, "bound": longest_value(settings), "beginning": BEGINNING_BYTES, "cuts": bounded}
    return spark.readStream.format(_SOURCE).options(**options, **bounds).load()
