"""The log of micro-batches."""

import logging
from collections import Counter
from typing import Any

import orjson
from pyspark.sql.streaming.query import StreamingQuery

from streaming.spark import counts

log = logging.getLogger("reexpand")

_LITERAL = (
    "clients of the group %r ask for patterns on %r, as %r, but the group is literal, so its entries are names. "
    "If patterns are meant: `reexpand send group %s --parent %s --wildcard`"
)
_MAX_WARNED = 1_000
"""Number of groups that are warned of, each once."""


class Report:
    """One log line for each micro-batch.

    Its level is INFO where there were updates, dead letters or ignored entries, else DEBUG: an idle job has a
    micro-batch for each tick of its own.

    The report asks the query now and then. Spark would call a listener for each micro-batch through Py4J, which then
    looks for each name that Python uses in all jars: a third of the JVM's CPU at 20 events a second.
    """

    def __init__(self, query: StreamingQuery) -> None:
        java: Any = query
        self._query = java._jsq  # noqa: SLF001 - PySpark's own objects ask the JVM for each field
        self._last_reported = -1
        self._warned: set[tuple[str, str]] = set()

    def write(self) -> None:
        """Log all micro-batches since the last call."""
        latest = self._query.lastProgress()
        if latest is None or latest.batchId() <= self._last_reported:
            return
        for progress in self._query.recentProgress():
            if progress.batchId() > self._last_reported:
                self._write(orjson.loads(progress.json()))
        self._last_reported = latest.batchId()

    def _write(self, progress: dict[str, Any]) -> None:
        if not progress["numInputRows"]:
            return
        total = counts.total(progress["observedMetrics"].get(counts.OBSERVATION, {}))
        suspects = counts.suspects(total)
        _log(progress, total)
        for parent, group, entry in suspects:
            if (parent, group) not in self._warned and len(self._warned) < _MAX_WARNED:
                self._warned.add((parent, group))
                log.warning(_LITERAL, group, parent, entry, group, parent)


def _log(progress: dict[str, Any], total: Counter[str]) -> None:
    log.log(
        logging.INFO if total else logging.DEBUG,
        "micro-batch %d: %d records in %d ms: %s",
        progress["batchId"],
        progress["numInputRows"],
        progress["durationMs"].get("triggerExecution", 0),
        ", ".join(f"{count} {name}" for name, count in sorted(total.items())) or "no change",
    )
