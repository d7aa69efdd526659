"""The job against the no-op query of the same plan, in turn, on one broker: latency and burst throughput as ratios.

    python -m tests.bench.streaming.run --rounds 3

Latency is what a consumer of the updates topic sees: from handing a topic event to the producer until its first
update is read, at a steady rate of events. A burst is produced as fast as the broker takes it, into an idle job; its
time ends when the last update is read. The first burst of each process is not counted.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

from confluent_kafka import Consumer, Producer, TopicPartition
from rich.console import Console
from rich.table import Table

from streaming.config import Settings, load
from streaming.local.broker import Broker
from streaming.local.topics import create_topics
from streaming.topics import specs
from tests.bench.streaming.workload import PARENTS, Workload

PARTITIONS = 2
READY_SECONDS = 180
COMMANDS = {
    "job": [str(Path(sys.executable).with_name("reexpand")), "run"],
    "no-op": [sys.executable, "-m", "tests.bench.streaming.noop"],
}


@dataclass
class Measured:
    """What one process reached."""

    latencies: list[float] = field(default_factory=list)
    bursts: list[float] = field(default_factory=list)


class Driver:
    """One process of one system, its topics, a producer and a consumer."""

    def __init__(self, system: str, broker: Broker, folder: Path, events: int) -> None:
        self._system = system
        self._events = events
        prefix = f"{system}-{uuid4().hex[:6]}"
        names = ("topic_events", "subscription_events", "group_events", "clock", "updates", "dead_letters")
        given = {name: f"{prefix}-{name}" for name in names}
        given |= {"bootstrap_servers": broker.bootstrap_servers, "checkpoint": str(folder / prefix)}
        self._settings: Settings = load(given)
        create_topics(broker.bootstrap_servers, specs(self._settings, PARTITIONS))
        environment = {f"REEXPAND_{name.upper()}": value for name, value in given.items()}
        self._log = folder / f"{prefix}.log"
        self._process = subprocess.Popen(
            COMMANDS[system], env={**os.environ, **environment}, stderr=self._log.open("wb"), stdout=subprocess.DEVNULL
        )
        client = {"bootstrap.servers": broker.bootstrap_servers}
        self._producer = Producer({**client, "linger.ms": 0, "queue.buffering.max.messages": 1_000_000})
        self._consumer = Consumer({**client, "group.id": prefix, "fetch.wait.max.ms": 5})
        self._consumer.assign([TopicPartition(self._settings.updates, number, 0) for number in range(PARTITIONS)])
        self._workload = Workload()
        self._counted = dict.fromkeys(PARENTS, 0)

    @property
    def pid(self) -> int:
        """The process's number."""
        return self._process.pid

    def prepare(self) -> None:
        """Waits for the query, fills it with the subscriptions, and lets it warm up."""
        deadline = time.monotonic() + READY_SECONDS
        while b"ready: reading" not in self._log.read_bytes():
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise SystemExit(f"{self._system} does not start:\n{self._log.read_text()}")
            time.sleep(0.1)
        for key, value in self._workload.group_events():
            self._send(self._settings.group_events, key, value)
        for key, value in self._workload.requests():
            self._send(self._settings.subscription_events, key, value)
        self._producer.flush()
        self.burst(2_000)
        self.latencies(40, 10)

    def latencies(self, count: int, rate: float) -> list[float]:
        """Seconds from event to update, for events at a steady rate."""
        waiting: dict[str, float] = {}
        order: dict[str, list[str]] = {parent: [] for parent in PARENTS}
        found: list[float] = []
        start = time.perf_counter()
        topics = [
            (parent, topic) for parent, topic in self._workload.topics(count) if self._workload.receivers(parent, topic)
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
            if time.perf_counter() - start > count / rate + 60:
                raise SystemExit(f"{self._system}: {len(topics) - len(found)} events have no update")
        return found

    def burst(self, count: int) -> float:
        """Seconds until the last update of so many topic events is read."""
        topics = self._workload.topics(count)
        payloads = [
            (parent, json.dumps({"event": "CREATED", "parentTopic": parent, "liteTopic": topic, "timestamp": 0}))
            for parent, topic in topics
        ]
        wanted = count if self._system == "no-op" else sum(self._workload.receivers(*topic) for topic in topics)
        start = time.perf_counter()
        for number, (parent, payload) in enumerate(payloads):
            self._producer.produce(self._settings.topic_events, payload, parent)
            if number % 1_000 == 0:
                self._producer.poll(0)
        seen = 0
        while seen < wanted:
            messages = self._consumer.consume(20_000, 0.05)
            self._producer.poll(0)
            if self._system == "no-op":
                seen += sum(self._progress(json.loads(message.value() or b"{}")) for message in messages)
            else:
                seen += len(messages)
            if time.perf_counter() - start > 300:
                raise SystemExit(f"{self._system}: {wanted - seen} updates are missing")
        return time.perf_counter() - start

    def close(self) -> None:
        """Ends the process."""
        self._producer.flush()
        self._consumer.close()
        self._process.terminate()
        self._process.wait(60)

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
        return 1 + sum(1 for _ in self._workload.requests()) // len(PARENTS)

    def _answered(self, value: dict[str, Any], order: dict[str, list[str]]) -> list[str]:
        if self._system == "job":
            return [value["liteTopic"]]
        fresh = self._progress(value)
        parent = value["parentTopic"]
        done, order[parent] = order[parent][:fresh], order[parent][fresh:]
        return done

    def _create(self, parent: str, topic: str) -> None:
        now = int(time.time() * 1000)
        event = {"event": "CREATED", "parentTopic": parent, "liteTopic": topic, "timestamp": now}
        self._send(self._settings.topic_events, parent, event)

    def _send(self, topic: str, key: str, value: dict[str, Any]) -> None:
        self._producer.produce(topic, json.dumps(value), key)


def measure(system: str, broker: Broker, folder: Path, options: argparse.Namespace) -> Measured:
    """One process from start to end."""
    driver = Driver(system, broker, folder, options.events)
    try:
        driver.prepare()
        driver.burst(options.events)
        bursts = [driver.burst(options.events) for _ in range(options.bursts)]
        return Measured(driver.latencies(options.singles, options.rate), bursts)
    finally:
        driver.close()


def summary(found: dict[str, list[Measured]], options: argparse.Namespace) -> dict[str, Any]:
    """Medians over rounds with their range, and the ratios of job to no-op round by round."""

    def figures(measured: Measured) -> dict[str, float]:
        quantiles = statistics.quantiles(measured.latencies, n=20)
        return {
            "p50 ms": 1000 * quantiles[9],
            "p95 ms": 1000 * quantiles[18],
            "events/s": options.events / statistics.median(measured.bursts),
        }

    by_round = {system: [figures(measured) for measured in rounds] for system, rounds in found.items()}
    names = ("p50 ms", "p95 ms", "events/s")

    def spread(values: list[float]) -> dict[str, float]:
        return {"median": statistics.median(values), "min": min(values), "max": max(values)}

    table: dict[str, Any] = {
        system: {name: spread([figure[name] for figure in rounds]) for name in names}
        for system, rounds in by_round.items()
    }
    table["job / no-op"] = {
        name: spread([job[name] / noop[name] for job, noop in zip(by_round["job"], by_round["no-op"], strict=True)])
        for name in names
    }
    return table


def main() -> None:
    """Runs the rounds and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3, help="processes of each system, in turn")
    parser.add_argument("--events", type=int, default=100_000, help="topic events of a burst")
    parser.add_argument("--bursts", type=int, default=2, help="bursts counted in each process")
    parser.add_argument("--singles", type=int, default=300, help="events whose latency is measured in each process")
    parser.add_argument("--rate", type=float, default=20, help="events a second while latency is measured")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    options = parser.parse_args()
    console = Console(stderr=True)
    found: dict[str, list[Measured]] = {system: [] for system in COMMANDS}
    with tempfile.TemporaryDirectory() as folder, Broker(Path(folder) / "kafka") as broker:
        for number in range(options.rounds):
            for system in COMMANDS:
                console.print(f"round {number + 1} of {options.rounds}: {system}")
                found[system].append(measure(system, broker, Path(folder), options))
    figures = summary(found, options)
    if options.json:
        print(json.dumps(figures, indent=2))  # noqa: T201 - the command's output
        return
    table = Table("", "p50 ms", "p95 ms", "events/s", title="median (min to max) over rounds")
    for system, row in figures.items():
        digits = 2 if "/" in system else 0
        table.add_row(
            system,
            *(f"{v['median']:,.{digits}f} ({v['min']:,.{digits}f} to {v['max']:,.{digits}f})" for v in row.values()),
        )
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
