"""The pace of micro-batches on a real Spark: the budget of CPU, and the waits that it causes."""

import itertools
import time
from datetime import datetime
from typing import Any

import orjson
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from streaming.spark import sinks
from tests.support.running_job import SETTLE_SECONDS, Streams
from tests.support.running_query import begun
from tests.support.scene import Scene

ENOUGH = 5
"""Number of micro-batches behind the first one that are looked at."""


def test_a_budget_has_who_overdraws_it_wait(spark: SparkSession) -> None:
    """Half a second of it may be used in advance, and no wait is longer than allowed."""
    jvm: Any = spark._jvm
    budget = jvm.reexpand.CpuBudget(0.5, 400)
    assert budget.spend(10.0, 0.2) == 0
    assert budget.spend(0.1, 0.2) == 0, "0.25 in advance and 0.05 earned: 0.1 is left"
    assert budget.spend(0.1, 0.25) == 200, "0.1 too much"
    assert budget.spend(0.2, 0.0) == 0, "it has waited"
    assert budget.spend(0.1, 9.0) == 400
    assert budget.spend(0.4, 0.1) == 200, "what was beyond the longest wait is forgiven"


def test_micro_batches_under_a_trickle_are_spaced(
    spark: SparkSession, streams: Streams, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the longest wait, as the budget is next to nothing; a query that is to stop does not wait."""
    monkeypatch.setattr(sinks, "GRACE_MS", 0)
    settings = streams.settings.model_copy(update={"shuffle_partitions": 1, "pace_cpu": 0.001})
    scene = Scene(streams)
    with begun(spark, settings) as query:
        try:
            for number in range(600):
                scene.born("p", f"t{number}")
                scene.sent()
                time.sleep(0.1)
                spans = micro_batches(query)
                if len(spans) > ENOUGH:
                    break
        finally:
            sinks.end_after_batch(query)
        assert query.awaitTermination(SETTLE_SECONDS)
    gaps = [
        later - begin - took for (begin, took), (later, _) in itertools.pairwise(spans[1:])
    ]  # the first one starts it
    assert len(gaps) == ENOUGH - 1
    assert min(gaps) >= sinks.LONGEST_WAIT_MS / 1_000 - 0.05


def micro_batches(query: StreamingQuery) -> list[tuple[float, float]]:
    """Begin and duration in seconds of each micro-batch that had records, in order."""
    java: Any = query
    found = (orjson.loads(each.json()) for each in java._jsq.recentProgress())
    return [
        (datetime.fromisoformat(each["timestamp"]).timestamp(), each["durationMs"]["triggerExecution"] / 1_000)
        for each in found
        if each["numInputRows"]
    ]
