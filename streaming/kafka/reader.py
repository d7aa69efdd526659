"""Reader of Kafka topics by offset, which commits no offsets and joins no group."""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from streaming.errors import TopicMissing, TopicUnreadable
from streaming.kafka.clients import BY_HAND, PARTITION_END, concerns_group, create, reason
from streaming.kafka.permissions import readable
from streaming.kafka.reach import wait_for_broker

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

_RECORDS_AT_ONCE: Final = 10_000
_ANSWER_SECONDS: Final = 10.0
_SILENCE_SECONDS: Final = 60.0
"""Longest pause while a topic is read, in seconds."""

_PAUSE_SECONDS: Final = 0.1
"""Time between two requests to a partition without a leader."""

ADVICE: Final = ". Check the address, the name and the client options, and that the broker runs."
"""End of the message of `TopicUnreadable`."""

_NO_LEADER: Final = (
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError._UNKNOWN_PARTITION,  # noqa: SLF001
)


class Partition(NamedTuple):
    """A partition of a Kafka topic."""

    topic: str
    number: int


class Span(NamedTuple):
    """Offsets of a partition, from the first to the end."""

    start: int
    end: int


def partition_of_record(message: Message) -> Partition:
    """Return the partition of a record."""
    return Partition(message.topic() or "", message.partition() or 0)


class TopicReader:
    """Reader of committed records, as a context manager. A topic that cannot be read raises `TopicUnreadable`.

    Args:
        bootstrap_servers: addresses of brokers.
        options: client options of the user, in the names of librdkafka.
        further: options that override these and the options of the reader.
    """

    def __init__(
        self, bootstrap_servers: str, options: Mapping[str, str], further: Mapping[str, Any] | None = None
    ) -> None:
        self._servers = bootstrap_servers
        self._is_reached = False
        # Last error of the client, such as an unreachable broker; blank if there is none.
        self.trouble = ""
        given: dict[str, Any] = {
            "log_level": 0,
            **options,
            "bootstrap.servers": bootstrap_servers,
            "group.id": "reexpand-reader",  # required, but unused: partitions are assigned by hand
            **BY_HAND,
            "error_cb": self._remember,
        }
        self._consumer = create(Consumer, {**given, **(further or {})})

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._consumer.close()

    def spans(self, topics: Iterable[str]) -> dict[Partition, Span]:
        """Return the present offsets of all partitions of some topics.

        Raises:
            TopicMissing: a topic does not exist.
            TopicUnreadable: no broker answers, or it does not allow to read a topic.
        """
        if not self._is_reached:
            wait_for_broker(self._servers, failure=TopicUnreadable)
            self._is_reached = True
        found = {}
        for topic in topics:
            try:
                described = self._consumer.list_topics(topic, timeout=_ANSWER_SECONDS).topics[topic]
                if described.error is not None and described.error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                    raise TopicMissing(
                        f"{self._servers} has no topic {topic}; `reexpand topics` creates what is missing"
                    )
                if described.error is not None:
                    raise self._unreadable(topic, reason(described.error, readable(topic)))
                for number in described.partitions:
                    found[Partition(topic, number)] = self._span(TopicPartition(topic, number))
            except KafkaException as error:
                raise self._failed(topic, error) from None
        return found

    def _span(self, where: TopicPartition) -> Span:
        """Return the present offsets of a partition, once it has a leader: a new one may lack it, or be unknown."""
        deadline = time.monotonic() + _ANSWER_SECONDS
        while True:
            try:
                return Span(*self._consumer.get_watermark_offsets(where, timeout=_ANSWER_SECONDS))
            except KafkaException as error:
                if error.args[0].code() not in _NO_LEADER or time.monotonic() > deadline:
                    raise
                time.sleep(_PAUSE_SECONDS)

    def offsets_at(self, milliseconds: int, partitions: Iterable[Partition]) -> dict[Partition, int | None]:
        """Return the first offset of each partition at or after a time; None if no record follows it."""
        wanted = [TopicPartition(*partition, milliseconds) for partition in partitions]
        if not wanted:
            return {}
        try:
            found = self._consumer.offsets_for_times(wanted, timeout=_ANSWER_SECONDS)
        except KafkaException as error:
            raise self._failed(wanted[0].topic, error) from None
        return {Partition(each.topic, each.partition): each.offset if each.offset >= 0 else None for each in found}

    def read(
        self, spans: Mapping[Partition, Span], is_over: Callable[[], bool] = lambda: False
    ) -> Iterator[list[Message]]:
        """Yield the records of spans in blocks, in order within each partition.

        `is_over` ends the reading early, without an exception.

        Raises:
            TopicUnreadable: a partition cannot be read to the end of its span.
        """
        open_spans = {partition: span for partition, span in spans.items() if span.start < span.end}
        self.start({partition: span.start for partition, span in open_spans.items()})
        deadline = time.monotonic() + _SILENCE_SECONDS
        while open_spans and not is_over():
            block = []
            for message in self._consumer.consume(_RECORDS_AT_ONCE, timeout=0.2):
                deadline = time.monotonic() + _SILENCE_SECONDS
                where, offset = partition_of_record(message), message.offset() or 0
                span = open_spans.get(where)
                if span is None:
                    continue
                is_record = self._is_record(message)
                if is_record and offset < span.end:
                    block.append(message)
                # The last record may be followed by the mark of a transaction, which is no record.
                if not is_record or offset + 1 >= span.end:
                    del open_spans[where]
                    self._consumer.incremental_unassign([TopicPartition(*where)])
            if block:
                yield block
            if time.monotonic() > deadline:
                topic = next(iter(open_spans)).topic
                raise self._unreadable(topic, self.trouble or f"no record arrives within {_SILENCE_SECONDS:g} s")

    def record(self, where: Partition, offset: int) -> Message | None:
        """Return the record at an offset, or None if Kafka no longer has it."""
        span = self.spans([where.topic]).get(where, Span(0, 0))
        if span.start <= offset < span.end:
            for block in self.read({where: Span(offset, offset + 1)}):
                return block[0]
        return None

    def start(self, offsets: Mapping[Partition, int]) -> None:
        """Fetch the records from these offsets on, for `poll`."""
        self._consumer.assign([TopicPartition(*partition, offset) for partition, offset in offsets.items()])

    def poll(self, seconds: float) -> list[Message]:
        """Return the next records, as soon as there is one; none after this time."""
        first = self._consumer.poll(seconds)
        messages = [] if first is None else [first, *self._consumer.consume(_RECORDS_AT_ONCE, timeout=0)]
        return [message for message in messages if self._is_record(message)]

    def _is_record(self, message: Message) -> bool:
        """Return False for the end of a partition; raise other errors."""
        error, topic = message.error(), message.topic() or ""
        if error is not None and error.code() != PARTITION_END and not concerns_group(error):
            raise self._unreadable(topic, reason(error, readable(topic)))
        return error is None

    def _remember(self, error: KafkaError) -> None:
        if not concerns_group(error):
            self.trouble = error.str()

    def _failed(self, topic: str, error: KafkaException) -> TopicUnreadable:
        self._consumer.poll(0)  # fetches an error with more detail than "timed out"
        return self._unreadable(topic, self.trouble or reason(error, readable(topic)))

    def _unreadable(self, topic: str, why: str) -> TopicUnreadable:
        return TopicUnreadable(f"the topic {topic} at {self._servers} cannot be read: {why.rstrip('.')}{ADVICE}")


@contextmanager
def committed_offsets(bootstrap_servers: str, options: Mapping[str, str], group: str) -> Iterator[Callable[[str], int]]:
    """Yield a function that returns a group's offset in the first partition of a topic; negative for none.

    It raises a `KafkaException` if Kafka does not answer.
    """
    given: dict[str, Any] = {"log_level": 0, **options, "bootstrap.servers": bootstrap_servers}
    consumer = create(Consumer, {**given, "group.id": group, "enable.auto.commit": False})
    try:
        yield lambda topic: int(consumer.committed([TopicPartition(topic, 0)], timeout=_ANSWER_SECONDS)[0].offset)
    finally:
        consumer.close()
