"""One system under load: its process, its topics, and what it takes from event to update."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self
from uuid import uuid4

from confluent_kafka import Consumer, Producer, TopicPartition

from streaming.config import Settings, load
from streaming.kafka.specs import specs
from streaming.kafka.topics import create_topics
from streaming.local.broker import Broker
from streaming.records.model import Stream
from tests.bench.streaming.check import Wrong
from tests.bench.streaming.cpu import descendants
from tests.bench.streaming.workload import Workload
from tests.support import events
from tests.support.events import Event, stream_of
from tests.support.running_job import TOPIC_SETTINGS

PARTITIONS = 2
READY_SECONDS = 180
BURST_SECONDS = 300
LOG_SHOWN = 4_000
WAKING_SECONDS = 1.0
LOOKING_SECONDS = 0.02
UNPACED = {"REEXPAND_PACE_CPU": "0"}
"""Switches the budget of CPU at low rates off: what the job can do is measured, unless a suite is about the budget."""
PATIENT = "--conf spark.executor.heartbeatInterval=1h --conf spark.network.timeout=2h pyspark-shell"
"""Makes up for the heartbeats that a stopped Spark does not send, for which it ends itself."""


@dataclass(frozen=True)
class System:
    """Something that reads the job's inputs and writes its updates.

    Attributes:
        name: the beginning of its topics' names as well.
        command: starts it, with the job's settings in the environment; it says `ready: reading` on standard error.
        environment: what it is told besides.
        counts: it writes no updates, but how many rows of a parent it has seen, as the no-op does.
        records: it writes so many records for each topic event, whoever receives it; 0 for updates.
        stops: it is stopped while others have their turn. Who is in a group of Kafka's cannot be, and need not be
            where an idle process costs next to nothing; Spark looks for offsets all the time.
    """

    name: str
    command: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)
    counts: bool = False
    records: int = 0
    stops: bool = True


JOB = System("job", [str(Path(sys.executable).with_name("reexpand")), "run"])
PATCHED = [sys.executable, "-m", "tests.bench.streaming.patched"]
"""Command of the job with one part replaced; the part follows."""

NO_OP = System("no-op", [sys.executable, "-m", "tests.bench.streaming.noop"], counts=True)


class Driver:
    """One process of one system, its topics, a producer and a consumer."""

    def __init__(
        self, system: System, broker: Broker, folder: Path, workload: Workload | None = None, *, starts: bool = True
    ) -> None:
        self._system = system
        prefix = f"{re.sub('[^a-z]+', '-', system.name.lower())}-{uuid4().hex[:6]}"
        given = {name: f"{prefix}-{name}" for name in TOPIC_SETTINGS}
        given |= {"bootstrap_servers": broker.bootstrap_servers, "checkpoint": str(folder / prefix), "http": "off"}
        self.settings: Settings = load(given)
        create_topics(broker.bootstrap_servers, specs(self.settings, PARTITIONS))
        self._inputs = dict(zip(Stream, self.settings.inputs, strict=True))
        self._environment = {f"REEXPAND_{name.upper()}": value for name, value in given.items()}
        self._log = folder / f"{prefix}.log"
        self._process: subprocess.Popen[bytes]
        if starts:
            self.start()
        client: dict[str, Any] = {"bootstrap.servers": broker.bootstrap_servers, "log_level": 0}
        # Keys go where Java's own clients put them, so that systems can rely on it that a parent is in one partition.
        producer = {"linger.ms": 0, "queue.buffering.max.messages": 1_000_000, "partitioner": "murmur2_random"}
        self._producer = Producer({**client, **producer})
        self._consumer = Consumer({**client, "group.id": prefix, "fetch.wait.max.ms": 5})
        self._partitions = [TopicPartition(self.settings.updates, number, 0) for number in range(PARTITIONS)]
        self._consumer.assign(self._partitions)
        self.workload = workload or Workload()
        self._counted = dict.fromkeys(self.workload.parents, 0)

    def __enter__(self) -> Self:
        try:
            self.prepare()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self) -> None:
        environment = {**os.environ, "PYSPARK_SUBMIT_ARGS": PATIENT, **UNPACED, **self._environment}
        environment |= self._system.environment
        command = self._system.command
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(command, env=environment, stderr=log, stdout=subprocess.DEVNULL)

    @property
    def pid(self) -> int:
        return self._process.pid

    def prepare(self) -> None:
        """Wait for the query, send the subscriptions, and warm it up."""
        deadline = time.monotonic() + READY_SECONDS
        while b"ready: reading" not in self._log.read_bytes():
            self._check_time(deadline - time.monotonic(), "it is not ready")
            time.sleep(0.1)
        self.subscribe()
        self.burst(2_000)
        self.latencies(40, 10)

    def subscribe(self) -> None:
        """Send all subscriptions, and wait until the broker has them."""
        for event in (*self.workload.group_events(), *self.workload.requests()):
            self.send(event)
        self._producer.flush()

    def create(self, count: int) -> int:
        """Send new topics, and wait until the broker has them; return the number of their updates."""
        topics = self.workload.topics(count)
        for parent, topic in topics:
            self._create(parent, topic)
        self._producer.flush()
        return sum(len(self.workload.subscribers(*topic)) for topic in topics)

    def latencies(self, count: int, rate: float) -> list[float]:
        """Seconds from event to update, for events at a steady rate."""
        waiting: dict[str, float] = {}
        order: dict[str, list[str]] = {parent: [] for parent in self.workload.parents}
        found: list[float] = []
        start = time.perf_counter()
        topics = [
            (parent, topic) for parent, topic in self.workload.topics(count) if self.workload.subscribers(parent, topic)
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
        """Seconds until the broker has the last update of so many topic events; no consumer reads them meanwhile."""
        topics = self.workload.topics(count)
        payloads = [(parent, json.dumps(events.created(topic, parent, timestamp=0))) for parent, topic in topics]
        wanted = count * max(self._system.counts, self._system.records)
        wanted = wanted or sum(len(self.workload.subscribers(*topic)) for topic in topics)
        before = self.written()
        if not self._system.counts:
            self._consumer.pause(self._partitions)
        start = time.perf_counter()
        for number, (parent, payload) in enumerate(payloads):
            self._producer.produce(self.settings.topic_events, payload, parent)
            if number % 1_000 == 0:
                self._producer.poll(0)
        if self._system.counts:
            self.wait(wanted, start)
            return time.perf_counter() - start
        self.wait_written(before + wanted, start)
        seconds = time.perf_counter() - start
        self._consumer.resume(self._partitions)
        self.skip()
        return seconds

    def written(self) -> int:
        """Return the number of committed updates; with transactions, their markers count too, which are few."""
        return sum(self._ends())

    def wait_written(self, wanted: int, start: float, most: float = BURST_SECONDS) -> None:
        """Wait until so many updates are written, without reading them.

        Raises:
            Wrong: they are not written within `most` seconds.
        """
        while (left := wanted - self.written()) > 0:
            self._producer.poll(0)
            self._check_time(start + most - time.perf_counter(), f"{left} updates are missing")
            time.sleep(LOOKING_SECONDS)

    def wait(self, wanted: int, start: float, most: float = BURST_SECONDS) -> None:
        """Read so many updates, or as many events as the no-op counts.

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

    def send(self, event: Event) -> None:
        key = event.get("parentTopic") or event["group"]
        self._producer.produce(self._inputs[stream_of(event)], json.dumps(event), key)

    def _ends(self) -> list[int]:
        return [self._consumer.get_watermark_offsets(partition, 10)[1] for partition in self._partitions]

    def skip(self) -> None:
        """Flush the producer, and skip the updates that are written."""
        self._producer.flush()
        # Not to Kafka's own end, which is looked up later: a fast system has written the next update by then.
        for number, end in enumerate(self._ends()):
            self._consumer.seek(TopicPartition(self.settings.updates, number, end))

    def rest(self) -> None:
        """Suspend the process until `wake`, while others have their turn."""
        self._producer.flush()
        self._consumer.pause(self._partitions)
        self._signal(signal.SIGSTOP)

    def wake(self) -> None:
        self._signal(signal.SIGCONT)
        self._consumer.resume(self._partitions)
        time.sleep(WAKING_SECONDS)

    def _signal(self, number: signal.Signals) -> None:
        for pid in descendants(self.pid) if self._system.stops else ():
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    def close(self) -> None:
        self._signal(signal.SIGCONT)
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
        self.send(events.created(topic, parent, timestamp=int(time.time() * 1000)))
