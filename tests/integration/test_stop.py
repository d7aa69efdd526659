"""The end of a query at any moment, on a real Spark: no micro-batch is left to be repeated."""

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

import pytest
from pyspark.sql import SparkSession

from streaming.spark import checkpoint, pace, service
from streaming.spark.kafka_admin import KafkaAdmin
from streaming.spark.lease import Lease
from tests.support.running_job import Streams
from tests.support.scene import Scene

STOPS = int(os.environ.get("REEXPAND_STOPS", "6"))


@contextmanager
def trickle(streams: Streams) -> Iterator[None]:
    """Topics that are born all the time."""
    ended = threading.Event()

    def run() -> None:
        scene = Scene(streams)
        number = 0
        while not ended.wait(0.02):
            number += 1
            scene.born("p", f"t{number}")
            scene.sent()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def last_number(folder: Path) -> int:
    """Return the number of the last micro-batch in a log of the checkpoint; -1 if there is none."""
    return max((int(file.name) for file in folder.glob("[0-9]*")), default=-1)


@pytest.mark.parametrize(
    "given",
    [
        pytest.param({}, id="a budget of CPU"),
        pytest.param({"pace_cpu": 0.0}, id="no budget", marks=pytest.mark.long),
        pytest.param({"trigger_interval_ms": 60_000}, id="a trigger interval", marks=pytest.mark.long),
    ],
)
def test_a_query_that_is_to_end_leaves_no_micro_batch_to_be_repeated(
    spark: SparkSession, streams: Streams, given: dict[str, float]
) -> None:
    """Nor does it wait for its trigger. Spark itself would interrupt a micro-batch that is being planned."""
    settings = streams.settings.model_copy(update={"shuffle_partitions": 1, **given})
    random, left = Random(1), []
    with trickle(streams):
        for stop in range(STOPS):
            agreed = checkpoint.agree(spark, settings)
            with KafkaAdmin(spark, settings) as admin, Lease(spark, settings, agreed.checkpoint_id) as lease:
                query, _ = service.begin(service.Start(spark, settings, admin, lease, agreed), {})
                time.sleep(random.uniform(0.5, 2.5))
                pace.end_after_batch(query)
                assert query.awaitTermination(30)
            planned, committed = (last_number(streams.checkpoint / "query" / name) for name in ("offsets", "commits"))
            if planned != committed:
                left.append((stop, planned, committed))
    assert left == []
