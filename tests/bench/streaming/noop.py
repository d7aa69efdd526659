"""The floor: a stateful query of the job's plan that only counts.

Same source, parsing and routing in the JVM, shuffle, state store and sink, which writes exactly once as the job's does;
the function on each key adds up its rows and emits one record a key and micro-batch.

With the argument `echo` it passes each topic event on, row by row, as a plain query from Kafka to Kafka does. With
`same-output` it writes two records for each, of the size of the job's updates: what output alone costs, whatever
decides it.

With the argument `two-stages` all rows go through a stateful function by parent first, as they would if one stage kept
the patterns and another one the topics. Spark allows that when its check of unsupported operations is off.
"""

import json
import os
import signal
import sys
import threading
from collections.abc import Iterator
from functools import partial

import orjson
from pyspark.sql.streaming.state import GroupState, GroupStateTimeout

from streaming.config import load
from streaming.local.java import environment, find_java
from streaming.records.writing import SEPARATOR, Tables
from streaming.spark import arrow, checkpoint, job, positions, session, sinks
from streaming.spark.expand import OUTPUT_SCHEMA, STATE_SCHEMA, Frames
from streaming.spark.kafka_admin import KafkaAdmin
from streaming.spark.route import route
from streaming.worker.process import without_collection
from streaming.worker.rows import OutputRow


def count(topic: str, key: tuple[str, int], frames: Iterator[arrow.Frame], state: GroupState) -> Frames[None]:
    """Count the rows of a key, and write the sum."""
    with without_collection():
        total = _counted(state, sum(len(frame["payload"].to_numpy()) for frame in frames))
    value = json.dumps({"parentTopic": key[0], "count": total}).encode()
    yield arrow.frame([_row(topic, [key[0].encode()], [value])], COLUMNS)


def echo(topic: str, key: tuple[str, int], frames: Iterator[arrow.Frame], state: GroupState) -> Frames[None]:
    """Count the rows of a key, and pass the topic events on."""
    with without_collection():
        events = _events(frames, state)
    if events:
        yield arrow.frame([_row(topic, [key[0].encode()], [event]) for event in events], COLUMNS)


COLUMNS = ["topic", "key", "value"]
RECORDS = 2
LINES = 32
"""Records in a row: as many as the job's that are not written by column."""


def same_output(topic: str, key: tuple[str, int], frames: Iterator[arrow.Frame], state: GroupState) -> Frames[None]:
    """Count the rows of a key, and write records that name the topics."""
    with without_collection():
        names = [orjson.loads(event)["liteTopic"] for event in _events(frames, state)] * RECORDS
        values = [orjson.dumps({"liteTopic": name, "rest": "x" * 320}) for name in names]
        keys = [orjson.dumps((key[0], "group", "client", name)) for name in names]
    starts = range(0, len(keys), LINES)
    rows = [_row(topic, keys[start : start + LINES], values[start : start + LINES]) for start in starts]
    if rows:
        yield arrow.frame(rows, COLUMNS)


def _row(topic: str, keys: list[bytes], values: list[bytes]) -> OutputRow:
    return topic, b"", SEPARATOR.join(Tables.singly(keys, values))


def _events(frames: Iterator[arrow.Frame], state: GroupState) -> list[bytes]:
    """The topic events of a key; all rows are counted."""
    payloads = [payload for frame in frames for payload in frame["payload"].to_numpy()]
    _counted(state, len(payloads))
    return [payload for payload in payloads if b'"liteTopic"' in payload]


def _counted(state: GroupState, rows: int) -> int:
    """How many rows a key has seen, with some more."""
    total = (int.from_bytes(state.get[0]) if state.exists else 0) + rows
    state.update((total.to_bytes(8),))
    return total


WAYS = {"echo": echo, "same-output": same_output}


def pass_on(_: tuple[str], frames: Iterator[arrow.Frame], state: GroupState) -> Frames[None]:
    """Count the rows of a parent, and pass them on."""
    seen = 0
    for frame in frames:
        rows = list(zip(*(frame[name].to_numpy().tolist() for name in frame), strict=True))
        seen += len(rows)
        yield arrow.frame(rows, list(frame))
    _counted(state, seen)


def main() -> None:
    """Run until SIGTERM, with the job's own settings from the environment."""
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    os.environ.update(environment(find_java()))
    settings = load({})
    spark = session.build(settings, session.default_partitions(), session.brought())
    agreed = checkpoint.agree(spark, settings)
    spark.conf.set("spark.sql.shuffle.partitions", agreed.shuffle_partitions)
    with KafkaAdmin(spark, settings) as admin:
        beginning = positions.beginning(admin, settings)
    routed = route(job.read(spark, settings, beginning), settings)
    if "two-stages" in sys.argv:
        spark.conf.set("spark.sql.streaming.unsupportedOperationCheck", "false")
        routed = routed.groupBy("parent").applyInPandasWithState(
            pass_on, routed.schema, STATE_SCHEMA, "update", GroupStateTimeout.NoTimeout
        )
        # The operator's rows are columnar; what follows it wants rows, which a projection makes.
        routed = routed.withColumn("timestamp", routed["timestamp"] + 1)
    way = next((way for name, way in WAYS.items() if name in sys.argv), count)
    counted = routed.groupBy("parent", "shard").applyInPandasWithState(
        partial(way, settings.updates),
        OUTPUT_SCHEMA,
        STATE_SCHEMA,
        "update",
        GroupStateTimeout.NoTimeout,
    )
    checkpoint.fix(spark, settings, agreed, {})
    fence = sinks.Fence(agreed.checkpoint_id, generation=1)  # without a lease: the checkpoint has no other driver
    query = sinks.start(counted, settings, fence)
    sys.stderr.write("ready: reading\n")
    while not stop.wait(0.2) and query.isActive:
        pass
    sinks.end_after_batch(query)
    query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main()
