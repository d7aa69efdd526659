"""Topic events of one parent in Kafka: the history of a watcher, and its new events.

confluent-kafka parses a large metadata answer four times as fast as kafka-python, and its idempotent producer repeats a
write for as long as needed without a duplicate.
"""

import heapq
import logging
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import TYPE_CHECKING

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from streaming.adapters.watch import TopicChange, Watch, decode, encode
from streaming.errors import ConfigInvalid, TopicsUnusable, TopicUnreadable, WatchFailed
from streaming.kafka import facts
from streaming.kafka.clients import create, reason
from streaming.kafka.reader import ADVICE, Partition, TopicReader, partition_of_record
from streaming.kafka.specs import INPUT
from streaming.kafka.topics import TopicSpec, create_topics
from streaming.kafka.writer import Writer
from streaming.printable import counted
from streaming.records.model import check_name

if TYPE_CHECKING:
    from streaming.config import Settings

log = logging.getLogger("reexpand")

ANSWER_SECONDS = 5.0
_WRITE_SECONDS = 0.2
_SLOW_WRITE_SECONDS = 5.0
_RETRY_SECONDS = 0.5


class NoAnswer(Exception):
    """Kafka did not answer this time, or its answer is implausible. Any request may raise this."""


class Stopped(Exception):
    """A stop was requested during a wait. Any wait may raise this."""


class TopicEvents:
    """Kafka topic of the topic events, used by the watcher of one parent.

    Methods raise `WatchFailed` if the topic cannot be created, Kafka rejects an event, or a stop leaves some unwritten.

    Args:
        settings: address of Kafka and name of the topic.
        stop: event that ends any wait early.

    Raises:
        ConfigInvalid: an option is invalid.
    """

    def __init__(self, settings: "Settings", parent: str, options: Mapping[str, str], stop: threading.Event) -> None:
        problem = check_name("--parent", parent)
        if problem is not None:
            raise ConfigInvalid(problem)
        self.bootstrap_servers = settings.bootstrap_servers
        self._settings = settings
        self._events = settings.topic_events
        self.parent = parent
        self._stop = stop
        self._reason = ""
        self._options = options
        self._admin = create(
            AdminClient,
            {**options, "bootstrap.servers": self.bootstrap_servers, "log_level": 0, "error_cb": self._remember_error},
        )
        # Without a timeout, no write has an unknown outcome. The first start announces every topic.
        further = {"message.timeout.ms": 0, "queue.buffering.max.messages": 1_000_000}
        self._writer = Writer(self.bootstrap_servers, options, WatchFailed, further)

    def read_back(self, watch: Watch) -> None:
        """Restore a watch from the announced changes; create the topic of the events if it does not exist.

        Raises:
            ConfigInvalid: the name of the topic is perhaps misspelt.
        """
        present = self._topics()
        if self._events not in present:
            facts.check_spelling(self._settings, present, ["topic_events"])
            try:
                created = create_topics(self.bootstrap_servers, [TopicSpec(self._events, -1, INPUT)], self._options)
            except TopicsUnusable as error:
                raise WatchFailed(str(error)) from None
            if created:
                log.info("created the topic %s", self._events)
        for change in self._history():
            watch.fold(change)

    def _history(self) -> Iterator[TopicChange]:
        """Yield the changes announced for the parent up to now, in order."""
        key = self.parent.encode()
        found = defaultdict[Partition, list[tuple[int, TopicChange]]](list)
        try:
            with TopicReader(self.bootstrap_servers, self._options) as reader:
                spans = reader.spans([self._events])
                for message in (each for block in reader.read(spans, self._stop.is_set) for each in block):
                    if message.key() == key and (change := decode(message.value(), self.parent)):
                        found[partition_of_record(message)].append((message.timestamp()[1], change))
        except TopicUnreadable as error:
            raise NoAnswer(str(error).removesuffix(ADVICE)) from None
        if self._stop.is_set():
            raise Stopped
        if not spans:
            raise NoAnswer(f"the answer does not contain the partitions of {self._events}")
        # Each partition is in order. The events of a parent are in several only if partitions were added.
        yield from (change for _, change in heapq.merge(*found.values(), key=lambda event: event[0]))

    def announce(self, changes: Collection[TopicChange], timestamp: int) -> list[bytes]:
        """Announce changes, and return the events once all of them are written."""
        values = [encode(change, self.parent, timestamp) for change in changes]
        for value in values:
            self._writer.send(self._events, value, self.parent.encode())
        began, warned = time.monotonic(), False
        while left := self._writer.wait(_WRITE_SECONDS):
            if self._stop.is_set():
                raise WatchFailed(
                    f"Stopped before all topic events were written ({left} left); the next start continues."
                )
            if not warned and time.monotonic() - began > _SLOW_WRITE_SECONDS:
                warned = True
                why = f" ({self._writer.trouble})" if self._writer.trouble else ""
                log.warning("Kafka has not acknowledged %s yet%s", counted(left, "topic event"), why)
        return values

    def _topics(self) -> dict[str, KafkaError | None]:
        try:
            found = self._admin.list_topics(timeout=ANSWER_SECONDS)
        except KafkaException as error:
            raise NoAnswer(self._describe(error)) from None
        self._reason = ""
        return {name: topic.error for name, topic in found.topics.items()}

    def _remember_error(self, error: KafkaError) -> None:
        self._reason = error.str()

    def _describe(self, error: KafkaException) -> str:
        self._admin.poll(0)  # fetches an error with more detail than "timed out"
        return self._reason or reason(error)


def until_answered(step: Callable[[], None], deadline: float, stop: threading.Event) -> None:
    """Repeat a step until Kafka answers.

    Raises:
        NoAnswer: Kafka has not answered by the deadline, a time of `time.monotonic`.
        Stopped: a stop was requested.
    """
    while True:
        try:
            return step()
        except NoAnswer:
            if time.monotonic() > deadline:
                raise
        if stop.wait(_RETRY_SECONDS):
            raise Stopped
