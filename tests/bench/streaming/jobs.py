"""Suites that measure single jobs: low rates, a cluster, a backlog, a wide request, questions."""

import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

from streaming.config import Settings
from streaming.inspect import Filter
from streaming.inspect.api import Inspector
from streaming.local.broker import Broker
from streaming.local.cluster import SparkCluster
from tests.bench.command import broker_and_folder, in_turn, milliseconds, parsed, progress, quantiles, show
from tests.bench.streaming.cpu import cpu_seconds, worker_bytes, worker_memory
from tests.bench.streaming.driver import JOB, Driver, System
from tests.bench.streaming.run import ALONE_RATE, at_rate
from tests.bench.streaming.workload import CLIENT, GROUP, Workload
from tests.support import events
from tests.support.scene import repeated

MB = 1_000_000
CHUNK = 50_000
MOST_SECONDS = 1_800
WORKERS = 2

WIDE_RATE = 5
"""Topics of another parent per second."""

TURNS, RATE = 4, 4.0
"""Turns of topic events with and without questions, and events per second."""

ANSWER_SECONDS = 60.0


def low_rate() -> None:
    """Cores and latency of the job at a low rate, with a budget of CPU or a trigger interval.

    Latency is measured at the steady rate, and for single events, one per second.
    """
    options = parsed(
        low_rate,
        paces=([0, 0.35, 0.2], "budgets (pace_cpu), in cores"),
        intervals=([1_000], "trigger intervals, in milliseconds"),
        rate=(20.0, "events per second"),
        events=(400, "events that are measured in each case"),
        alone=(20, "events that come alone in each case"),
        warm_up=(240.0, "seconds at that rate before, in each case"),
    )
    cases = {f"pace_cpu = {pace:g}": {"REEXPAND_PACE_CPU": str(pace)} for pace in options.paces}
    cases |= {f"trigger_interval_ms = {ms}": {"REEXPAND_TRIGGER_INTERVAL_MS": str(ms)} for ms in options.intervals}
    figures: dict[str, dict[str, float]] = {}
    with broker_and_folder() as (broker, folder):
        for name, environment in cases.items():
            progress(f"{name}: {options.warm_up:g} s of warm-up, then {options.events / options.rate:g} s")
            with Driver(replace(JOB, environment=environment), broker, folder) as driver:
                found = at_rate(driver, options.events, options.rate, round(options.warm_up * options.rate))
                alone = driver.latencies(options.alone, ALONE_RATE)
            figures[name] = {**found, "alone ms": 1000 * statistics.median(alone)}
            progress(f"{name}: p50 {found['p50 ms']:.0f} ms, {found['cores']:.2f} cores")
    show(figures, f"{options.rate:g} events per second", as_json=options.json)


def cluster() -> None:
    """Throughput of bursts: the job in one process, and on a Spark cluster of two workers with one core each.

    They take turns. A round's figure is the median of its bursts.
    """
    options = parsed(
        cluster,
        rounds=(3, "jobs in one process, and on a cluster"),
        events=(100_000, "topic events of a burst"),
        warm_bursts=(5, "bursts before those that are counted"),
        bursts=(2, "bursts counted in each round"),
    )
    with broker_and_folder() as (broker, folder):

        def throughput(where: str) -> float:
            with ExitStack() as stack:
                system = JOB
                if where == "cluster":
                    started = stack.enter_context(SparkCluster(folder / f"cluster-{uuid4().hex[:6]}", workers=WORKERS))
                    system = replace(JOB, environment={"REEXPAND_MASTER": started.url})
                driver = stack.enter_context(Driver(system, broker, folder))
                seconds = [driver.burst(options.events) for _ in range(options.warm_bursts + options.bursts)]
            return float(options.events / statistics.median(seconds[options.warm_bursts :]))

        found = in_turn(("one process", "cluster"), options.rounds, throughput)
    found["cluster / one process"] = [many / one for one, many in zip(*found.values(), strict=True)]
    show({name: {"events/s": values} for name, values in found.items()}, "over rounds", as_json=options.json)


def backlog() -> None:
    """Catching up: topic events that were there before the job starts, as after an hour in which it was away.

    Events per second are those of the job from its start, with the start of Spark, until the last update is written. No
    consumer reads meanwhile: it would use the same cores.
    """
    options = parsed(
        backlog,
        events=(5_000_000, "topic events that wait"),
        per_trigger=([100_000], "records that a micro-batch reads at most"),
    )
    found: dict[str, dict[str, float]] = {}
    for per_trigger in options.per_trigger:
        progress(f"{options.events:,} events, {per_trigger:,} per micro-batch")
        with broker_and_folder() as (broker, folder):
            found[f"{per_trigger:,} per micro-batch"] = catch_up(broker, folder, options.events, per_trigger)
    show(found, f"{options.events:,} topic events", as_json=options.json)


def catch_up(broker: Broker, folder: Path, events: int, per_trigger: int) -> dict[str, float]:
    system = replace(JOB, environment={"REEXPAND_MAX_OFFSETS_PER_TRIGGER": str(per_trigger)})
    driver = Driver(system, broker, folder, Workload(quota=-1), starts=False)
    driver.subscribe()
    wanted = sum(driver.create(min(CHUNK, events - first)) for first in range(0, events, CHUNK))
    start = time.perf_counter()
    driver.start()
    try:
        with worker_memory(driver.pid) as memory:
            driver.wait_written(wanted, start, MOST_SECONDS)
        seconds = time.perf_counter() - start
        return {
            "seconds": seconds,
            "events/s": events / seconds,
            "updates/s": wanted / seconds,
            "CPU s per 100,000": 100_000 * cpu_seconds(driver.pid) / events,
            "worker MB at most": max(memory) / MB,
        }
    finally:
        driver.close()


def wide() -> None:
    """A client subscribes to a parent with very many topics: time, memory, and the wait of others.

    Meanwhile topics of another parent are created at a steady rate: their latencies show the length of micro-batches.
    """
    options = parsed(wide, topics=(1_000_000, "of the parent"))
    with broker_and_folder() as (broker, folder), _filled(JOB, broker, folder, options.topics) as driver:
        before = worker_bytes(driver.pid)
        parent = driver.workload.parents[0]
        driver.send(events.wildcard(group="other", parent="other"))
        driver.send(events.replace("*", client="narrow", group="other", parent="other"))
        time.sleep(3)
        start = time.perf_counter()
        driver.send(events.replace("**", client="wide", group=GROUP.format(parent=parent), parent=parent))
        with worker_memory(driver.pid) as memory:
            seconds, updates, waits = _follow(driver, options.topics, start)
    figures = {
        "updates": updates,
        "seconds until the last one": seconds,
        "updates/s": updates / seconds,
        "worker MB before": before / MB,
        "worker MB at most": max(memory) / MB,
        **quantiles(waits, "ms of other topics"),
    }
    show({"wide": figures}, f"{options.topics:,} topics", as_json=options.json)


def _follow(driver: Driver, topics: int, start: float) -> tuple[float, int, list[float]]:
    """Create topics of the other parent until all updates are read; return seconds, updates, and waits in ms."""
    waits: list[float] = []
    sent: dict[str, float] = {}
    updates = number = 0
    while updates < topics or sent:
        if updates < topics and time.perf_counter() - start >= number / WIDE_RATE:
            topic = f"topic{number}"
            sent[topic] = time.perf_counter()
            driver.send(events.created(topic, parent="other", timestamp=0))
            number += 1
        for update in driver.read():
            if update["clientId"] == "narrow":
                waits.append(1_000 * (time.perf_counter() - sent.pop(update["liteTopic"])))
            else:
                updates += 1
                done = time.perf_counter() - start
    return done, updates, waits


def asking() -> None:
    """Questions to a job whose parent has a million topics: time until the answer, and the wait of others.

    A topic event may wait for the micro-batch of a question, so its latency is measured alternately with continuous
    questions and without.
    """
    options = parsed(
        asking,
        topics=(1_000_000, "topics of the parent"),
        shards=(4, "shards of the parent"),
        times=(10, "repetitions of each question"),
        events=(30, "topic events of a turn"),
    )
    system = replace(JOB, environment={"REEXPAND_SHARDS": f"{Workload(parents=1).parents[0]}={options.shards}"})
    found: dict[str, dict[str, float]] = {}
    with broker_and_folder() as (broker, folder), _filled(system, broker, folder, options.topics) as driver:
        before = worker_bytes(driver.pid)
        with Inspector(driver.settings, ANSWER_SECONDS) as inspector:
            for name, ask in _questions(inspector, driver.workload).items():
                progress(name)
                first, *others = milliseconds(ask, options.times)
                found[name] = {"first ms": first, **quantiles(others, "ms")}
        found["largest worker"] = {"MB before": before / MB, "MB after": worker_bytes(driver.pid) / MB}
        waits: dict[str, list[float]] = {"events alone": [], "events during questions": []}
        for turn in range(2 * TURNS):
            with _asked(driver.settings, driver.workload) if turn % 2 else nullcontext():
                latencies = driver.latencies(options.events, RATE)
            list(waits.values())[turn % 2].extend(1_000 * seconds for seconds in latencies)
    found |= {name: quantiles(several, "ms") for name, several in waits.items()}
    show(found, f"{options.topics:,} topics, {options.shards} shards", as_json=options.json)


def _questions(inspector: Inspector, workload: Workload) -> dict[str, Callable[[], object]]:
    (parent,) = workload.parents
    client, topic = CLIENT.format(number=3), workload.made[len(workload.made) // 80][1]
    region, group = topic.partition("__")[0], GROUP.format(parent=parent)

    def plan(pattern: str) -> object:
        return inspector.plan(events.replace(pattern, client="new", group=group, parent=parent, version=1))

    return {
        "explain": lambda: inspector.explain(client, topic),
        "topics: the first 100": lambda: next(inspector.topics(parent, limit=100)),
        "topics: one tenant, the first 100": lambda: next(
            inspector.topics(parent, Filter(pattern=f"*__{workload.tenant()}__*"), limit=100)
        ),
        "topics: all": lambda: sum(1 for _ in inspector.topics(parent, limit=10_000)),
        "clients": lambda: list(inspector.clients(parent)),
        "plan: one tenant of a region": lambda: plan(f"{region}__{workload.tenant()}__*"),
        "plan: **": lambda: plan("**"),
    }


@contextmanager
def _asked(settings: Settings, workload: Workload) -> Iterator[None]:
    with Inspector(settings, ANSWER_SECONDS) as inspector:
        explain = _questions(inspector, workload)["explain"]

        def ask(_: int) -> None:
            explain()

        with repeated(ask, 0):
            yield


@contextmanager
def _filled(system: System, broker: Broker, folder: Path, topics: int) -> Iterator[Driver]:
    """Run a job that stores topics of one parent."""
    with Driver(system, broker, folder, Workload(parents=1, quota=-1)) as driver:
        progress(f"{topics:,} topics are created")
        start = time.perf_counter()
        for done in range(0, topics, CHUNK):
            before = driver.written()
            driver.wait_written(before + driver.create(min(CHUNK, topics - done)), start, MOST_SECONDS)
        driver.skip()
        yield driver
