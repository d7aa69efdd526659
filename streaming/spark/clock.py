"""The clock: time enters the job as records, so that a replay sees the same time."""

import logging
import threading
import time
from typing import Self

import orjson
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from streaming.config import Settings
from streaming.errors import NotWritten
from streaming.spark.producer import Producer

log = logging.getLogger("reexpand")


class Clock:
    """Thread for the clock stream: writes the time as long as the context is open.

    A tick that cannot be written is left out: the next one says as much. Ticks are also left out while the job is
    behind: they would overtake the requests of clients that have asked in time.
    """

    def __init__(self, spark: SparkSession, settings: Settings, query: StreamingQuery) -> None:
        self._spark = spark
        self._settings = settings
        self._query = query
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="clock", daemon=True)

    def __enter__(self) -> Self:
        if self._settings.tick_interval_ms:
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        if self._settings.tick_interval_ms:
            self._thread.join()

    def _run(self) -> None:
        with Producer(self._spark, self._settings) as producer:
            while not self._stop.wait(self._settings.tick_interval_ms / 1_000):
                if not self._is_up_to_date():
                    continue
                tick = orjson.dumps({"tick": int(time.time() * 1_000)}).decode()
                try:
                    producer.send(self._settings.clock, "tick", tick)
                except NotWritten as error:
                    log.warning("a tick cannot be written: %s", error)

    def _is_up_to_date(self) -> bool:
        """Return True if the query had read all records when it last looked for new ones."""
        if not self._query.status["isDataAvailable"]:
            return True
        progress = self._query.lastProgress
        return progress is not None and all(
            float(source.metrics.get("maxOffsetsBehindLatest", 0)) == 0 for source in progress.sources
        )
