"""The end of a query at any moment, on a real Spark: no micro-batch is left to be repeated."""

import os
import time
from random import Random

import pytest
from pyspark.sql import SparkSession

from streaming.spark import sinks
from tests.support.running_job import Streams, last_number
from tests.support.running_query import begun
from tests.support.scene import Scene, repeated

STOPS = int(os.environ.get("REEXPAND_STOPS", "6"))


@pytest.mark.rule("orderly-stop")
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
    scene, random, left = Scene(streams), Random(1), []

    def step(number: int) -> None:
        scene.born("p", f"t{number}")
        scene.sent()

    with repeated(step, 0.02):
        for stop in range(STOPS):
            with begun(spark, settings) as query:
                time.sleep(random.uniform(0.5, 2.5))
                sinks.end_after_batch(query)
                assert query.awaitTermination(30)
            planned, committed = (last_number(streams.checkpoint / "query" / name) for name in ("offsets", "commits"))
            if planned != committed:
                left.append((stop, planned, committed))
    assert left == []
