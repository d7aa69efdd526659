"""A Kafka producer in Spark's JVM, with all of the job's client options."""

from collections.abc import Iterable
from itertools import islice
from typing import Any, Self

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from streaming.config import Settings
from streaming.errors import NotWritten
from streaming.kafka.permissions import missing, writable
from streaming.records.writing import KafkaRecord
from streaming.spark import kafka_options
from streaming.spark.kafka_admin import root_cause

_TIMEOUTS = {"max.block.ms": 10_000, "request.timeout.ms": 5_000, "delivery.timeout.ms": 10_000}
"""Longest waits for a broker, in milliseconds; with Kafka's defaults a stopping job would wait two minutes."""

_RECORDS_AT_ONCE = 1_000
"""Number of records in flight."""


class Producer:
    """A Kafka producer for text, as a context manager."""

    def __init__(self, spark: SparkSession, settings: Settings) -> None:
        jvm: Any = spark._jvm  # noqa: SLF001 - the only way to the Kafka client that Spark uses
        properties = kafka_options.for_client(jvm, settings, _TIMEOUTS)
        serializer = jvm.org.apache.kafka.common.serialization.StringSerializer
        self._package = jvm.org.apache.kafka.clients.producer
        self._producer = self._package.KafkaProducer(properties, serializer(), serializer())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._producer.close()

    def send(self, topic: str, key: str, value: str) -> int:
        """Write a record, wait until Kafka has it, and return its timestamp in milliseconds.

        That is the broker's time if the topic has `message.timestamp.type=LogAppendTime`, else this machine's.

        Raises:
            NotWritten: Kafka did not take it in time.
        """
        return self._timestamp(topic, self._send(topic, key, value))

    def send_all(self, topic: str, records: Iterable[KafkaRecord]) -> None:
        """Write records, and wait until Kafka has them.

        Raises:
            NotWritten: Kafka did not take one of them in time.
        """
        rest = iter(records)
        while some := list(islice(rest, _RECORDS_AT_ONCE)):
            for sent in [self._send(topic, key.decode(), (value or b"").decode()) for key, value in some]:
                self._timestamp(topic, sent)

    def _send(self, topic: str, key: str, value: str) -> Any:
        return self._producer.send(self._package.ProducerRecord(topic, key, value))

    def _timestamp(self, topic: str, sent: Any) -> int:
        try:
            return int(sent.get().timestamp())
        except Py4JJavaError as error:
            why = root_cause(error)
            refused = "TopicAuthorizationException" in why
            raise NotWritten(f"{topic}: {missing([writable(topic)]) if refused else why}") from None
