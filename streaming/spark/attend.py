"""Supervisor loop of a running query: reports, lease, clock, topics and an orderly end."""

import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple, Protocol

from pyspark.errors import StreamingQueryException
from pyspark.sql.streaming.query import StreamingQuery

from streaming.errors import JobError, JobFailed
from streaming.spark import pace, quarantine
from streaming.spark.clock import Clock
from streaming.spark.ending import STOP_SECONDS
from streaming.spark.failures import text_of
from streaming.spark.lease import Lease
from streaming.spark.monitoring import QueryMonitor
from streaming.spark.report import Report
from streaming.spark.watch import TopicWatch

log = logging.getLogger("reexpand")

_POLL_SECONDS = 0.2


class Stop(Protocol):
    """Request to end a query."""

    def wait(self, timeout: float, /) -> bool:
        """Wait some seconds at most, and return whether the query is to end."""


class Beside(NamedTuple):
    """Companions of a running query."""

    report: Report
    lease: Lease
    clock: Clock
    watch: TopicWatch
    monitor: QueryMonitor | None = None


def attend(query: StreamingQuery, stop: Stop, beside: Beside) -> None:
    """Supervise the query until it is to stop, then end it after its running micro-batch.

    Raises:
        EntriesLethal: entries kill or hang workers; the query has ended, and may be started again without them.
        ReexpandError: as in `service.run`.
    """
    report, lease, clock, watch, monitor = beside
    failures = quarantine.FailureWatch(query)
    try:
        while not (clock.has_failed or stop.wait(_POLL_SECONDS)):
            report.write()
            _end_if_replaced(lease, query)
            _end_if_lethal(failures, query)
            _look(watch, query)
            if monitor is not None:
                monitor.look()
            if not query.isActive:
                query.awaitTermination()  # raises the error that ended it
                raise JobFailed("the query ended without being asked to")
        log.info("stopping after the running micro-batch")
        pace.end_after_batch(query)
        if not query.awaitTermination(STOP_SECONDS):
            log.warning("the micro-batch does not end within %d s: it is interrupted, and repeated later", STOP_SECONDS)
            _silence(query)
            query.stop()
            return
        report.write()
        if monitor is not None:
            monitor.keep_sizes()
        clock.check()
    except StreamingQueryException as error:
        if lease.find_successor():
            raise lease.taken_over() from None
        refusal = re.search(r"reexpand\.Refused: (.+)", str(error))
        if refusal:
            raise JobFailed(f"{refusal[1]}.") from None
        lethal = quarantine.lethal(str(error))
        if lethal is not None:
            raise lethal from None
        raise watch.explain(text_of(error)) from error


def _end_if_replaced(lease: Lease, query: StreamingQuery) -> None:
    """End the query if another driver has the lease."""
    if lease.successor():
        _silence(query)  # Spark would log each task that it cancels
        query.stop()
        raise lease.taken_over()


def _end_if_lethal(failures: quarantine.FailureWatch, query: StreamingQuery) -> None:
    """End the query if a task has named entries that kill or hang workers."""
    lethal = failures.found()
    if lethal is not None:
        with _silent(query):
            query.stop()
        raise lethal


def _look(watch: TopicWatch, query: StreamingQuery) -> None:
    """Check the topics; end the query at once if a topic was replaced: its micro-batch may read the new topic."""
    try:
        watch.look()
    except JobError:
        _silence(query)
        query.stop()
        raise


@contextmanager
def _silent(query: StreamingQuery) -> Iterator[None]:
    """Silence Spark's log for a while."""
    _silence(query)
    try:
        yield
    finally:
        _set_level(query, "WARN" if log.isEnabledFor(logging.DEBUG) else "ERROR")


def _silence(query: StreamingQuery) -> None:
    """Silence Spark's log."""
    _set_level(query, "OFF")


def _set_level(query: StreamingQuery, level: str) -> None:
    java: Any = query
    java._jsq.sparkSession().sparkContext().setLogLevel(level)  # noqa: SLF001 - PySpark does not expose it
