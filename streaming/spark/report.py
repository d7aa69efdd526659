"""What the log says of micro-batches."""

import logging
from typing import Any

import orjson
from pyspark.sql.streaming.query import StreamingQuery

from streaming.spark import job

log = logging.getLogger("reexpand")


class Report:
    """One line for each micro-batch that did something.

    It asks the query now and then. As a listener it would be called for each micro-batch through Py4J, which then looks
    for each name that Python uses in all jars: a third of the JVM's CPU at 20 events a second.
    """

    def __init__(self, query: StreamingQuery) -> None:
        java: Any = query
        self._query = java._jsq  # noqa: SLF001 - PySpark's own objects ask the JVM for each field
        self._said = -1

    def write(self) -> None:
        """Says what was done since the last time."""
        latest = self._query.lastProgress()
        if latest is None or latest.batchId() <= self._said:
            return
        for progress in self._query.recentProgress():
            if progress.batchId() > self._said:
                self._say(orjson.loads(progress.json()))
        self._said = latest.batchId()

    def _say(self, progress: dict[str, Any]) -> None:
        if not progress["numInputRows"]:
            return
        counts = job.total(progress["observedMetrics"].get(job.METRICS, {}))
        done = ", ".join(f"{count} {name}" for name, count in sorted(counts.items()))
        log.info(
            "batch %d: %d records in %d ms: %s",
            progress["batchId"],
            progress["numInputRows"],
            progress["durationMs"].get("triggerExecution", 0),
            done or "no change",
        )
