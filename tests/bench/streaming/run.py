"""The job against the no-op query of the same plan, in turn, on one broker: latency and burst throughput as ratios.

The no-op comes twice: as it is, and with as much output as the job has. So does the job: as it is, and on Spark's
defaults where it has chosen otherwise for speed.

    python -m tests.bench.streaming.run --rounds 3

Latency is what a consumer of the updates topic sees: from handing a topic event to the producer until its first
update is read, at a steady rate of events, and of events that come alone, into an idle job. A burst is produced as fast
as the broker takes it, into an idle job; its time ends when the last update is read. Java compiles what is hot over
minutes, so each process warms up first: some minutes at the steady rate, then two bursts. CPU is that of a system's own
processes, in bursts and at the steady rate; neither the broker's nor the producer's and consumer's.
"""

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar
from uuid import uuid4

from confluent_kafka import OFFSET_END, Consumer, Producer, TopicPartition
from rich.console import Console
from rich.table import Table

from streaming.config import Settings, load
from streaming.local.broker import Broker
from streaming.local.topics import create_topics
from streaming.topics import specs
from tests.bench.streaming.check import Wrong, check
from tests.bench.streaming.cpu import cpu_seconds
from tests.bench.streaming.workload import Workload

T = TypeVar("T")

PARTITIONS = 2
READY_SECONDS = 180
BURST_SECONDS = 300
LOG_SHOWN = 4_000
ALONE, ALONE_RATE = 25, 1.0
"""Events that come alone, and how many of them in a second: none meets another."""
WARM_BURSTS = 2
FRACTIONS = ("CPU s per 100,000", "cores")


@dataclass(frozen=True)
class System:
    """Something that reads the job's inputs and writes its updates.

    Attributes:
        name: the beginning of its topics' names as well.
        command: starts it, with the job's settings in the environment; it says `ready: reading` on standard error.
        environment: what it is told besides.
        counts: it writes no updates, but how many rows of a parent it has seen, as the no-op does.
        records: it writes so many records for each topic event, whoever receives it; 0 for updates.
    """

    name: str
    command: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)
    counts: bool = False
    records: int = 0


JOB = System("job", [str(Path(sys.executable).with_name("reexpand")), "run"])
NO_OP = System("no-op", [sys.executable, "-m", "tests.bench.streaming.noop"], counts=True)
NAIVE = System("job, Spark's defaults", [sys.executable, "-m", "tests.bench.streaming.naive"])
SAME_OUTPUT = System("no-op, same output", [*NO_OP.command, "same-output"], records=2)


class Driver:
    """One process of one system, its topics, a producer and a consumer."""

    def __init__(
        self, system: System, broker: Broker, folder: Path, workload: Workload | None = None, *, starts: bool = True
    ) -> None:
        self._system = system
        prefix = f"{re.sub('[^a-z]+', '-', system.name.lower())}-{uuid4().hex[:6]}"
        names = ("topic_events", "subscription_events", "group_events", "clock", "updates", "dead_letters")
        given = {name: f"{prefix}-{name}" for name in names}
        given |= {"bootstrap_servers": broker.bootstrap_servers, "checkpoint": str(folder / prefix)}
        self.settings: Settings = load(given)
        create_topics(broker.bootstrap_servers, specs(self.settings, PARTITIONS))
        self._environment = {f"REEXPAND_{name.upper()}": value for name, value in given.items()}
        self._log = folder / f"{prefix}.log"
        self._process: subprocess.Popen[bytes]
        if starts:
            self.start()
        client = {"bootstrap.servers": broker.bootstrap_servers}
        # Keys go where Java's own clients put them, so that systems can rely on it that a parent is in one partition.
        producer = {"linger.ms": 0, "queue.buffering.max.messages": 1_000_000, "partitioner": "murmur2_random"}
        self._producer = Producer({**client, **producer})
        self._consumer = Consumer({**client, "group.id": prefix, "fetch.wait.max.ms": 5})
        self._consumer.assign([TopicPartition(self.settings.updates, number, 0) for number in range(PARTITIONS)])
        self.workload = workload or Workload()
        self._counted = dict.fromkeys(self.workload.parents, 0)

    def start(self) -> None:
        """Starts the process."""
        self._process = subprocess.Popen(
            self._system.command,
            env={**os.environ, **self._environment, **self._system.environment},
            stderr=self._log.open("wb"),
            stdout=subprocess.DEVNULL,
        )

    @property
    def pid(self) -> int:
        """The process's number."""
        return self._process.pid

    def prepare(self) -> None:
        """Waits for the query, fills it with the subscriptions, and lets it warm up."""
        deadline = time.monotonic() + READY_SECONDS
        while b"ready: reading" not in self._log.read_bytes():
            self._check_time(deadline - time.monotonic(), "it is not ready")
            time.sleep(0.1)
        self.subscribe()
        self.burst(2_000)
        self.latencies(40, 10)

    def subscribe(self) -> None:
        """Sends all subscriptions, and waits until the broker has them."""
        for key, value in self.workload.group_events():
            self.send(self.settings.group_events, key, value)
        for key, value in self.workload.requests():
            self.send(self.settings.subscription_events, key, value)
        self._producer.flush()

    def create(self, count: int) -> int:
        """Sends new topics, and waits until the broker has them; returns how many updates they cause."""
        topics = self.workload.topics(count)
        for parent, topic in topics:
            self._create(parent, topic)
        self._producer.flush()
        return sum(len(self.workload.receivers(*topic)) for topic in topics)

    def latencies(self, count: int, rate: float) -> list[float]:
        """Seconds from event to update, for events at a steady rate."""
        waiting: dict[str, float] = {}
        order: dict[str, list[str]] = {parent: [] for parent in self.workload.parents}
        found: list[float] = []
        start = time.perf_counter()
        topics = [
            (parent, topic) for parent, topic in self.workload.topics(count) if self.workload.receivers(parent, topic)
        ]
        sent = 0
        while len(found) < len(topics):
            while sent < len(topics) and time.perf_counter() - start >= sent / rate:
                parent, topic = topics[sent]
                waiting[topic] = time.perf_counter()
                order[parent].append(topic)
                self._create(parent, topic)
                self._producer.poll(0)
                sent += 1
            for message in self._consumer.consume(1_000, 0.001):
                now = time.perf_counter()
                value = json.loads(message.value() or b"{}")
                answered = self._answered(value, order)
                found += [now - waiting.pop(topic) for topic in answered if topic in waiting]
            left = start + count / rate + 60 - time.perf_counter()
            self._check_time(left, f"{len(topics) - len(found)} events have no update")
        return found

    def burst(self, count: int) -> float:
        """Seconds until the last update of so many topic events is read."""
        topics = self.workload.topics(count)
        payloads = [
            (parent, json.dumps({"event": "CREATED", "parentTopic": parent, "liteTopic": topic, "timestamp": 0}))
            for parent, topic in topics
        ]
        wanted = count * max(self._system.counts, self._system.records)
        wanted = wanted or sum(len(self.workload.receivers(*topic)) for topic in topics)
        start = time.perf_counter()
        for number, (parent, payload) in enumerate(payloads):
            self._producer.produce(self.settings.topic_events, payload, parent)
            if number % 1_000 == 0:
                self._producer.poll(0)
        self.wait(wanted, start)
        return time.perf_counter() - start

    def wait(self, wanted: int, start: float, most: float = BURST_SECONDS) -> None:
        """Reads so many updates, or as many events as the no-op counts.

        Raises:
            Wrong: they do not come within `most` seconds.
        """
        seen = 0
        while seen < wanted:
            messages = self._consumer.consume(20_000, 0.005)
            self._producer.poll(0)
            if self._system.counts:
                seen += sum(self._progress(json.loads(message.value() or b"{}")) for message in messages)
            else:
                seen += len(messages)
            self._check_time(start + most - time.perf_counter(), f"{wanted - seen} updates are missing")

    def read(self) -> list[dict[str, Any]]:
        """The updates that have come, tombstones left out."""
        self._producer.poll(0)
        return [json.loads(value) for message in self._consumer.consume(10_000, 0.01) if (value := message.value())]

    def send(self, topic: str, key: str, value: dict[str, Any]) -> None:
        """Writes an event to one of the input topics."""
        self._producer.produce(topic, json.dumps(value), key)

    def skip(self) -> None:
        """Waits until what was sent is written, and leaves out the updates that were written until now."""
        self._producer.flush()
        for number in range(PARTITIONS):
            self._consumer.seek(TopicPartition(self.settings.updates, number, OFFSET_END))

    def close(self) -> None:
        """Ends the process."""
        self._producer.flush()
        self._consumer.close()
        self._process.terminate()
        self._process.wait(60)

    def _check_time(self, left: float, problem: str) -> None:
        if left < 0 or self._process.poll() is not None:
            raise Wrong(f"{problem}; the end of its log:\n{self._log.read_text()[-LOG_SHOWN:]}")

    def _progress(self, value: dict[str, Any]) -> int:
        """New topic events that a count of the no-op speaks of; the subscriptions it counts as well are not."""
        parent = value["parentTopic"]
        if parent not in self._counted:
            return 0
        former = self._counted[parent]
        self._counted[parent] = max(former, value["count"] - self._offset)
        return self._counted[parent] - former

    @property
    def _offset(self) -> int:
        """Rows of a parent that are not topic events: its group event and its requests."""
        return 1 + sum(1 for _ in self.workload.requests()) // len(self.workload.parents)

    def _answered(self, value: dict[str, Any], order: dict[str, list[str]]) -> list[str]:
        if not self._system.counts:
            return [value["liteTopic"]]
        fresh = self._progress(value)
        parent = value["parentTopic"]
        done, order[parent] = order[parent][:fresh], order[parent][fresh:]
        return done

    def _create(self, parent: str, topic: str) -> None:
        now = int(time.time() * 1000)
        event = {"event": "CREATED", "parentTopic": parent, "liteTopic": topic, "timestamp": now}
        self.send(self.settings.topic_events, parent, event)


def measure(system: System, broker: Broker, folder: Path, options: argparse.Namespace) -> dict[str, float]:
    """The figures of one process from start to end.

    Raises:
        Wrong: its updates are not what the workload wants.
    """
    driver = Driver(system, broker, folder)
    try:
        driver.prepare()
        if not (system.counts or system.records):
            check(driver, broker.bootstrap_servers)
        steady = at_rate(driver, options.singles, options.rate, round(options.warm_up * options.rate))
        alone = statistics.median(driver.latencies(ALONE, ALONE_RATE))
        for _ in range(WARM_BURSTS):
            driver.burst(options.events)
        before = cpu_seconds(driver.pid)
        bursts = [driver.burst(options.events) for _ in range(options.bursts)]
        burst_cpu = cpu_seconds(driver.pid) - before
    finally:
        driver.close()
    return {
        "p50 ms": steady["p50 ms"],
        "p95 ms": steady["p95 ms"],
        "alone ms": 1000 * alone,
        "events/s": options.events / statistics.median(bursts),
        "CPU s per 100,000": 100_000 * burst_cpu / (options.events * options.bursts),
        "cores": steady["cores"],
    }


def at_rate(driver: Driver, events: int, rate: float, uncounted: int) -> dict[str, float]:
    """Latency and cores in use at a steady rate, after events that are not counted."""
    driver.latencies(uncounted, rate)
    before, start = cpu_seconds(driver.pid), time.monotonic()
    latencies = driver.latencies(events, rate)
    cores = (cpu_seconds(driver.pid) - before) / (time.monotonic() - start)
    quantiles = statistics.quantiles(latencies, n=20)
    return {"p50 ms": 1000 * quantiles[9], "p95 ms": 1000 * quantiles[18], "cores": cores}


def spread(values: Sequence[float]) -> dict[str, float]:
    """Median and range."""
    return {"median": statistics.median(values), "min": min(values), "max": max(values)}


def in_turn(names: Iterable[str], rounds: int, once: Callable[[str], T]) -> dict[str, list[T]]:
    """What `once` gives for each name, round by round, and says on standard error where it is."""
    console = Console(stderr=True)
    found: dict[str, list[T]] = {name: [] for name in names}
    for number in range(rounds):
        for name, results in found.items():
            console.print(f"round {number + 1} of {rounds}: {name}")
            results.append(once(name))
    return found


Figures = dict[str, dict[str, dict[str, float]]]
"""By system or pair of systems, and figure: median, min and max over rounds."""


def summary(found: Mapping[str, list[dict[str, float]]]) -> Figures:
    """Medians over rounds with their range, and the ratios of the job to each other system round by round."""

    def spreads(rounds: list[dict[str, float]]) -> dict[str, dict[str, float]]:
        return {name: spread([figures[name] for figures in rounds]) for name in rounds[0]}

    figures = {system: spreads(rounds) for system, rounds in found.items()}
    jobs = found.get(JOB.name)
    for system, rounds in found.items():
        if jobs and system != JOB.name:
            pairs = zip(jobs, rounds, strict=True)
            figures[f"job / {system}"] = spreads(
                [{name: job[name] / other[name] for name in job} for job, other in pairs]
            )
    return figures


def compare(systems: Sequence[System], options: argparse.Namespace) -> tuple[Figures, dict[str, str]]:
    """Measures the systems in turn, on one broker; returns the figures, and what is wrong with those that have none."""
    by_name = {system.name: system for system in systems}
    wrong: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as folder, Broker(Path(folder) / "kafka") as broker:

        def once(name: str) -> dict[str, float] | None:
            if name in wrong:
                return None
            try:
                return measure(by_name[name], broker, Path(folder), options)
            except Wrong as error:
                wrong[name] = str(error)
                return None

        found = in_turn(by_name, options.rounds, once)
    return summary(
        {name: [each for each in rounds if each] for name, rounds in found.items() if name not in wrong}
    ), wrong


def table(figures: Figures) -> Table:
    """The figures for people."""
    names = list(next(iter(figures.values())))
    found = Table("", *names, title="median (min to max) over rounds")
    for system, row in figures.items():
        cells = []
        for name, value in row.items():
            digits = 2 if "/ " in system or name in FRACTIONS else 0
            cells.append(f"{value['median']:,.{digits}f} ({value['min']:,.{digits}f} to {value['max']:,.{digits}f})")
        found.add_row(system, *cells)
    return found


def report(figures: Figures, wrong: Mapping[str, str], options: argparse.Namespace, note: str = "") -> None:
    """Prints the table and a note below, or JSON.

    Raises:
        SystemExit: the updates of a system are wrong, so it has no figures.
    """
    if options.json:
        print(json.dumps(figures, indent=2))  # noqa: T201 - the command's output
    elif figures:
        Console(width=180).print(table(figures))
    if note:
        Console(stderr=options.json).print(note)
    if wrong:
        raise SystemExit("\n".join(f"{system} has no figures: {reason}" for system, reason in wrong.items()))


def arguments(description: str | None) -> argparse.ArgumentParser:
    """The options of a run."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3, help="processes of each system, in turn")
    parser.add_argument("--events", type=int, default=100_000, help="topic events of a burst")
    parser.add_argument("--bursts", type=int, default=2, help="bursts counted in each process")
    parser.add_argument("--singles", type=int, default=300, help="events whose latency is measured in each process")
    parser.add_argument("--rate", type=float, default=20, help="events a second while latency is measured")
    parser.add_argument("--warm-up", type=float, default=240, help="seconds at that rate before it, in each process")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    return parser


def main() -> None:
    """Runs the rounds and prints the table."""
    options = arguments(__doc__).parse_args()
    report(*compare((JOB, NAIVE, NO_OP, SAME_OUTPUT), options), options)


if __name__ == "__main__":
    main()
