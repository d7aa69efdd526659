"""Kafka as a watcher of topics sees it: which topics exist, and the topic events of one parent.

confluent-kafka rather than kafka-python: the service depends on it already, it reads a large metadata answer four times
as fast, and its idempotent producer repeats a write for as long as it takes without writing it twice.
"""

import heapq
import logging
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from streaming.adapters.watch import Change, Sight, Standing, Turns, decode, encode, sight
from streaming.errors import WatchFailed
from streaming.kafka.clients import create, reason
from streaming.kafka.specs import UNLIMITED_RETENTION

log = logging.getLogger("reexpand")

_ANSWER_SECONDS = 5.0
"""Within which a metadata answer must come; a stop waits for no longer than this."""

_HISTORY_SECONDS = 30.0
"""The longest pause while events are read back."""

_SLOW_WRITE_SECONDS = 5.0
_IDS_AT_ONCE = 500
"""As many ids take some 12 ms of CPU."""

_NO_ID = "AAAAAAAAAAAAAAAAAAAAAA"
"""What a broker says that gives its topics no ids."""

_STANDINGS = {
    KafkaError.UNKNOWN_TOPIC_OR_PART: Standing.GONE,
    KafkaError.UNKNOWN_TOPIC_ID: Standing.GONE,
    KafkaError.LEADER_NOT_AVAILABLE: Standing.THERE,  # just created, or its broker is down
}


class NoAnswer(Exception):
    """Kafka did not answer this time, or what it answered cannot be believed."""


class Stopped(Exception):
    """Someone asked to stop while something was waited for."""


class Cluster:
    """Kafka, with the topic events of one parent.

    Args:
        bootstrap_servers: its brokers.
        events: the topic of the topic events.
        parent: whose events to read and write.
        options: further client options, in the names of librdkafka.
        stop: waiting ends early when it is set.

    Raises:
        ConfigInvalid: an option is not valid.
    """

    def __init__(
        self, bootstrap_servers: str, events: str, parent: str, options: Mapping[str, str], stop: threading.Event
    ) -> None:
        self.bootstrap_servers = bootstrap_servers
        self._events = events
        self.parent = parent
        self._stop = stop
        self._turns = Turns(_IDS_AT_ONCE)
        self._reason = ""
        self._common: dict[str, Any] = {
            **options,
            "bootstrap.servers": bootstrap_servers,
            "log_level": 0,
            "error_cb": self._remember,
        }
        self._admin = create(AdminClient, self._common)
        # Never giving up leaves no write of which nobody knows whether it happened. The partitioner is that of Java and
        # kafka-python, so that the events of a parent stay in one partition, whoever writes them.
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

    def look(self, selected: Callable[[str], bool], known: Mapping[str, str | None], doubtful: Iterable[str]) -> Sight:
        """Which of the selected topics exist.

        Args:
            selected: which to look at.
            known: those known so far.
            doubtful: those of which the ids are needed now; so are those of topics that are not known.

        Raises:
            NoAnswer: none came, or it cannot be believed.
        """
        found = sight(self._list(), selected, self._events)
        if found is None:
            raise NoAnswer(f"the answer lacks the topic {self._events}, so it may lack others")
        urgent = [*(name for name in found.topics if name not in known), *doubtful]
        names = self._turns.next(found.topics.keys(), urgent)
        return found.identified(self._ids(names)) if names else found

    def provide(self) -> None:
        """Create the topic of the events if it does not exist.

        Raises:
            NoAnswer: Kafka does not answer.
            WatchFailed: the topic cannot be created.
        """
        if self._events in self._list():
            return
        topic = NewTopic(self._events, num_partitions=-1, replication_factor=-1, config=dict(UNLIMITED_RETENTION))
        try:
            self._admin.create_topics([topic])[self._events].result()
        except KafkaException as error:
            if _code(error) != KafkaError.TOPIC_ALREADY_EXISTS:
                raise WatchFailed(f"The topic {self._events!r} cannot be created: {reason(error)}.") from None
        else:
            log.info("created the topic %s", self._events)

    def history(self) -> list[Change]:
        """The changes that were announced of the parent up to now, in order.

        Raises:
            NoAnswer: Kafka does not give them out.
            Stopped: someone asked to stop.
        """
        consumer = create(
            Consumer,
            {
                **self._common,
                "group.id": "reexpand-watch-kafka",  # asked for by the client, never used
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "auto.offset.reset": "earliest",
            },
        )
        try:
            return self._read(consumer)
        except KafkaException as error:
            raise NoAnswer(self._why(error)) from None
        finally:
            consumer.close()

    def write(self, changes: Collection[Change], timestamp: int) -> list[bytes]:
        """Announce changes, and return the events once all of them are written.

        Raises:
            WatchFailed: Kafka refuses one for good, or someone asked to stop before all were written.
        """
        refused: list[KafkaError] = []

        def written(error: KafkaError | None, _: Message) -> None:
            if error is not None:
                refused.append(error)

        values = [encode(change, self.parent, timestamp) for change in changes]
        for value in values:
            self._producer.produce(self._events, value, self.parent, on_delivery=written)
        began, warned = time.monotonic(), False
        while (left := self._producer.flush(0.2)) and not refused:
            if self._stop.is_set():
                raise WatchFailed(
                    f"Stopped before all topic events were written ({left} left); the next start goes on."
                )
            if not warned and time.monotonic() - began > _SLOW_WRITE_SECONDS:
                warned = True
                log.warning("%d topic events wait for Kafka to take them%s", left, self._because())
        if refused:
            raise WatchFailed(f"The topic {self._events!r} does not take the events: {refused[0].str()}.")
        return values

    def _list(self) -> dict[str, Standing]:
        try:
            found = self._admin.list_topics(timeout=_ANSWER_SECONDS)
        except KafkaException as error:
            raise NoAnswer(self._why(error)) from None
        self._reason = ""
        return {name: _standing(topic.error) for name, topic in found.topics.items()}

    def _ids(self, names: list[str]) -> dict[str, str | Standing]:
        answers = self._admin.describe_topics(TopicCollection(names), request_timeout=_ANSWER_SECONDS)
        return {name: _id(answer.result) for name, answer in answers.items()}

    def _read(self, consumer: Consumer) -> list[Change]:
        partitions = consumer.list_topics(self._events, timeout=_ANSWER_SECONDS).topics[self._events].partitions
        if not partitions:
            raise NoAnswer(f"the answer lacks the partitions of {self._events}")
        consumer.assign([TopicPartition(self._events, number, OFFSET_BEGINNING) for number in partitions])
        found: dict[int, list[tuple[int, Change]]] = {number: [] for number in partitions}
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
                elif error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - its only name
                    unread.discard(number)
                else:
                    raise NoAnswer(f"the topic {self._events} cannot be read: {error.str()}")
            if self._stop.is_set():
                raise Stopped
            if time.monotonic() > deadline:
                raise NoAnswer(f"the topic {self._events} is not given out{self._because()}")
        # In one partition they stand in order; only a change of their number puts the events of a parent into several.
        merged = heapq.merge(*found.values(), key=lambda event: event[0])
        return [change for _, change in merged]

    def _remember(self, error: KafkaError) -> None:
        self._reason = error.str()

    def _why(self, error: KafkaException) -> str:
        self._admin.poll(0)  # lets the client say what it knows better than "timed out"
        return self._reason or reason(error)

    def _because(self) -> str:
        self._admin.poll(0)
        return f" ({self._reason})" if self._reason else ""


def _standing(error: KafkaError | None) -> Standing:
    return Standing.THERE if error is None else _STANDINGS.get(error.code(), Standing.UNCLEAR)


def _id(result: Callable[[], Any]) -> str | Standing:
    try:
        found = str(result().topic_id)
    except KafkaException as error:
        return _standing(error.args[0])
    return Standing.THERE if found == _NO_ID else found


def _code(error: KafkaException) -> int:
    return int(error.args[0].code())
