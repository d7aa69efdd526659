"""Positions in the input topics: where they end, how far the query has read them, and where a new checkpoint begins."""

from collections.abc import Mapping, Sequence
from typing import Any, Self

import orjson
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from streaming.config import Settings
from streaming.errors import KafkaUnavailable
from streaming.spark import kafka_options

Positions = Mapping[str, Mapping[int, int]]
"""Offsets by topic and partition."""

_EARLIEST = -2
"""Offset that stands for the beginning of a partition in Spark's options."""

TIMEOUTS = {"default.api.timeout.ms": 10_000, "request.timeout.ms": 5_000}
"""Longest waits for a broker, in milliseconds; with Kafka's defaults a stopping job would wait a minute."""


class InputEnds:
    """Kafka client in Spark's JVM that tells where topics end, as a context manager."""

    def __init__(self, spark: SparkSession, settings: Settings) -> None:
        jvm: Any = spark._jvm  # noqa: SLF001 - the one way to the Kafka client that Spark uses
        self._servers = settings.bootstrap_servers
        self._partition = jvm.org.apache.kafka.common.TopicPartition
        self._latest = jvm.org.apache.kafka.clients.admin.OffsetSpec.latest()
        properties = kafka_options.for_client(jvm, settings, TIMEOUTS)
        self._admin = jvm.org.apache.kafka.clients.admin.Admin.create(properties)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._admin.close()

    def id(self, topic: str) -> str:
        """Return the id that Kafka gave a topic when it was created.

        Raises:
            KafkaUnavailable: no broker answers, or the topic does not exist.
        """
        try:
            return str(self._admin.describeTopics([topic]).allTopicNames().get()[topic].topicId().toString())
        except Py4JJavaError as error:
            raise self._unavailable(error) from None

    def of(self, topics: Sequence[str]) -> Positions:
        """Return the offsets behind the last records, those of open transactions included.

        Raises:
            KafkaUnavailable: no broker answers, or a topic does not exist.
        """
        try:
            described = self._admin.describeTopics(list(topics)).allTopicNames().get()
            parts = [
                (topic, each.partition(), self._partition(topic, each.partition()))
                for topic in topics
                for each in described[topic].partitions()
            ]
            found = self._admin.listOffsets({part: self._latest for _, _, part in parts}).all().get()
            ends: dict[str, dict[int, int]] = {topic: {} for topic in topics}
            for topic, number, part in parts:
                ends[topic][number] = found[part].offset()
        except Py4JJavaError as error:
            raise self._unavailable(error) from None
        return ends

    def _unavailable(self, error: Py4JJavaError) -> KafkaUnavailable:
        return KafkaUnavailable(f"Kafka at {self._servers} does not tell where the inputs end: {root_cause(error)}")


def committed(query: StreamingQuery) -> Positions:
    """Return the positions up to which committed micro-batches have read the inputs; empty before the first one."""
    java: Any = query
    progress = java._jsq.streamingQuery().committedOffsets()  # noqa: SLF001 - PySpark shows no more than past progress
    return parse(str(progress.values().head().json())) if progress.nonEmpty() else {}


def parse(text: str | bytes) -> Positions:
    """Return the positions in JSON of Spark's Kafka source."""
    return {
        topic: {int(number): offset for number, offset in offsets.items()}
        for topic, offsets in orjson.loads(text).items()
    }


def dump(positions: Positions) -> str:
    """Return positions as JSON for Spark's Kafka source."""
    return orjson.dumps(positions, option=orjson.OPT_NON_STR_KEYS).decode()


def are_read(wanted: Positions, read: Positions) -> bool:
    """Tell whether all records before the wanted positions are read."""
    return not unread(wanted, read)


def unread(wanted: Positions, read: Positions) -> list[str]:
    """Return the partitions that are not read up to the wanted positions, in words."""
    return [
        f"{topic}[{number}] is read up to {position} of {offset}"
        for topic, offsets in wanted.items()
        for number, offset in offsets.items()
        if (position := read.get(topic, {}).get(number, 0)) < offset
    ]


def beginning(spark: SparkSession, settings: Settings) -> str:
    """Return where a new checkpoint begins to read, as an option of Spark's Kafka source.

    It reads events from the first one on. What the clock said before is left out: ticks, alarms and wakes are made of
    the events, and a new checkpoint makes its own. Spark does not look at this for a checkpoint that has begun.

    Raises:
        KafkaUnavailable: no broker answers, or a topic does not exist.
    """
    with InputEnds(spark, settings) as ends:
        found = ends.of(settings.inputs)
    events = {topic: dict.fromkeys(offsets, _EARLIEST) for topic, offsets in found.items()}
    return dump({**events, settings.clock: found[settings.clock]})


def root_cause(error: Py4JJavaError) -> str:
    """Return the text of the innermost exception of the JVM."""
    java = error.java_exception
    while java.getCause() is not None:
        java = java.getCause()
    return str(java.toString())
