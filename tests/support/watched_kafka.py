"""Kafka topics that a test creates, and `reexpand watch-kafka`, which announces them."""

import json
import signal
import subprocess
from pathlib import Path
from typing import Any, Self
from uuid import uuid4

from confluent_kafka import Producer

from streaming.kafka.topics import TopicSpec, create_topics
from tests.support import topics
from tests.support.processes import eventually
from tests.support.running_job import REEXPAND, Streams

WATCHED_SECONDS = 60
"""Far above the usual second: the machine may be busy."""


class Watcher:
    """`reexpand watch-kafka` as a process."""

    def __init__(self, bootstrap_servers: str, events: str, folder: Path, *options: str) -> None:
        self._out, self._log = (folder / f"watch-{uuid4().hex}{suffix}" for suffix in (".json", ".log"))
        command = [REEXPAND, "watch-kafka", "--json", *options]
        command += ["--bootstrap-servers", bootstrap_servers, "--topic-events", events]
        with self._out.open("wb") as out, self._log.open("wb") as log:
            self.process = subprocess.Popen(command, stdout=out, stderr=log)

    def __enter__(self) -> Self:
        assert eventually(lambda: "ready: watching" in self.said() or self.process.poll() is not None)
        assert self.process.poll() in (None, 0), self.said()
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()

    def said(self) -> str:
        return self._log.read_text()

    def announced(self) -> list[tuple[str, str]]:
        return [(event["event"], event["liteTopic"].rpartition(".")[2]) for event in self.events()]

    def events(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self._out.read_text().splitlines()]

    def announces(self, *events: tuple[str, str], seconds: float = WATCHED_SECONDS) -> bool:
        """Return True if the announcements become exactly these in time."""
        return eventually(lambda: self.announced() == list(events), seconds)

    def stop(self, number: signal.Signals) -> int:
        self.process.send_signal(number)
        return self.process.wait(60)


class Topics:
    """Creator and deleter of Kafka topics."""

    def __init__(self, bootstrap_servers: str) -> None:
        self._streams = Streams(bootstrap_servers, Path())
        self.producer = Producer({"bootstrap.servers": bootstrap_servers, "log_level": 0})

    def create(self, *names: str, partitions: int = 1) -> None:
        create_topics(self._streams.bootstrap_servers, [TopicSpec(name, partitions) for name in names])

    def delete(self, *names: str) -> None:
        """Delete topics, and wait until the broker no longer lists them."""
        topics.delete(self._streams, *names)

    def write(self, name: str, *values: bytes, partition: int = 0) -> None:
        for value in values:
            self.producer.produce(name, value, partition=partition)
        assert self.producer.flush(60) == 0
