"""Metrics of a job, in a dedicated registry, and the memory of its processes, from /proc."""

import os
import platform
import time
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from streaming.monitor.batch import PHASES, BatchReport, LagMeter, ShardSizes, skew
from streaming.monitor.health import Condition, Health
from streaming.records.model import Reason
from streaming.records.op import Cause, Op
from streaming.state.client import Ignored

_LATENCY_BUCKETS: Final = (0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 1.5, 2, 3, 5, 10, 30, 60, 300, 3_600)
_PHASE_BUCKETS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.2, 0.3, 0.5, 1, 2, 5, 10, 30, 60, 300)

_PROC: Final = Path("/proc")
_KEPT_SECONDS: Final = 30.0
"""Validity of a measurement of memory, in seconds. Linux counts all pages of the processes: 50 ms of CPU."""

ADD_AND_REMOVE: Final = {Op.ADD: "add", Op.REMOVE: "remove"}


class WeightedHistogram(Histogram):
    """Histogram with weighted observations, for which prometheus_client has no function."""

    def observe_all(self, values: Iterable[float], weight: float) -> None:
        """Count each value with a weight."""
        for value in values:
            self._sum.inc(value * weight)
            self._buckets[bisect_left(self._upper_bounds, value)].inc(weight)


class Metrics(Collector):
    """Metrics of the job. Gauges of health, lag, shards and memory are computed at each scrape."""

    def __init__(
        self, health: Health, lag: LagMeter, memory: Callable[[], Mapping[str, int]], spark: str = "unknown"
    ) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]  # an additional unused series per metric
        self.registry = CollectorRegistry()
        self._gauge = partial(Gauge, registry=self.registry)
        self.shards = ShardSizes()
        self._health = health
        self._lag = lag
        self._memory = memory
        self._make_counters()
        self._make_gauges()
        build = self._gauge("reexpand_build_info", "Versions of the job.", ("version", "spark", "python"))
        build.labels(metadata.version("reexpand"), spark, platform.python_version()).set(1)
        self.registry.register(self)
        self._latency = WeightedHistogram(
            "reexpand_latency_seconds",
            "Time from the timestamp of an event to the commit of its micro-batch, once for each key that applied it.",
            buckets=_LATENCY_BUCKETS, registry=self.registry,
        )  # fmt: skip

    def _make_counters(self) -> None:
        registry = self.registry
        self._records = Counter("reexpand_records", "Records read.", registry=registry)
        self._batches = Counter("reexpand_micro_batches", "Micro-batches committed.", registry=registry)
        self._updates = Counter("reexpand_updates", "Updates written.", ("op", "cause"), registry=registry)
        self._letters = Counter("reexpand_dead_letters", "Dead letters written.", ("reason",), registry=registry)
        self._ignored = Counter("reexpand_ignored", "Valid entries without any effect.", ("reason",), registry=registry)
        self._phases = Histogram(
            "reexpand_micro_batch_seconds", "Time of a micro-batch that read records, by phase.", ("phase",),
            buckets=_PHASE_BUCKETS, registry=registry,
        )  # fmt: skip
        # Prometheus cannot compute an increase for a series that starts with its first event.
        for op in Op:
            for cause in Cause:
                self._updates.labels(ADD_AND_REMOVE[op], cause)
        for reason in Reason:
            self._letters.labels(reason)
        for ignored in Ignored:
            self._ignored.labels(ignored)
        for phase in PHASES.values():
            self._phases.labels(phase)

    def _make_gauges(self) -> None:
        gauge = self._gauge
        self._number = gauge("reexpand_micro_batch_number", "Number of the last micro-batch.")
        self._ended = gauge("reexpand_micro_batch_timestamp_seconds", "Time of the last commit, since the epoch.")
        self._size = gauge("reexpand_micro_batch_records", "Records of the last micro-batch that read any.")
        self._state_keys = gauge("reexpand_state_rows", "Keys that have a state.")
        self._store = gauge("reexpand_state_store_bytes", "Memory of Spark's state stores.")
        self._reached: set[str] = set()
        text = "Time from the start of the process until a stage."
        self._recovery = gauge("reexpand_recovery_seconds", text, ("until",))

    def follow(self, batch: BatchReport) -> None:
        """Record a micro-batch."""
        self._number.set(batch.number)
        if not batch.records:
            return
        self._batches.inc()
        self._records.inc(batch.records)
        self._ended.set(batch.ended)
        self._size.set(batch.records)
        self._state_keys.set(batch.state_keys)
        self._store.set(batch.state_bytes)
        for name, phase in PHASES.items():
            if name in batch.phases:
                self._phases.labels(phase).observe(batch.phases[name])
        for kind, count in batch.counts.items():
            name, _, rest = kind.partition(":")
            if name == "ignored":
                self._ignored.labels(rest).inc(count)
            elif name == "dead-letter":
                self._letters.labels(rest).inc(count)
            elif name in ADD_AND_REMOVE.values():
                self._updates.labels(name, rest).inc(count)
        for key in batch.keys:
            self.shards.follow(key)
            if key.parent:
                waits = (max(0.0, batch.ended - timestamp / 1_000) for timestamp in key.times)
                self._latency.observe_all(waits, key.weight)

    def reached(self, stage: str, seconds: float) -> None:
        """Record when a stage of the start was first reached: `ready`, `first-micro-batch`, `caught-up`."""
        if stage not in self._reached:  # a query may restart within the process
            self._reached.add(stage)
            self._recovery.labels(stage).set(seconds)

    def collect(self) -> Iterator[Metric]:
        """Yield the gauges that are computed at each scrape."""
        yield from self._of_health()
        yield from self._of_lag()
        yield from self._of_shards()
        memory = GaugeMetricFamily("reexpand_memory_bytes", "Memory of the job on this machine.", labels=("process",))
        for process, size in self._memory().items():
            memory.add_metric((process,), size)
        yield memory

    def _of_health(self) -> Iterator[Metric]:
        answer = self._health.answer()
        state = GaugeMetricFamily("reexpand_state", "1 for the condition of the job, else 0.", labels=("state",))
        for condition in Condition:
            state.add_metric((condition,), condition is answer.condition)
        yield state
        began = time.time() - self._health.uptime
        yield GaugeMetricFamily("reexpand_start_time_seconds", "Start of the process, since the epoch.", round(began))
        yield GaugeMetricFamily(
            "reexpand_kafka_unreachable_seconds", "Time for which Kafka has not answered; 0 if it answers.",
            self._health.unreachable_seconds,
        )  # fmt: skip

    def _of_lag(self) -> Iterator[Metric]:
        records = GaugeMetricFamily("reexpand_input_lag_records", "Unread records of an input.", labels=("input",))
        seconds = GaugeMetricFamily(
            "reexpand_input_lag_seconds", "Time for which the oldest unread record has waited, at most.",
            labels=("input",),
        )  # fmt: skip
        for topic, lag in self._lag.lags.items():
            records.add_metric((topic,), lag.records)
            seconds.add_metric((topic,), lag.seconds)
        yield records
        yield seconds

    def _of_shards(self) -> Iterator[Metric]:
        shards = self.shards
        yield GaugeMetricFamily("reexpand_topics", "Lite topics.", shards.topics)
        yield GaugeMetricFamily("reexpand_clients", "Clients.", shards.clients)
        yield GaugeMetricFamily("reexpand_parents", "Parents with lite topics or clients.", shards.parents)
        yield GaugeMetricFamily("reexpand_state_bytes", "Bytes of states, parts included.", shards.state_bytes)
        names = ("parent", "shard")
        topics = GaugeMetricFamily("reexpand_shard_topics", "Lite topics of a shard of a large parent.", labels=names)
        sizes = GaugeMetricFamily("reexpand_shard_state_bytes", "Bytes of its state, parts included.", labels=names)
        skews = GaugeMetricFamily(
            "reexpand_shard_skew", "Fullest shard of a large parent, as a multiple of the mean.", labels=("parent",)
        )
        for parent, by_number in shards.largest().items():
            skews.add_metric((parent,), skew(by_number))
            for number, size in by_number.items():
                topics.add_metric((parent, str(number)), size.topics)
                sizes.add_metric((parent, str(number)), size.state_bytes)
        yield topics
        yield sizes
        yield skews


class ProcessMemory:
    """Meter of the memory of this process and its descendants. Without /proc it returns nothing.

    Shared memory, for example of forked workers, is divided among the processes, so the sum is correct.
    """

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._measured: dict[str, int] = {}
        self._until = float("-inf")

    def __call__(self) -> dict[str, int]:
        """Return bytes by kind of process: driver, jvm, workers."""
        if self._now() >= self._until:
            self._measured = measured(os.getpid())
            self._until = self._now() + _KEPT_SECONDS
        return self._measured


def measured(pid: int) -> dict[str, int]:
    """Measure the memory of a process and its descendants in bytes, by kind."""
    sizes: dict[str, int] = {}
    for each, kind in _family(pid, "driver"):
        lines = _proc(each, "smaps_rollup").splitlines()
        size = next((int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:")), None)
        if size is not None:
            sizes[kind] = sizes.get(kind, 0) + size
    return sizes


def _family(pid: int, kind: str) -> Iterator[tuple[int, str]]:
    yield pid, kind
    for task in (_PROC / str(pid) / "task").glob("*"):
        for child in map(int, _proc(pid, f"task/{task.name}/children").split()):
            is_java = "java" in _proc(child, "comm")
            yield from _family(child, "jvm" if is_java else kind if kind == "driver" else "workers")


def _proc(pid: int, file: str) -> str:
    """Return a file about a process; empty if the process has ended."""
    try:
        return (_PROC / str(pid) / file).read_text()
    except OSError:
        return ""
