"""The log of micro-batches."""

import itertools
import logging
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import orjson
from pyspark.sql.streaming.query import StreamingQuery

from streaming.monitor.batch import BatchReport
from streaming.printable import quoted
from streaming.records.model import Reason
from streaming.worker.rows import FACTS, KeyFacts, OutputKind

log = logging.getLogger("reexpand")

_LITERAL = (
    "clients of the group %r ask for patterns on %r, as %r, but the group is literal, so its entries are names. "
    "If patterns are meant: `reexpand send group --wildcard --parent=%s -- %s`"
)
_NOT_APPLIED = (
    "%d entries are not applied and have become dead letters; the first one is in %s, partition %d, offset %d, at "
    "position %d of its record: %s"
)
_MAX_WARNED = 1_000
"""Number of groups that are warned of, each once."""


def add_up(progress: Mapping[str, Any]) -> tuple[Counter[str], list[KeyFacts]]:
    """Add up the counts in Spark's progress of a micro-batch, and return them with the facts of the keys.

    Counts are output records by kind, and ignored entries by reason.
    """
    summed: Counter[str] = Counter()
    keys = []
    for counts in orjson.loads(progress.get("sink", {}).get("metrics", {}).get("counts", "[]")):
        facts = counts.pop(FACTS, None)
        if facts is not None:
            keys.append(KeyFacts(*facts))
        summed.update(counts)
    return summed, keys


def take_failures(counts: Counter[str]) -> list[tuple[str, int, int, int, str]]:
    """Remove the entries that raised an exception from counts.

    Returns:
        Kafka topic, partition, offset, position in the record, and message of each, in the order of their places.
    """
    return sorted(tuple(each) for each in _taken(counts, OutputKind.FAILURE))


def _taken(counts: Counter[str], start: str) -> list[Any]:
    """Remove the kinds with a prefix from counts; return the JSON after it."""
    kinds = [kind for kind in counts if kind.startswith(start)]
    for kind in kinds:
        del counts[kind]
    return [orjson.loads(kind.removeprefix(start)) for kind in kinds]


class Report:
    """One log line for each micro-batch.

    Its level is INFO if there were updates, dead letters or ignored entries, else DEBUG: an idle job has a micro-batch
    for each of its ticks.

    The report polls the query. Spark would call a listener for each micro-batch through Py4J, which then looks for
    each name that Python uses in all jars: a third of the JVM's CPU at 20 events per second.

    `follow` is called with each micro-batch.
    """

    def __init__(self, query: StreamingQuery, follow: Callable[[BatchReport], None] | None = None) -> None:
        java: Any = query
        self._query = java._jsq  # noqa: SLF001 - PySpark's own objects ask the JVM for each field
        self._follow = follow
        self._last_reported = -1
        self._warned: set[tuple[str, str]] = set()

    def write(self) -> None:
        """Log all micro-batches since the last call."""
        latest = self._query.lastProgress()
        if latest is None or latest.batchId() <= self._last_reported:
            return
        # From the last one: Py4J asks the JVM for each of the hundred that Spark keeps, and for its number.
        recent = reversed(self._query.recentProgress())
        unseen = list(itertools.takewhile(lambda each: each.batchId() > self._last_reported, recent))
        for progress in reversed(unseen):
            self._take(orjson.loads(progress.json()))
        self._last_reported = unseen[0].batchId()

    def _take(self, progress: dict[str, Any]) -> None:
        total, keys = add_up(progress)
        failures = take_failures(total)
        suspects = _taken(total, OutputKind.SUSPECT)  # literal groups with an apparent pattern
        if self._follow is not None:
            self._follow(BatchReport.of(progress, total, keys))
        if progress["numInputRows"]:
            _write(progress, by_kind(total))
        if failures:
            topic, partition, offset, position, message = failures[0]
            number = total[f"{OutputKind.DEAD_LETTER}:{Reason.NOT_APPLICABLE}"]
            log.warning(_NOT_APPLIED, number, topic, partition, offset, position, message)
        for parent, group, entry in suspects:
            if (parent, group) not in self._warned and len(self._warned) < _MAX_WARNED:
                self._warned.add((parent, group))
                log.warning(_LITERAL, group, parent, entry, quoted(parent), quoted(group))


def _write(progress: dict[str, Any], total: Counter[str]) -> None:
    milliseconds = progress["durationMs"].get("triggerExecution", 0)
    log.log(
        logging.INFO if total else logging.DEBUG,
        "micro-batch %d: %d records in %d ms: %s",
        progress["batchId"],
        progress["numInputRows"],
        milliseconds,
        ", ".join(f"{count} {name}" for name, count in sorted(total.items())) or "no change",
        extra={
            "micro_batch": progress["batchId"],
            "records": progress["numInputRows"],
            "milliseconds": milliseconds,
            "counts": dict(total),
        },
    )


def by_kind(total: Counter[str]) -> Counter[str]:
    """Return counts without the causes of updates and the reasons of dead letters."""
    summed: Counter[str] = Counter()
    for name, count in total.items():
        kind = name.partition(":")[0]
        summed[name if kind == "ignored" else kind] += count
    return summed
