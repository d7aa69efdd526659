"""Writing to Kafka from the driver, through Spark's own client, so that all of the job's client options hold."""

from typing import Any, Self

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from streaming.config import Settings
from streaming.errors import NotWritten
from streaming.spark import sinks

_PATIENCE = {"max.block.ms": 10_000, "request.timeout.ms": 5_000, "delivery.timeout.ms": 10_000}
"""How long to wait for a broker; Kafka's defaults would hold up a job that is to stop for two minutes."""


class Producer:
    """A Kafka producer in Spark's JVM, as a context manager."""

    def __init__(self, spark: SparkSession, settings: Settings) -> None:
        jvm: Any = spark._jvm  # noqa: SLF001 - the one way to the Kafka client that Spark uses
        properties = sinks.client_properties(jvm, settings, _PATIENCE)
        serializer = jvm.org.apache.kafka.common.serialization.StringSerializer
        self._kafka = jvm.org.apache.kafka.clients.producer
        self._producer = self._kafka.KafkaProducer(properties, serializer(), serializer())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._producer.close()

    def send(self, topic: str, key: str, value: str) -> None:
        """Writes a record and waits until Kafka has it.

        Raises:
            NotWritten: Kafka did not take it in time.
        """
        try:
            self._producer.send(self._kafka.ProducerRecord(topic, key, value)).get()
        except Py4JJavaError as error:
            raise NotWritten(f"{topic}: {error.java_exception}") from None
