"""Kafka clients in Spark's JVM, and Spark's source and sink, with all of the job's client options."""

from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Any, Final, Self

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.sql import SparkSession

from streaming.config import Settings
from streaming.errors import NotWritten
from streaming.kafka import options
from streaming.kafka.permissions import missing, writable
from streaming.records.record import KafkaRecord
from streaming.spark.gateway import items, java_class

JAVA_ERRORS: Final = (Py4JError, OSError)
"""Exceptions of a call into the JVM; if the JVM has ended, Py4J passes on the refused connection."""

_PROVIDERS = "config.providers"
"""Prefix of options that Java's clients accept and do not list."""

_TIMEOUTS = {"max.block.ms": 10_000, "request.timeout.ms": 5_000, "delivery.timeout.ms": 10_000}
"""Longest waits for a broker, in milliseconds; with Kafka's defaults a stopping job would wait two minutes."""

_RECORDS_AT_ONCE = 1_000
"""Number of records in flight."""


def check_options(spark: SparkSession, settings: Settings) -> None:
    """Raise `ConfigInvalid` if Kafka's Java clients do not accept an option of the file."""
    if settings.kafka_options is None:
        return
    configs = ("producer.ProducerConfig", "consumer.ConsumerConfig", "admin.AdminClientConfig")
    known = {str(name) for config in configs for name in items(kafka_class(spark, f"clients.{config}").configNames())}
    options.check_java(settings, lambda name: name in known or name.startswith(_PROVIDERS))


def options_for_spark(settings: Settings) -> dict[str, str]:
    """Return the client options as Spark's Kafka source and sink take them, each with the prefix `kafka.`."""
    return {f"kafka.{key}": value for key, value in _client_options(settings).items()}


def kafka_class(spark: SparkSession, name: str) -> Any:
    """Return a Java class of the Kafka client that Spark uses, by its name below `org.apache.kafka`."""
    return java_class(spark, f"org.apache.kafka.{name}")


def client_properties(spark: SparkSession, settings: Settings, defaults: Mapping[str, int | str]) -> Any:
    """Return the client options as Java properties; `defaults` apply to options that are not set."""
    properties = java_class(spark, "java.util.Properties")()
    for key, value in {**defaults, **_client_options(settings)}.items():
        properties.put(key, str(value))
    return properties


def _client_options(settings: Settings) -> dict[str, str]:
    return {"bootstrap.servers": settings.bootstrap_servers, **options.java_options(settings)}


def root_cause(error: Py4JJavaError) -> str:
    """Return the text of the innermost exception of the JVM."""
    java = error.java_exception
    while java.getCause() is not None:
        java = java.getCause()
    return str(java.toString())


class Producer:
    """A Kafka producer for text, as a context manager; raises `NotWritten` if Kafka does not take a record in time."""

    def __init__(self, spark: SparkSession, settings: Settings) -> None:
        properties = client_properties(spark, settings, _TIMEOUTS)
        serializer = kafka_class(spark, "common.serialization.StringSerializer")
        self._record = kafka_class(spark, "clients.producer.ProducerRecord")
        self._producer = kafka_class(spark, "clients.producer.KafkaProducer")(properties, serializer(), serializer())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._producer.close()

    def send(self, topic: str, key: str, value: str) -> int:
        """Write a record, wait until Kafka has it, and return its time in ms.

        That is the broker's time if the topic has `message.timestamp.type=LogAppendTime`, else this machine's.
        """
        return self._timestamp(topic, self._send(topic, key, value))

    def send_all(self, topic: str, records: Iterable[KafkaRecord]) -> int:
        """Write records, wait until Kafka has them, and return their number."""
        rest, count = iter(records), 0
        while some := list(islice(rest, _RECORDS_AT_ONCE)):
            for sent in [self._send(topic, key.decode(), (value or b"").decode()) for key, value in some]:
                self._timestamp(topic, sent)
            count += len(some)
        return count

    def _send(self, topic: str, key: str, value: str) -> Any:
        return self._producer.send(self._record(topic, key, value))

    def _timestamp(self, topic: str, sent: Any) -> int:
        try:
            return int(sent.get().timestamp())
        except Py4JJavaError as error:
            why = root_cause(error)
            refused = "TopicAuthorizationException" in why
            raise NotWritten(f"{topic}: {missing([writable(topic)]) if refused else why}") from None
