"""Writer of records, which waits until Kafka has them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from streaming.kafka.clients import cause, create, produce, reason
from streaming.kafka.permissions import writable
from streaming.kafka.reader import Partition, partition_of_record

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_BY_KEY: Final = -1
"""Partition number that lets the client choose."""

_METADATA_SECONDS: Final = 2.0
"""Time to wait for a description of a topic that has not taken a record."""


class Writer:
    """Writer of records to any topics; as with Java's clients, a key selects the partition.

    Methods raise `failure` if the client cannot write any more, or Kafka rejects a record.

    Args:
        bootstrap_servers: addresses of brokers.
        options: client options of the user, in the names of librdkafka.
        failure: makes an exception of a sentence, without its full stop.
        further: options that override these and the options of the writer.
    """

    def __init__(
        self,
        bootstrap_servers: str,
        options: Mapping[str, str],
        failure: Callable[[str], Exception],
        further: Mapping[str, Any] | None = None,
    ) -> None:
        self._servers = bootstrap_servers
        self._failure = failure
        self._topic = ""
        # Last error of the client, such as an unreachable broker; blank if there is none.
        self.trouble = ""
        self._refused: tuple[str, KafkaError] | None = None
        self._written: list[tuple[Partition, int]] = []
        given: dict[str, Any] = {
            "log_level": 0,
            **options,
            "bootstrap.servers": bootstrap_servers,
            "enable.idempotence": True,
            "partitioner": "murmur2_random",
            "error_cb": self._remember,
        }
        self._producer = create(Producer, {**given, **(further or {})})

    def send(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        partition: int | None = None,
        *,
        headers: list[tuple[str, str | bytes | None]] | None = None,
    ) -> None:
        """Write a record; its key selects the partition if none is given."""
        self._topic = topic
        where = _BY_KEY if partition is None else partition
        try:
            produce(self._producer, topic, value, key, where, headers=headers, on_delivery=self._delivered)
        except KafkaException as error:
            raise self._failed(topic, error) from None
        self._producer.poll(0)

    def flush(self, seconds: float) -> list[tuple[Partition, int]]:
        """Wait for Kafka, and return the places of the records since the last call.

        Raises:
            Exception: `failure`, also if Kafka has not answered after this time.
        """
        written = self._written  # records that Kafka acknowledges during the wait are added to it
        if self.wait(seconds):
            raise self._failed(self._topic, self.trouble or self._silence(seconds))
        return written

    def wait(self, seconds: float) -> int:
        """Wait for Kafka, and return the number of records that it has not acknowledged after this time."""
        try:
            left = self._producer.flush(seconds)
        except SystemError:  # the client has lost a KeyboardInterrupt that reached its callback
            raise KeyboardInterrupt from None
        self._written = []
        refused, self._refused = self._refused, None
        if refused is not None:
            raise self._failed(*refused)
        return left

    def _silence(self, seconds: float) -> str:
        """Return the reason why Kafka has not answered within this time; the client waits for a missing topic."""
        try:
            error = self._producer.list_topics(self._topic, _METADATA_SECONDS).topics[self._topic].error
        except KafkaException:
            error = None
        if error is not None and error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
            return "it does not exist"
        return f"no broker answers within {seconds:g} s"

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is None:
            self._written.append((partition_of_record(message), message.offset() or 0))
        elif self._refused is None:
            self._refused = message.topic() or "", error

    def _remember(self, error: KafkaError) -> None:
        self.trouble = error.str()

    def _failed(self, topic: str, why: KafkaException | KafkaError | str) -> Exception:
        text = why if isinstance(why, str) else reason(cause(self._producer, why), writable(topic))
        return self._failure(f"the topic {topic} at {self._servers} did not take a record: {text.rstrip('.')}")
