"""Ticks: time enters the job as records, so that a replay sees the same time."""

import logging
import threading
import time
from typing import Any, Self

import orjson
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from streaming import sinks
from streaming.config import Settings

log = logging.getLogger("reexpand")


class Clock:
    """Writes the time to the clock stream as long as it is open, through Spark's own Kafka client.

    A tick that cannot be written is left out: the next one says as much. So is one while the job is behind: it would
    overtake the requests of clients that have asked in time.
    """

    def __init__(self, spark: SparkSession, settings: Settings, query: StreamingQuery) -> None:
        self._query = query
        self._topic = settings.clock
        self._seconds = settings.tick_interval_ms / 1_000
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="clock", daemon=True)
        jvm: Any = spark._jvm  # noqa: SLF001 - the one way to the Kafka client that Spark uses
        self._jvm = jvm
        self._properties = jvm.java.util.Properties()
        for key, value in sinks.connection(settings).items():
            self._properties.put(key.removeprefix("kafka."), value)

    def __enter__(self) -> Self:
        if self._seconds:
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        if self._seconds:
            self._thread.join()

    def _run(self) -> None:
        serializer = self._jvm.org.apache.kafka.common.serialization.StringSerializer
        producer = self._jvm.org.apache.kafka.clients.producer.KafkaProducer(
            self._properties, serializer(), serializer()
        )
        try:
            while not self._stop.wait(self._seconds):
                if not self._is_up_to_date():
                    continue
                value = orjson.dumps({"tick": int(time.time() * 1_000)}).decode()
                record = self._jvm.org.apache.kafka.clients.producer.ProducerRecord(self._topic, "tick", value)
                try:
                    producer.send(record).get()
                except Py4JJavaError as error:
                    log.warning("a tick cannot be written: %s", error.java_exception)
        finally:
            producer.close()

    def _is_up_to_date(self) -> bool:
        if not self._query.status["isDataAvailable"]:
            return True
        progress = self._query.lastProgress
        return progress is not None and all(
            float(source.metrics.get("maxOffsetsBehindLatest", 0)) == 0 for source in progress.sources
        )
