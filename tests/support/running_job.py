"""The real job as a process, and the Kafka topics of a test."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Container, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import inf
from pathlib import Path
from typing import Any, Self
from uuid import uuid4

from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition

from streaming.config import Settings, load
from streaming.kafka.specs import specs
from streaming.kafka.topics import create_topics
from streaming.oracle import Effective
from streaming.records.model import Stream
from tests.support.processes import eventually
from tests.support.simulator import Record
from tests.support.tail import Tail

START_SECONDS = 300
SETTLE_SECONDS = 300
POLL_SECONDS = 0.2
"""Interval of slow checks, such as reading a whole topic."""

TOPIC_SETTINGS = ("group_events", "subscription_events", "topic_events", "clock", "updates", "dead_letters")
"""Settings that name the six Kafka topics."""

PRODUCERS_TIME = {"message.timestamp.type": "CreateTime"}
"""Configuration of topics that keep the timestamps of their producers."""

WORKER = "pyspark.worker"
"""Text in the command lines of Python workers and of their daemon."""

_SETTING_OF = {
    Stream.GROUPS: "group_events",
    Stream.SUBSCRIPTIONS: "subscription_events",
    Stream.TOPICS: "topic_events",
    Stream.CLOCK: "clock",
}

REEXPAND = str(Path(sys.executable).with_name("reexpand"))
"""Command of the release under test."""


@dataclass
class Streams:
    """Six topics of a test on a shared broker."""

    bootstrap_servers: str
    checkpoint: Path
    prefix: str = field(default_factory=lambda: uuid4().hex[:8])

    @cached_property
    def settings(self) -> Settings:
        return load(
            {
                "bootstrap_servers": self.bootstrap_servers,
                "checkpoint": str(self.checkpoint),
                "topic_events": f"{self.prefix}-topics",
                "subscription_events": f"{self.prefix}-subscriptions",
                "group_events": f"{self.prefix}-groups",
                "clock": f"{self.prefix}-clock",
                "updates": f"{self.prefix}-updates",
                "dead_letters": f"{self.prefix}-dead-letters",
            }
        )

    def create(self, partitions: int = 3, config: Mapping[str, str] | None = None) -> Self:
        """Create the topics; `config` overrides the usual configuration of each."""
        wanted = [replace(spec, config={**spec.config, **(config or {})}) for spec in specs(self.settings, partitions)]
        create_topics(self.bootstrap_servers, wanted)
        return self

    def name(self, stream: Stream) -> str:
        return str(getattr(self.settings, _SETTING_OF[stream]))

    def options(self, *names: str) -> list[str]:
        """Return settings as options of a verb: by default addresses, checkpoint and all Kafka topics."""
        wanted = names or ("bootstrap_servers", "checkpoint", *TOPIC_SETTINGS)
        return [word for name in wanted for word in (f"--{name.replace('_', '-')}", getattr(self.settings, name))]

    def producer(self) -> "Feed":
        return Feed(self)

    def write(self, topic: str, *records: tuple[bytes, bytes | None]) -> None:
        """Write keys and values, partitioned as the job does."""
        options = {"bootstrap.servers": self.bootstrap_servers, "partitioner": "murmur2_random", "log_level": 0}
        producer = Producer(options)
        for key, value in records:
            producer.produce(topic, value, key)
        assert producer.flush(60) == 0

    def read(self, topic: str) -> list[Message]:
        """Return all current committed records of a topic, in order within each partition."""
        with Tail(self.bootstrap_servers, [topic]) as tail:
            return tail.read()

    def are_read(self) -> bool:
        """Return True if a committed micro-batch has read the inputs to their current ends."""
        return self.unread() == 0

    def unread(self) -> float:
        """Return the number of offsets after the last committed micro-batch; infinity before the first."""
        query = self.checkpoint / "query"
        committed = max((int(file.name) for file in (query / "commits").glob("[0-9]*")), default=None)
        if committed is None:
            return inf
        # The last line of such a file is the offsets as JSON: {topic: {partition: offset}}.
        offsets = json.loads((query / "offsets" / str(committed)).read_text().splitlines()[-1])
        return sum(
            abs(end - int(offsets.get(topic, {}).get(str(partition), 0)))
            for topic in self.settings.inputs
            for partition, end in self.ends(topic).items()
        )

    def ends(self, topic: str, *, committed: bool = True) -> dict[int, int]:
        """Return the offset after the last record of each partition: of committed or of all records."""
        level = "read_committed" if committed else "read_uncommitted"
        options = {"bootstrap.servers": self.bootstrap_servers, "group.id": uuid4().hex, "isolation.level": level}
        with closing(Consumer(options)) as consumer:
            numbers = consumer.list_topics(topic, timeout=60).topics[topic].partitions
            return {number: _end(consumer, TopicPartition(topic, number)) for number in numbers}

    def updates(self) -> list[dict[str, Any]]:
        """Return all written updates, without tombstones."""
        return [json.loads(value) for message in self.read(self.settings.updates) if (value := message.value())]

    def relation(self) -> set[Effective]:
        """Return the relation in the updates topic, from the last record of each key."""
        last: dict[bytes, bytes | None] = {}
        for message in self.read(self.settings.updates):
            last[message.key() or b""] = message.value()
        return {
            Effective(*json.loads(key)) for key, value in last.items() if value and json.loads(value)["op"] == "ADD"
        }

    def becomes(self, wanted: set[Effective], parents: Container[str] | None = None) -> None:
        """Wait until the relation equals `wanted`; only that of some parents if given.

        The first success decides: a later look may find a row of a client whose end is still to come.
        """
        looks = [set[Effective]()]

        def is_reached() -> bool:
            looks.append({row for row in self.relation() if parents is None or row.parent in parents})
            return looks[-1] == wanted

        eventually(is_reached, SETTLE_SECONDS, POLL_SECONDS)
        assert_equal_relations(looks[-1], wanted)

    def dead_letters(self) -> list[dict[str, Any]]:
        return [json.loads(message.value() or b"") for message in self.read(self.settings.dead_letters)]

    def repeated(self) -> int:
        """Return the number of repeated updates."""
        ids = [update["eventId"] for update in self.updates()]
        return len(ids) - len(set(ids))

    def assert_repeated_updates_are_equal(self) -> None:
        """Check that updates with the same `eventId` are equal."""
        by_id: dict[str, set[str]] = {}
        for update in self.updates():
            by_id.setdefault(update["eventId"], set()).add(json.dumps(update, sort_keys=True))
        assert all(len(versions) == 1 for versions in by_id.values()), "a repeated update differs from the first"


def _end(consumer: Consumer, partition: TopicPartition) -> int:
    """Return the offset after the last record of a partition, which may have no leader yet."""
    found = list[int]()

    def asked() -> bool:
        try:
            found.append(consumer.get_watermark_offsets(partition, timeout=60)[1])
        except KafkaException as exception:
            if not exception.args[0].retriable():
                raise
        return bool(found)

    assert eventually(asked)
    return found[0]


class OpenTransactions:
    """Detector of open transactions on the updates topic, as a context manager."""

    def __init__(self, streams: Streams) -> None:
        topic = streams.settings.updates
        levels = ("read_committed", "read_uncommitted")
        options = {"bootstrap.servers": streams.bootstrap_servers, "group.id": uuid4().hex}
        self._consumers = [Consumer({**options, "isolation.level": level}) for level in levels]
        self._partitions = [TopicPartition(topic, number) for number in streams.ends(topic)]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for consumer in self._consumers:
            consumer.close()

    def exist(self) -> bool:
        return any(self._end(0, each) < self._end(1, each) for each in self._partitions)

    def _end(self, level: int, partition: TopicPartition) -> int:
        return int(self._consumers[level].get_watermark_offsets(partition, timeout=60)[1])


def assert_equal_relations(found: set[Effective], wanted: set[Effective]) -> None:
    """Check each direction separately: a failure shows only the rows that differ."""
    assert found - wanted == set(), f"surplus: {sorted(found - wanted)[:9]}"
    assert wanted - found == set(), f"missing: {sorted(wanted - found)[:9]}"


def key_of(record: Record) -> str:
    """Return the Kafka key of a record's producer: the parent of a topic event, else the group."""
    value = json.loads(record.value or b"")
    value = value.get("subscriptionSet", [value])[0]
    if record.stream is Stream.TOPICS:
        return str(value.get("parentTopic") or value["lmqName"].split("$")[1])
    return str(value["group"])


class Feed:
    """Writer to the input streams; records with the same key keep their order."""

    def __init__(self, streams: Streams) -> None:
        self._streams = streams
        # It does not log the end of the broker: tests stop their brokers first.
        options = {"bootstrap.servers": streams.bootstrap_servers, "enable.idempotence": True, "log_level": 0}
        self._producer = Producer(options)

    def send(self, stream: Stream, value: bytes | dict[str, Any] | None, key: str = "", *, timestamp: int = 0) -> None:
        """Write a record, with the current time by default; `flush` waits for its delivery."""
        data = json.dumps(value).encode() if isinstance(value, dict) else value
        try:
            self._producer.produce(self._streams.name(stream), key=key, value=data, timestamp=timestamp)
        except BufferError:  # faster than the broker accepts it
            self.flush()
            self._producer.produce(self._streams.name(stream), key=key, value=data, timestamp=timestamp)
        self._producer.poll(0)

    def send_slowly(self, records: Iterable[Record]) -> None:
        """Write a history, keyed as its producers would, slowly enough for several micro-batches."""
        for number, record in enumerate(records):
            self.send(record.stream, record.value, key_of(record))
            if number % 50 == 0:
                self.flush()
                time.sleep(0.1)
        self.flush()

    def flush(self) -> None:
        assert self._producer.flush(60) == 0


class Job:
    """`reexpand run` as a process."""

    def __init__(self, streams: Streams, log: Path, *options: str, command: str = REEXPAND) -> None:
        self.log = log
        # Several jobs run at once. An earlier release has no server.
        server = ["--http", "off"] if command == REEXPAND and "--http" not in options else []
        words = [command, "run", *options, *server, *streams.options()]
        self._commits = streams.checkpoint / "query" / "commits"
        self._log_start = log.stat().st_size if log.exists() else 0
        self._log = log.open("ab")
        # Separate group: killing it kills Spark and the Python workers too, like the crash of a machine.
        self.process = subprocess.Popen(words, stdout=self._log, stderr=self._log, start_new_session=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def said(self) -> str:
        return self.log.read_bytes()[self._log_start :].decode()

    def wait_ready(self) -> Self:
        eventually(
            lambda: "ready: reading" in self.said() or self.process.poll() is not None, START_SECONDS, POLL_SECONDS
        )
        assert self.process.poll() is None, self.said()
        return self

    def address(self) -> str:
        """Return the address of its server from the log."""
        (found,) = re.findall(r"metrics and health: (\S+)/metrics", self.said())
        return str(found)

    def kill(self) -> None:
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(60)

    def pause(self) -> None:
        """Suspend driver and JVM, as a hanging machine does."""
        os.killpg(self.process.pid, signal.SIGSTOP)

    def resume_spark(self) -> None:
        """Resume only Spark's JVM of a paused job."""
        os.kill(self.jvm(), signal.SIGCONT)

    def jvm(self) -> int:
        found = subprocess.run(["pgrep", "-P", str(self.process.pid), "java"], capture_output=True, check=True)
        return int(found.stdout)

    def workers(self) -> list[int]:
        """Return the current process ids of the Python workers and their daemon."""
        return self.processes(WORKER)

    def processes(self, command: str = "") -> list[int]:
        """Return the ids of its processes whose command line contains a text."""
        words = ["pgrep", "-s", str(self.process.pid), "-f", command]
        return [int(line) for line in subprocess.run(words, capture_output=True, check=False).stdout.split()]

    def resume(self) -> None:
        os.killpg(self.process.pid, signal.SIGCONT)

    def is_within_a_batch(self) -> bool:
        """Return True if an uncommitted micro-batch has logged its offsets."""
        return last_number(self._commits.parent / "offsets") > self.last_commit()

    def last_commit(self) -> int:
        """Return the number of the last committed micro-batch, -1 before the first."""
        return last_number(self._commits)

    def forget_last_commit(self) -> None:
        """Remove the last commit of a killed job, so its next start repeats the micro-batch."""
        assert self.process.poll() is not None
        committed = sorted(self._commits.glob("[0-9]*"), key=lambda file: int(file.name))
        if committed:  # otherwise it was killed before its first commit
            committed[-1].unlink()

    def kill_workers(self) -> None:
        """Kill the Python workers; Spark starts new workers."""
        # They are in a separate process group of this session; the first batch starts them.
        command = ["pkill", "-KILL", "-s", str(self.process.pid), "-f", WORKER]
        assert eventually(lambda: subprocess.run(command, check=False).returncode == 0, SETTLE_SECONDS, POLL_SECONDS)

    def stop(self, timeout: float = SETTLE_SECONDS) -> int:
        self.process.terminate()
        return self.process.wait(timeout)

    def interrupt(self, timeout: float = SETTLE_SECONDS) -> int:
        """Send SIGINT as Ctrl-C in its terminal does, and return the exit code."""
        os.killpg(self.process.pid, signal.SIGINT)  # a terminal signals the JVM as well
        return self.process.wait(timeout)

    def close(self) -> None:
        if self.process.poll() is None:
            self.kill()
        self._log.close()


def last_number(log: Path) -> int:
    """Return the number of the last micro-batch in a log of a checkpoint, -1 if there is none."""
    return max((int(file.name) for file in log.glob("[0-9]*")), default=-1)


@contextmanager
def running(streams: Streams, log: Path, *options: str, command: str = REEXPAND) -> Iterator[Job]:
    """Run a job until the block ends. Then stop it, and check its exit code, unless it has ended before."""
    with Job(streams, log, *options, command=command) as job:
        yield job.wait_ready()
        if job.process.poll() is None:
            assert job.stop() == 0, job.said()


def refused(streams: Streams, log: Path, *options: str, code: int = 2, command: str = REEXPAND) -> str:
    """Start a job that ends with an exit code and an error message, and return its log."""
    with Job(streams, log, *options, command=command) as job:
        assert job.process.wait(START_SECONDS) == code, job.said()
        assert "Traceback" not in job.said()
        return job.said()


def first_ready(*jobs: Job) -> tuple[Job, Job]:
    """Wait until one of two drivers works; return it, then the standby driver."""
    is_ready = eventually(lambda: any("ready: reading" in job.said() for job in jobs), START_SECONDS, POLL_SECONDS)
    assert is_ready, [job.said() for job in jobs]
    first, second = sorted(jobs, key=lambda job: "ready: reading" not in job.said())
    return first, second
