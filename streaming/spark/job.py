"""The query: Kafka source, route, expand on each shard, Kafka sink."""

import logging
import secrets
from collections import Counter
from collections.abc import Generator, Iterator, Mapping
from typing import Any, TypeVar

import orjson
import pandas as pd
from pyspark import TaskContext
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name everybody knows
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.state import GroupState, GroupStateTimeout

from streaming import coordinator
from streaming.config import Settings
from streaming.events.model import BIND_TOPIC
from streaming.events.routing import SEPARATOR, Routing
from streaming.spark import sinks
from streaming.storage.archive import Folder
from streaming.worker import InputRow, InputRows, WorkerConfig, work
from streaming.worker.output import Output
from streaming.worker.worker import Archives, without_collection

T = TypeVar("T")
Frames = Generator[pd.DataFrame, None, T]

log = logging.getLogger("reexpand")

STATE_SCHEMA = "value BINARY"
OUTPUT_SCHEMA = "topic STRING, key BINARY, value BINARY"
"""As in `OutputRow`, but with the Kafka topic of its kind; a row of counts has none."""
METRICS, COUNTS = "reexpand", "counts"
"""Names under which a micro-batch's counts stand in Spark's progress."""

_BATCH = "streaming.sql.batchId"
"""The local property under which Spark's MicroBatchExecution tells tasks their micro-batch."""

_ROUTES = "array<struct<parent: string, shard: int, entry: int, payload: binary>>"
_EVENTS = (
    "array<struct<parentTopic: string, liteTopic: string, lmqName: string, subscriptionSet: array<string>, "
    f"group: string, attributes: struct<`{BIND_TOPIC}`: string>, "
    "tick: bigint, alarm: bigint, wake: bigint, shard: int>>"
)
"""The fields by which entries of all streams are placed."""
_STRICT = {"allowSingleQuotes": "false"}
_LMQ_NAME = r"(?s)^%LMQ%\$([^$]*)\$(.*)$"


def start(spark: SparkSession, settings: Settings) -> StreamingQuery:
    """Starts the job on a session that `streaming.spark.session` made."""
    routed = route(read(spark, settings), settings)
    expanded = expand(routed, settings).observe(METRICS, counts())
    return sinks.start(sinks.address(expanded), settings)


def read(spark: SparkSession, settings: Settings) -> DataFrame:
    """All input streams through one Kafka source, so that one micro-batch has a consistent cut of them."""
    options = {
        "subscribe": ",".join(settings.inputs),
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": str(settings.max_offsets_per_trigger),
        # The broker would hold a fetch for 500 ms when there is nothing to read: the largest part of the latency.
        "kafka.fetch.max.wait.ms": "10",
        "kafka.isolation.level": "read_committed",
        **sinks.connection(settings),
    }
    return spark.readStream.format("kafka").options(**options).load()


def route(records: DataFrame, settings: Settings) -> DataFrame:
    """A row for each (entry, shard that must see it): parent, shard, and the columns of `streaming.worker.InputRow`.

    The JVM reads no more of the JSON than it needs to place an entry; what cannot be placed goes to the key
    (`coordinator.COORDINATOR`, `coordinator.UNROUTABLE`), whose work is to say why.
    """
    groups, subscriptions, topics, _ = settings.inputs
    topic = F.col("topic")
    stream = F.when(topic == topics, 2).when(topic == subscriptions, 1).when(topic == groups, 0).otherwise(3)
    text = F.try_validate_utf8(F.col("value").cast("string"))
    # The record stands in an array before a number that nobody can foresee: what does not end where it ends is seen.
    fence = secrets.randbits(62)
    both = F.from_json(F.concat(F.lit("["), text, F.lit(f',{{"tick":{fence}}}]')), _EVENTS, _STRICT)
    # Spark plans this anew in each micro-batch, so there is one parser for all streams. In a step of its own: Spark
    # would parse a record for each field that is read.
    parsed = records.select(
        "topic",
        stream.cast("tinyint").alias("stream"),
        "partition",
        "offset",
        F.unix_millis("timestamp").alias("timestamp"),
        "value",
        (F.get(both, F.lit(1))["tick"] == fence).alias("whole"),
        F.get(both, F.lit(0)).alias("event"),
    )
    event = parsed["event"]
    placed = (
        F.when(topic == topics, _topic_route(event, settings))
        .when(topic == subscriptions, _subscription_routes(event, settings))
        .when(topic == groups, _group_routes(event, settings))
        .otherwise(_clock_routes(event))
    )
    routes = F.coalesce(
        F.when(parsed["whole"], placed), _route(F.lit(coordinator.COORDINATOR), F.lit(coordinator.UNROUTABLE))
    )
    return parsed.select("stream", "partition", "offset", "timestamp", F.inline(routes.cast(_ROUTES)))


def expand(routed: DataFrame, settings: Settings) -> DataFrame:
    """The output rows of `streaming.worker.work`, over the state of each (parent, shard)."""
    config = WorkerConfig(
        settings.inputs,
        Routing(settings.shards, settings.route_depth),
        settings.allow_inner_multi,
        settings.client_timeout_ms,
        _archive(settings),
    )
    topics = sinks.topics(settings)

    def on_shard(key: tuple[str, int], frames: Iterator[pd.DataFrame], state: GroupState) -> Frames[None]:
        rows = InputRows.concat(list(map(_rows, frames)))
        former = bytes(state.get[0]) if state.exists else None
        number = int(key[1])  # Spark gives a numpy integer
        with without_collection():
            steps = work(key[0], number, rows, former, config, batch=_batch())
            renewed = yield from _frames(steps, topics)
        if renewed is None and former is not None:
            state.remove()
        elif renewed is not None and renewed is not former:
            state.update((renewed,))

    # No timeout: time enters as records, so that a replay sees the same time, and an idle shard is never visited.
    return routed.groupBy("parent", "shard").applyInPandasWithState(
        on_shard, OUTPUT_SCHEMA, STATE_SCHEMA, "update", GroupStateTimeout.NoTimeout
    )


def _archive(settings: Settings) -> Archives | None:
    """Where large states are; None where Python does not reach what Spark does."""
    folder = Folder(settings.checkpoint)
    problem = folder.problem()
    if problem is None:
        return folder
    log.warning(
        "Python cannot write beside the checkpoint %s (%s): states stay in Spark's state store as a whole, "
        "so a micro-batch costs as much as the states that it touches are large",
        settings.checkpoint,
        problem,
    )
    return None


def _batch() -> int:
    """The number of the micro-batch of which this task is part."""
    task = TaskContext.get()
    return 0 if task is None else int(task.getLocalProperty(_BATCH) or 0)


def counts() -> Column:
    """What the keys of a micro-batch did, as one column to observe: each one is planned anew in each micro-batch."""
    return F.collect_list(F.when(F.col("topic").isNull(), F.col("value").cast("string"))).alias(COUNTS)


def total(observed: Mapping[str, Any]) -> Counter[str]:
    """Output rows by kind and ignored entries by reason, from what was observed."""
    found: Counter[str] = Counter()
    for counts_of_key in observed.get(COUNTS) or ():
        found.update(orjson.loads(counts_of_key))
    return found


def _rows(frame: pd.DataFrame) -> InputRows:
    return InputRows(*(frame[name].to_numpy() for name in InputRow._fields))


def _frames(steps: Generator[Output, None, T], topics: Mapping[str, str]) -> Frames[T]:
    """The output rows of a key, and what its work returns."""
    while True:
        try:
            output = next(steps)
        except StopIteration as end:
            result: T = end.value
            return result
        rows = [(topics.get(kind), key, value) for kind, key, value in output.all_rows()]
        if rows:
            yield pd.DataFrame(rows, columns=["topic", "key", "value"], dtype=object)


def _topic_route(event: Column, settings: Settings) -> Column:
    parent = F.coalesce(
        event["parentTopic"], F.regexp_extract(event["lmqName"], _LMQ_NAME, 1), F.lit(coordinator.COORDINATOR)
    )
    if not settings.shards:
        return _route(parent, F.lit(0))
    topic = F.coalesce(event["liteTopic"], F.regexp_extract(event["lmqName"], _LMQ_NAME, 2), F.lit(""))
    segments = F.split(topic, SEPARATOR, settings.route_depth + 1)
    routed = F.array_join(F.slice(segments, 1, settings.route_depth), SEPARATOR) if settings.route_depth else topic
    return _route(parent, F.pmod(F.crc32(routed.cast("binary")), _shard_count(parent, settings)))


def _subscription_routes(event: Column, settings: Settings) -> Column:
    text = F.col("value").cast("string")
    listed = event["subscriptionSet"]

    def of(entry: Column, position: Column) -> Column:
        parent = F.get_json_object(entry, "$.topic")
        # What names no parent is the affair of the client's home alone.
        lost = parent.isNull() | parent.rlike(r"^\s*$")
        bucket = _bucket(F.get_json_object(entry, "$.group"))
        payload = F.coalesce(entry, text).cast("binary")
        number = 2 * position + lost.cast("int")
        at_home = F.array(_struct(F.lit(coordinator.COORDINATOR), bucket, number, payload))
        return F.when(lost, at_home).otherwise(F.concat(at_home, _on_shards(parent, number, payload, settings)))

    return F.flatten(F.transform(F.when(F.size(listed) > 0, listed).otherwise(F.array(text)), of))


def _group_routes(event: Column, settings: Settings) -> Column:
    parent = F.coalesce(event["attributes"].getField(BIND_TOPIC), event["parentTopic"])
    lost = parent.isNull() | (parent == coordinator.COORDINATOR)
    at_home = _route(F.lit(coordinator.COORDINATOR), _bucket(event["group"]))
    shards = _on_shards(parent, F.lit(0), F.col("value"), settings)
    return F.when(lost, at_home).otherwise(F.concat(at_home, shards))


def _clock_routes(event: Column) -> Column:
    """Null where it is no event of the clock."""
    parent = event["parentTopic"]
    homes = F.transform(
        F.sequence(F.lit(0), F.lit(coordinator.BUCKETS - 1)),
        lambda bucket: _struct(F.lit(coordinator.COORDINATOR), bucket, F.lit(0), F.col("value")),
    )
    return (
        F.when(event["tick"].isNotNull(), homes)
        .when(event["alarm"].isNotNull() & parent.isNotNull(), _route(F.lit(coordinator.COORDINATOR), _bucket(parent)))
        .when(
            event["wake"].isNotNull() & parent.isNotNull() & event["shard"].isNotNull(), _route(parent, event["shard"])
        )
    )


def _bucket(name: Column) -> Column:
    return F.coalesce(F.pmod(F.crc32(name.cast("binary")), F.lit(coordinator.BUCKETS)), F.lit(coordinator.UNROUTABLE))


def _on_shards(parent: Column, entry: Column, payload: Column, settings: Settings) -> Column:
    if not settings.shards:
        return F.array(_struct(parent, F.lit(0), entry, payload))
    last = _shard_count(parent, settings) - 1
    return F.transform(F.sequence(F.lit(0), last), lambda shard: _struct(parent, shard, entry, payload))


def _route(parent: Column, shard: Column) -> Column:
    return F.array(_struct(parent, shard, F.lit(0), F.col("value")))


def _struct(parent: Column, shard: Column, entry: Column, payload: Column) -> Column:
    return F.struct(
        parent.alias("parent"),
        shard.cast("int").alias("shard"),
        entry.cast("int").alias("entry"),
        payload.alias("payload"),
    )


def _shard_count(parent: Column, settings: Settings) -> Column:
    counts_by_parent = F.create_map(*(F.lit(part) for pair in settings.shards.items() for part in pair))
    return F.coalesce(F.element_at(counts_by_parent, parent), F.lit(1))
