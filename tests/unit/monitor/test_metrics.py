"""What the metrics say of micro-batches and shards."""

import os
import subprocess
from collections import Counter
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from streaming.coordinator import COORDINATOR
from streaming.monitor.batch import SHOWN_PARENTS, BatchReport, LagMeter, ShardSizes
from streaming.monitor.health import Health
from streaming.monitor.metrics import Metrics, WeightedHistogram, measured
from streaming.worker.rows import LABEL_CHARACTERS, InputRow, InputRows, KeyFacts, facts

PROGRESS = {
    "batchId": 4,
    "numInputRows": 10,
    "timestamp": "2026-01-01T00:00:00.000Z",
    "durationMs": {"triggerExecution": 1_500, "addBatch": 1_000},
    "stateOperators": [{"numRowsTotal": 7, "memoryUsedBytes": 2_000}],
}
BEGAN_MS = 1_767_225_600_000


@pytest.fixture
def metrics() -> Metrics:
    return Metrics(Health(1), LagMeter(), lambda: {"driver": 5}, "4.2.0")


def value(metrics: Metrics, name: str, **labels: str) -> float | None:
    return metrics.registry.get_sample_value(name, labels)


def key(parent: str, shard: int, topics: int, *, clients: int = 0, times: Sequence[int] = ()) -> KeyFacts:
    return KeyFacts(parent, shard, topics, clients, 10 * topics, list(times), 2.0, [])


def test_a_micro_batch_is_counted(metrics: Metrics) -> None:
    counts = Counter({"add:SUBSCRIBED": 3, "dead-letter:not-json": 2, "ignored:unchanged": 1})
    batch = BatchReport.of(PROGRESS, counts, [key("p", 0, 8, times=[BEGAN_MS + 1_400, BEGAN_MS - 1_000])])
    metrics.follow(batch)
    assert value(metrics, "reexpand_records_total") == 10
    assert value(metrics, "reexpand_updates_total", op="add", cause="SUBSCRIBED") == 3
    assert value(metrics, "reexpand_dead_letters_total", reason="not-json") == 2
    assert value(metrics, "reexpand_ignored_total", reason="unchanged") == 1
    assert value(metrics, "reexpand_micro_batch_seconds_sum", phase="total") == 1.5
    assert value(metrics, "reexpand_micro_batch_seconds_sum", phase="work") == 1.0
    assert value(metrics, "reexpand_micro_batch_timestamp_seconds") == BEGAN_MS / 1_000 + 1.5
    assert value(metrics, "reexpand_state_rows") == 7
    assert value(metrics, "reexpand_latency_seconds_count") == 4  # two times, each for two events
    assert value(metrics, "reexpand_latency_seconds_bucket", le="0.1") == 2
    assert value(metrics, "reexpand_latency_seconds_sum") == pytest.approx(2 * (0.1 + 2.5))
    metrics.follow(BatchReport.of({**PROGRESS, "batchId": 5, "numInputRows": 0}, Counter(), []))  # is no news
    assert value(metrics, "reexpand_micro_batches_total") == 1
    assert value(metrics, "reexpand_micro_batch_number") == 5


def test_the_first_start_of_a_query_counts_as_recovery(metrics: Metrics) -> None:
    """One that leaves out an entry starts another query in the same process."""
    metrics.reached("ready", 5.0)
    metrics.reached("ready", 90_000.0)
    assert value(metrics, "reexpand_recovery_seconds", until="ready") == 5.0


def test_sizes_of_shards_are_added_up_and_renewed(metrics: Metrics) -> None:
    first = [key("p", 0, 30), key("p", 1, 10), key("q", 0, 5), key("", 3, 0, clients=2), key("", 4, 0, clients=1)]
    metrics.follow(BatchReport.of(PROGRESS, Counter(), first))
    metrics.follow(BatchReport.of(PROGRESS, Counter(), [key("q", 0, 7), key("", 3, 0, clients=9)]))
    assert value(metrics, "reexpand_topics") == 47
    assert value(metrics, "reexpand_state_bytes") == 470
    assert value(metrics, "reexpand_clients") == 10
    assert value(metrics, "reexpand_parents") == 2
    assert value(metrics, "reexpand_shard_topics", parent="p", shard="0") == 30
    assert value(metrics, "reexpand_shard_skew", parent="p") == 1.5
    assert value(metrics, "reexpand_shard_skew", parent="q") == 1.0


def test_only_the_largest_parents_are_shown_one_by_one() -> None:
    """A job may have a hundred thousand of them."""
    sizes = ShardSizes()
    for number in range(SHOWN_PARENTS + 5):
        sizes.follow(key(f"p{number}", 0, number, clients=1))
    assert set(sizes.largest()) == {f"p{number}" for number in range(5, SHOWN_PARENTS + 5)}
    assert sizes.parents == SHOWN_PARENTS + 5


def test_the_next_driver_knows_the_sizes(metrics: Metrics) -> None:
    first = ShardSizes()
    for each in (key("p", 0, 30), key("p", 1, 10), key("q", 0, 5), key("", 3, 0, clients=2)):
        first.follow(each)
    metrics.shards.load(first.dump())
    assert (metrics.shards.topics, metrics.shards.clients, metrics.shards.state_bytes) == (45, 2, 450)
    assert metrics.shards.largest() == first.largest()
    metrics.shards.follow(key("p", 0, 31))
    assert value(metrics, "reexpand_topics") == 46
    for data in (b"", b"[]", b"{}", b'{"shards": [[1]], "clients": []}'):
        with pytest.raises(ValueError, match=r"."):
            ShardSizes().load(data)


def test_a_parent_without_topics_and_clients_is_forgotten() -> None:
    """Parents that come and go leave nothing."""
    sizes = ShardSizes()
    sizes.follow(key("stays", 0, 3))
    for number in range(100):
        sizes.follow(key(f"p{number}", 0, 2, clients=1))
        sizes.follow(key(f"p{number}", 1, 2))
        sizes.follow(key(f"p{number}", 0, 0, clients=1)._replace(state_bytes=5))
        sizes.follow(key(f"p{number}", 1, 0)._replace(state_bytes=5))
        assert (sizes.parents, sizes.topics, sizes.state_bytes) == (2, 3, 35)
        sizes.follow(key(f"p{number}", 0, 0)._replace(state_bytes=5))
    assert (sizes.parents, sizes.topics, sizes.state_bytes) == (1, 3, 30)
    assert sizes.dump() == b'{"shards":[["stays",0,3,0,30]],"clients":[]}'
    assert len(sizes._topics) == len(sizes._shards) == 1


def test_names_of_parents_in_metrics_have_a_bounded_length() -> None:
    """Two long ones stay two, and a short one is as it is."""
    long = [facts(name, 0, (1, 1, 1), rows([1])).parent for name in ("x" * 8_000, "x" * 8_001)]
    assert {len(each) for each in long} == {LABEL_CHARACTERS}
    assert len({*long}) == 2
    assert facts("é" * LABEL_CHARACTERS, 0, (1, 1, 1), rows([1])).parent == "é" * LABEL_CHARACTERS


@given(st.lists(st.tuples(st.floats(0, 10), st.integers(1, 9))))
def test_a_histogram_counts_each_value_as_often_as_its_weight_says(values: list[tuple[float, int]]) -> None:
    histogram = WeightedHistogram("h", "text", buckets=(1.0, 5.0), registry=None)
    for number, weight in values:
        histogram.observe_all([number], weight)
    (family,) = histogram.collect()
    found = {sample.labels.get("le"): sample.value for sample in family.samples if "bucket" in sample.name}
    bounds = {"1.0": 1.0, "5.0": 5.0, "+Inf": float("inf")}
    assert found == {name: sum(weight for each, weight in values if each <= bound) for name, bound in bounds.items()}


def rows(times: Sequence[int], stream: int = 2) -> InputRows:
    return InputRows.of([InputRow(stream, 0, offset, 0, time, b"") for offset, time in enumerate(times)])


def test_a_key_reports_the_times_of_its_events() -> None:
    found = facts("p", 1, (3, 2, 100), InputRows.concat([rows([5, 7]), rows([9], stream=3)]))
    assert found == KeyFacts("p", 1, 3, 2, 100, [5, 7], 1.0, [(2, 0, 7), (3, 0, 9)])
    assert facts(COORDINATOR, 1, (0, 2, 100), rows([5])).parent == ""


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 5), st.integers(0, 10**13)), min_size=1, max_size=30))
def test_a_key_reports_the_newest_time_of_each_partition(events: list[tuple[int, int, int]]) -> None:
    """In the small numbers of Spark's columns."""
    several = InputRows.of([InputRow(stream, part, at, 0, time, b"") for at, (stream, part, time) in enumerate(events)])
    small = several._replace(
        streams=several.streams.astype(np.int8),
        partitions=several.partitions.astype(np.int32),
    )
    newest: dict[tuple[int, int], int] = {}
    for stream, part, time in events:
        newest[stream, part] = max(time, newest.get((stream, part), 0))
    assert facts("p", 0, (0, 0, 0), small.ordered()).newest == [
        (*place, time) for place, time in sorted(newest.items())
    ]


@example(list(range(200)))
@given(st.lists(st.integers(0, 10**6), min_size=1, max_size=500))
def test_many_times_are_reported_by_a_fair_choice_of_them(times: list[int]) -> None:
    """No more than 16; each quantile is off by no more than one of them stands for."""
    found = facts("p", 0, (0, 0, 0), rows(times))
    assert len(found.times) == min(len(times), 16)
    assert found.weight * len(found.times) == pytest.approx(len(times))
    assert set(found.times) <= set(times)
    for bound in (10**5, 5 * 10**5):
        exact = sum(time <= bound for time in times)
        assert abs(found.weight * sum(time <= bound for time in found.times) - exact) <= found.weight + 1e-6


def test_memory_is_measured_by_kind_of_process() -> None:
    """A child that is no JVM is part of the driver."""
    before = measured(os.getpid())
    assert before["driver"] > 10_000_000
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as child:
        assert measured(child.pid).keys() <= {"driver"}
        child.kill()
    assert measured(2**22 + 1) == {}


def test_a_look_at_the_sizes_does_not_bring_a_parent_back() -> None:
    """A scrape may find the name of a parent that a micro-batch is removing."""
    sizes = ShardSizes()
    sizes._topics["p"] = 1  # its shards are gone already
    assert sizes.largest() == {"p": {}}
    assert not sizes._shards
