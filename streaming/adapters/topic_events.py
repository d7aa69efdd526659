"""Topic events of one parent in Kafka: the history of a watcher, and its new events.

confluent-kafka parses a large metadata answer four times as fast as kafka-python, and its idempotent producer repeats a
write for as long as needed without a duplicate.
"""

import heapq
import logging
import threading
import time
from collections.abc import Callable, Collection, Mapping
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from streaming.adapters.watch import TopicChange, Watch, decode, encode
from streaming.errors import WatchFailed
from streaming.kafka.clients import PARTITION_END, cause, concerns_group, create, reason, writing
from streaming.kafka.permissions import Grant, readable, writable
from streaming.kafka.specs import INPUT

log = logging.getLogger("reexpand")

ANSWER_SECONDS = 5.0
"""Timeout of a metadata request in seconds, which is also the longest delay of a stop."""

_HISTORY_SECONDS = 30.0
"""Longest pause in seconds while the history is read."""

_SLOW_WRITE_SECONDS = 5.0
_RETRY_SECONDS = 0.5


class NoAnswer(Exception):
    """Kafka did not answer this time, or its answer is implausible."""


class Stopped(Exception):
    """A stop was requested during a wait."""


class TopicEvents:
    """Kafka topic of the topic events, used by the watcher of one parent.

    Args:
        bootstrap_servers: Kafka brokers.
        events: Kafka topic of the topic events.
        parent: parent topic of the events to read and write.
        options: further client options, in the names of librdkafka.
        stop: event that ends any wait early.

    Raises:
        ConfigInvalid: an option is invalid.
    """

    def __init__(
        self, bootstrap_servers: str, events: str, parent: str, options: Mapping[str, str], stop: threading.Event
    ) -> None:
        self.bootstrap_servers = bootstrap_servers
        self._events = events
        self.parent = parent
        self._stop = stop
        self._reason = ""
        self._common: dict[str, Any] = {
            **options,
            "bootstrap.servers": bootstrap_servers,
            "log_level": 0,
            "error_cb": self._remember_error,
        }
        self._admin = create(AdminClient, self._common)
        # Without a timeout, no write has an unknown outcome. Java and kafka-python have the same partitioner, so the
        # events of a parent stay in one partition for any writer.
        self._producer = create(
            Producer,
            {
                **self._common,
                "enable.idempotence": True,
                "message.timeout.ms": 0,
                "partitioner": "murmur2_random",
                "queue.buffering.max.messages": 1_000_000,  # the first start announces every topic
            },
        )

    def create_events_topic(self) -> None:
        """Create the topic of the events if it does not exist.

        Raises:
            NoAnswer: Kafka does not answer.
            WatchFailed: the topic cannot be created.
        """
        if self._events in self._topics():
            return
        topic = NewTopic(self._events, num_partitions=-1, replication_factor=-1, config=dict(INPUT))
        try:
            self._admin.create_topics([topic])[self._events].result()
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                why = reason(error, Grant("TOPIC", self._events, "CREATE"))
                raise WatchFailed(f"The topic {self._events!r} cannot be created: {why}.") from None
        else:
            log.info("created the topic %s", self._events)

    def read_history(self) -> list[TopicChange]:
        """Return the changes announced for the parent up to now, in order.

        Raises:
            NoAnswer: Kafka does not return the events.
            Stopped: a stop was requested.
        """
        consumer = create(
            Consumer,
            {
                **self._common,
                "group.id": "reexpand-watch-kafka",  # required, but unused
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "auto.offset.reset": "earliest",
            },
        )
        try:
            return self._read_events(consumer)
        except KafkaException as error:
            raise NoAnswer(self._describe(error)) from None
        finally:
            consumer.close()

    def announce(self, changes: Collection[TopicChange], timestamp: int) -> list[bytes]:
        """Announce changes, and return the events once all of them are written.

        Raises:
            WatchFailed: Kafka rejects an event, or a stop was requested before all were written.
        """
        refused: list[KafkaError] = []

        def written(error: KafkaError | None, _: Message) -> None:
            if error is not None:
                refused.append(error)

        values = [encode(change, self.parent, timestamp) for change in changes]
        with writing(self._producer, self._events, self._not_taken):
            self._write(values, written, refused)
        if refused:
            raise self._not_taken(reason(cause(self._producer, refused[0]), writable(self._events)))
        return values

    def _write(self, values: list[bytes], written: Callable[..., None], refused: list[KafkaError]) -> None:
        """Write events, and wait until all are written or one is rejected."""
        for value in values:
            self._producer.produce(self._events, value, self.parent, on_delivery=written)
        began, warned = time.monotonic(), False
        while (left := self._producer.flush(0.2)) and not refused:
            if self._stop.is_set():
                raise WatchFailed(
                    f"Stopped before all topic events were written ({left} left); the next start continues."
                )
            if not warned and time.monotonic() - began > _SLOW_WRITE_SECONDS:
                warned = True
                log.warning("%d topic events are not acknowledged by Kafka yet%s", left, self._last_error())

    def _not_taken(self, why: str) -> WatchFailed:
        return WatchFailed(f"The events cannot be written to the topic {self._events!r}: {why}.")

    def _topics(self) -> dict[str, KafkaError | None]:
        try:
            found = self._admin.list_topics(timeout=ANSWER_SECONDS)
        except KafkaException as error:
            raise NoAnswer(self._describe(error)) from None
        self._reason = ""
        return {name: topic.error for name, topic in found.topics.items()}

    def _read_events(self, consumer: Consumer) -> list[TopicChange]:
        partitions = consumer.list_topics(self._events, timeout=ANSWER_SECONDS).topics[self._events].partitions
        if not partitions:
            raise NoAnswer(f"the answer does not contain the partitions of {self._events}")
        consumer.assign([TopicPartition(self._events, number, OFFSET_BEGINNING) for number in partitions])
        found: dict[int, list[tuple[int, TopicChange]]] = {number: [] for number in partitions}
        unread = set(partitions)
        key = self.parent.encode()
        deadline = time.monotonic() + _HISTORY_SECONDS
        while unread:
            for message in consumer.consume(10_000, timeout=0.2):
                deadline = time.monotonic() + _HISTORY_SECONDS
                error, number = message.error(), message.partition()
                if number is None:
                    continue
                if error is None:
                    if message.key() == key and (change := decode(message.value(), self.parent)):
                        found[number].append((message.timestamp()[1], change))
                elif self._is_end(error):
                    unread.discard(number)
            if self._stop.is_set():
                raise Stopped
            if time.monotonic() > deadline:
                raise NoAnswer(f"reading the topic {self._events} timed out{self._last_error()}")
        # Each partition is in order. The events of a parent are in several only if partitions were added.
        merged = heapq.merge(*found.values(), key=lambda event: event[0])
        return [change for _, change in merged]

    def _is_end(self, error: KafkaError) -> bool:
        """Return True at the end of a partition, False for other harmless errors; raise `NoAnswer` for the rest."""
        if error.code() == PARTITION_END:
            return True
        if concerns_group(error):
            return False
        raise NoAnswer(f"the topic {self._events} cannot be read: {reason(error, readable(self._events))}")

    def _remember_error(self, error: KafkaError) -> None:
        if not concerns_group(error):
            self._reason = error.str()

    def _describe(self, error: KafkaException) -> str:
        self._admin.poll(0)  # fetches an error with more detail than "timed out"
        return self._reason or reason(error)

    def _last_error(self) -> str:
        self._admin.poll(0)
        return f" ({self._reason})" if self._reason else ""


def read_back(events: TopicEvents, watch: Watch) -> None:
    """Restore a watch from the announced changes; create the topic of the events if it does not exist.

    Raises:
        NoAnswer: Kafka does not answer, or does not return the events.
        Stopped: a stop was requested.
        WatchFailed: the topic cannot be created.
    """
    events.create_events_topic()
    for change in events.read_history():
        watch.fold(change)


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
