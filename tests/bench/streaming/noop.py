"""The floor: a stateful query of the job's plan that only counts.

Same source, parsing and routing in the JVM, shuffle, state store and sink; the function on each key adds up its rows
and emits one record a key and micro-batch.

With the argument `two-stages` all rows go through a stateful function by parent first, as they would if one stage kept
the patterns and another one the topics. Spark allows that when its check of unsupported operations is off.
"""

import json
import os
import signal
import sys
import threading
from collections.abc import Iterator

import pandas as pd
from pyspark.sql.streaming.state import GroupState, GroupStateTimeout

from streaming import checkpoint, job, service, session, sinks
from streaming.config import load
from streaming.local import jars
from streaming.local.java import environment, find_java
from streaming.worker import Kind, without_collection


def count(key: tuple[str, int], frames: Iterator[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
    """Counts the rows of a key."""
    with without_collection():
        total = (int.from_bytes(state.get[0]) if state.exists else 0) + sum(map(len, frames))
        state.update((total.to_bytes(8),))
    value = json.dumps({"parentTopic": key[0], "count": total}).encode()
    yield pd.DataFrame({"kind": [Kind.ADD], "key": [key[0].encode()], "value": [value]})


def pass_on(_: tuple[str], frames: Iterator[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
    """Counts the rows of a parent, and hands them on."""
    seen = int.from_bytes(state.get[0]) if state.exists else 0
    for frame in frames:
        seen += len(frame)
        yield frame
    state.update((seen.to_bytes(8),))


def main() -> None:
    """Runs until SIGTERM, with the job's own settings from the environment."""
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    os.environ.update(environment(find_java()))
    settings = load({})
    spark = session.build(settings, checkpoint.default_partitions(), jars.spark())
    spark.conf.set("spark.sql.shuffle.partitions", checkpoint.agree(spark, settings))
    routed = job.route(job.read(spark, settings), settings)
    if "two-stages" in sys.argv:
        spark.conf.set("spark.sql.streaming.unsupportedOperationCheck", "false")
        routed = routed.groupBy("parent").applyInPandasWithState(
            pass_on, routed.schema, job.STATE_SCHEMA, "update", GroupStateTimeout.NoTimeout
        )
    counted = routed.groupBy("parent", "shard").applyInPandasWithState(
        count, job.OUTPUT_SCHEMA, job.STATE_SCHEMA, "update", GroupStateTimeout.NoTimeout
    )
    query = sinks.start(sinks.address(counted.observe(job.METRICS, job.counts()), settings), settings)
    sys.stderr.write("ready: reading\n")
    stop.wait()
    service.end_after_batch(query)
    query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main()
