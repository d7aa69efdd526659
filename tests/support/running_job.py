"""The real job as a process, and the Kafka topics of one test."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import inf
from pathlib import Path
from typing import Any, Self
from uuid import uuid4

from confluent_kafka import Consumer, Message, Producer, TopicPartition

from streaming.config import Settings, load
from streaming.kafka.specs import specs
from streaming.kafka.topics import create_topics
from streaming.oracle import Effective
from streaming.records.model import Stream
from tests.support.processes import eventually
from tests.support.simulator import Record
from tests.support.tail import Tail

START_SECONDS = 120
SETTLE_SECONDS = 120
POLL_SECONDS = 0.2
"""Between two looks at what takes a moment to see, such as a whole topic."""

TOPIC_SETTINGS = ("group_events", "subscription_events", "topic_events", "clock", "updates", "dead_letters")
"""Settings that name the six Kafka topics."""

PRODUCERS_TIME = {"message.timestamp.type": "CreateTime"}
"""Configuration of topics that keep the timestamps of their producers."""

WORKER = "pyspark.worker"
"""Text in the command lines of Python workers and of their daemon."""

REEXPAND = str(Path(sys.executable).with_name("reexpand"))
"""Command of the release under test."""


@dataclass
class Streams:
    """The six topics of one test on a shared broker."""

    bootstrap_servers: str
    checkpoint: Path
    prefix: str = field(default_factory=lambda: uuid4().hex[:8])

    @cached_property
    def settings(self) -> Settings:
        """The job's settings for these topics."""
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
        """Creates the topics; `config` wins over the usual configuration of each of them."""
        wanted = [replace(spec, config={**spec.config, **(config or {})}) for spec in specs(self.settings, partitions)]
        create_topics(self.bootstrap_servers, wanted)
        return self

    def name(self, stream: Stream) -> str:
        """The Kafka topic of an input stream."""
        settings = self.settings
        return {
            Stream.GROUPS: settings.group_events,
            Stream.SUBSCRIPTIONS: settings.subscription_events,
            Stream.TOPICS: settings.topic_events,
            Stream.CLOCK: settings.clock,
        }[stream]

    def producer(self) -> "Feed":
        """What writes to the input streams."""
        return Feed(self)

    def read(self, topic: str) -> list[Message]:
        """All committed records of a topic that are there now, in order within each partition."""
        with Tail(self.bootstrap_servers, [topic]) as tail:
            return tail.read()

    def are_read(self) -> bool:
        """Return True if a micro-batch was committed that reads the inputs up to their present ends."""
        return self.unread() == 0

    def unread(self) -> float:
        """Return the number of offsets behind the last committed micro-batch; infinity before the first one."""
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
        """Offset after the last record, by partition; of committed ones only, or of all."""
        consumer = Consumer(
            {
                "bootstrap.servers": self.bootstrap_servers,
                "group.id": uuid4().hex,
                "isolation.level": "read_committed" if committed else "read_uncommitted",
            }
        )
        try:
            numbers = consumer.list_topics(topic, timeout=10).topics[topic].partitions
            return {
                number: consumer.get_watermark_offsets(TopicPartition(topic, number), timeout=10)[1]
                for number in numbers
            }
        finally:
            consumer.close()

    def updates(self) -> list[dict[str, Any]]:
        """All updates that were written, tombstones left out."""
        return [json.loads(value) for message in self.read(self.settings.updates) if (value := message.value())]

    def relation(self) -> set[Effective]:
        """The relation that the updates topic holds: what is left when each key keeps its last record."""
        last: dict[bytes, bytes | None] = {}
        for message in self.read(self.settings.updates):
            last[message.key() or b""] = message.value()
        return {
            Effective(*json.loads(key)) for key, value in last.items() if value and json.loads(value)["op"] == "ADD"
        }

    def dead_letters(self) -> list[dict[str, Any]]:
        """All dead letters."""
        return [json.loads(message.value() or b"") for message in self.read(self.settings.dead_letters)]

    def repeated(self) -> int:
        """How many updates were written more than once."""
        ids = [update["eventId"] for update in self.updates()]
        return len(ids) - len(set(ids))

    def assert_repeated_updates_are_equal(self) -> None:
        """Check that updates with one `eventId` are one update, written again."""
        by_id: dict[str, set[str]] = {}
        for update in self.updates():
            by_id.setdefault(update["eventId"], set()).add(json.dumps(update, sort_keys=True))
        assert all(len(versions) == 1 for versions in by_id.values()), "a repeated update differs from the first"


class OpenTransactions:
    """Looks for transactions of the updates topic that have not ended, as a context manager."""

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
        """Return True if there are any."""
        return any(self._end(0, each) < self._end(1, each) for each in self._partitions)

    def _end(self, level: int, partition: TopicPartition) -> int:
        return int(self._consumers[level].get_watermark_offsets(partition, timeout=10)[1])


def assert_equal_relations(found: set[Effective], wanted: set[Effective]) -> None:
    """Check both directions, each on its own: a failure shows only the rows that differ."""
    assert found - wanted == set(), f"surplus: {sorted(found - wanted)[:9]}"
    assert wanted - found == set(), f"missing: {sorted(wanted - found)[:9]}"


def assert_verified(streams: Streams) -> None:
    """Check that inputs, state and updates agree."""
    options = ("--bootstrap-servers", streams.bootstrap_servers, "--checkpoint", str(streams.checkpoint))
    names = ("--updates", streams.settings.updates, "--dead-letters", streams.settings.dead_letters)
    found = subprocess.run([REEXPAND, "verify", *options, *names], capture_output=True, check=False, text=True)
    assert found.returncode == 0, found.stdout + found.stderr


def key_of(record: Record) -> str:
    """Return the Kafka key that the record's producer would use: the parent of a topic event, else the group."""
    value = json.loads(record.value or b"")
    value = value.get("subscriptionSet", [value])[0]
    if record.stream is Stream.TOPICS:
        return str(value.get("parentTopic") or value["lmqName"].split("$")[1])
    return str(value["group"])


class Feed:
    """Writes to the input streams, records with one key in order."""

    def __init__(self, streams: Streams) -> None:
        self._streams = streams
        # It says nothing about a broker that ends before it: tests stop theirs.
        options = {"bootstrap.servers": streams.bootstrap_servers, "enable.idempotence": True, "log_level": 0}
        self._producer = Producer(options)

    def send(self, stream: Stream, value: bytes | dict[str, Any] | None, key: str = "", *, timestamp: int = 0) -> None:
        """Write a record, with the time of now unless another one is given; `flush` makes sure of it."""
        data = json.dumps(value).encode() if isinstance(value, dict) else value
        try:
            self._producer.produce(self._streams.name(stream), key=key, value=data, timestamp=timestamp)
        except BufferError:  # faster than the broker takes it
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
        """Waits until everything is written."""
        assert self._producer.flush(30) == 0


class Job:
    """`reexpand run` as a process."""

    def __init__(self, streams: Streams, log: Path, *options: str, command: str = REEXPAND) -> None:
        settings = streams.settings
        self.log = log
        words = [command, "run", *options]
        if (
            command == REEXPAND and "--http" not in options
        ):  # several jobs run at once; an earlier release has no server
            words += ["--http", "off"]
        for name in ("bootstrap_servers", "checkpoint", *TOPIC_SETTINGS):
            words += [f"--{name.replace('_', '-')}", getattr(settings, name)]
        self._commits = streams.checkpoint / "query" / "commits"
        self._log_start = log.stat().st_size if log.exists() else 0
        self._log = log.open("ab")
        # A group of its own: killing it takes Spark and the Python workers along, as a machine's death would.
        self.process = subprocess.Popen(words, stdout=self._log, stderr=self._log, start_new_session=True)

    def said(self) -> str:
        """What this process has logged."""
        return self.log.read_bytes()[self._log_start :].decode()

    def wait_ready(self) -> Self:
        """Waits until the query runs."""
        eventually(
            lambda: "ready: reading" in self.said() or self.process.poll() is not None, START_SECONDS, POLL_SECONDS
        )
        assert self.process.poll() is None, self.said()
        return self

    def address(self) -> str:
        """Return the address of its server, which it has logged."""
        (found,) = re.findall(r"metrics and health: (\S+)/metrics", self.said())
        return str(found)

    def kill(self) -> None:
        """Ends it as a crash would."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(30)

    def pause(self) -> None:
        """Stops driver and JVM in their tracks, as a machine does that hangs."""
        os.killpg(self.process.pid, signal.SIGSTOP)

    def resume_spark(self) -> None:
        """Lets Spark's JVM of a paused job go on alone."""
        os.kill(self.jvm(), signal.SIGCONT)

    def jvm(self) -> int:
        """Return the process id of Spark's JVM."""
        found = subprocess.run(["pgrep", "-P", str(self.process.pid), "java"], capture_output=True, check=True)
        return int(found.stdout)

    def workers(self) -> list[int]:
        """Return the process ids of the Python workers and of the daemon that starts them, as of now."""
        return self.processes(WORKER)

    def processes(self, command: str = "") -> list[int]:
        """Return the ids of its processes, of all or of those whose command line has a text."""
        words = ["pgrep", "-s", str(self.process.pid), "-f", command]
        return [int(line) for line in subprocess.run(words, capture_output=True, check=False).stdout.split()]

    def resume(self) -> None:
        """Lets a paused job go on."""
        os.killpg(self.process.pid, signal.SIGCONT)

    def is_within_a_batch(self) -> bool:
        """Whether the offsets of a micro-batch are logged that is not committed."""
        return last_number(self._commits.parent / "offsets") > self.last_commit()

    def last_commit(self) -> int:
        """Return the number of the last micro-batch that was committed, -1 before the first one."""
        return last_number(self._commits)

    def forget_last_commit(self) -> None:
        """Makes a killed job's last micro-batch one that was written but not committed: it will be repeated."""
        assert self.process.poll() is not None
        committed = sorted(self._commits.glob("[0-9]*"), key=lambda file: int(file.name))
        if committed:  # else it was killed before it could commit its first
            committed[-1].unlink()

    def kill_workers(self) -> None:
        """Kills the Python processes that do the work; Spark starts new ones."""
        # They are in a process group of their own, but in this session; the first batch starts them.
        command = ["pkill", "-KILL", "-s", str(self.process.pid), "-f", WORKER]
        assert eventually(lambda: subprocess.run(command, check=False).returncode == 0, SETTLE_SECONDS, POLL_SECONDS)

    def stop(self, timeout: float = 60) -> int:
        """Asks it to end, and returns its exit code."""
        self.process.terminate()
        return self.process.wait(timeout)

    def interrupt(self, timeout: float = 60) -> int:
        """Ends it as Ctrl-C in its terminal does, and returns its exit code."""
        os.killpg(self.process.pid, signal.SIGINT)  # a terminal tells the JVM as well
        return self.process.wait(timeout)

    def close(self) -> None:
        """Leaves nothing behind."""
        if self.process.poll() is None:
            self.kill()
        self._log.close()


def last_number(log: Path) -> int:
    """Return the number of the last micro-batch in a log of a checkpoint, -1 if there is none."""
    return max((int(file.name) for file in log.glob("[0-9]*")), default=-1)


@contextmanager
def running(streams: Streams, log: Path, *options: str, command: str = REEXPAND) -> Iterator[Job]:
    """A job that is ready."""
    job = Job(streams, log, *options, command=command)
    try:
        yield job.wait_ready()
    finally:
        job.close()


def first_ready(*jobs: Job) -> tuple[Job, Job]:
    """Wait until one of two drivers works; return it, and the one that goes on standing by."""
    is_ready = eventually(lambda: any("ready: reading" in job.said() for job in jobs), START_SECONDS, POLL_SECONDS)
    assert is_ready, [job.said() for job in jobs]
    first, second = sorted(jobs, key=lambda job: "ready: reading" not in job.said())
    return first, second
