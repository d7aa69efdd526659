"""The loop beside a running query: it reports, looks after what the query needs, and lets it end."""

import logging
import re
from typing import Any, NamedTuple, Protocol

from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from streaming.errors import JobError, JobFailed, ReexpandError
from streaming.spark.clock import Clock
from streaming.spark.failures import text_of
from streaming.spark.lease import Lease
from streaming.spark.monitoring import QueryMonitor
from streaming.spark.report import Report
from streaming.spark.watch import TopicWatch

log = logging.getLogger("reexpand")

_POLL_SECONDS = 0.2

_SETTLE_SECONDS = 1
"""Time in seconds until the query's status shows a micro-batch begun just before the query was to end."""

_BETWEEN_TRIGGERS = "Waiting for next trigger"
"""Status message of Spark's MicroBatchExecution between two micro-batches."""


class Stop(Protocol):
    """Wish that a query ends."""

    def wait(self, timeout: float, /) -> bool:
        """Wait some seconds at most, and tell whether the query is to end."""


class Beside(NamedTuple):
    """Companions of a running query."""

    report: Report
    lease: Lease
    clock: Clock
    watch: TopicWatch
    monitor: QueryMonitor | None = None


def attend(query: StreamingQuery, stop: Stop, beside: Beside) -> None:
    """Report on the query, and look after what it needs, until it is to stop; then let it end.

    Raises:
        ReexpandError: as `service.run` says.
    """
    report, lease, clock, watch, monitor = beside
    try:
        while not (clock.has_failed or stop.wait(_POLL_SECONDS)):
            report.write()
            if lease.successor():
                _silence(query)  # Spark would log each task that it cancels
                query.stop()
                raise lease.taken_over()
            _look(watch, query)
            if monitor is not None:
                monitor.look()
            if not query.isActive:
                query.awaitTermination()  # raises the error that ended it
                raise JobFailed("the query ended without being asked to")
        log.info("stopping after the running micro-batch")
        end_after_batch(query)
        query.awaitTermination()
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
        raise watch.explain(text_of(error)) from error


def end_after_batch(query: StreamingQuery) -> None:
    """Let the query end when its running micro-batch is committed, or at once when none runs.

    `StreamingQuery.stop` interrupts the micro-batch, so that the next start repeats it: nothing is lost, but its
    updates are written twice. Spark's loop looks at this state between micro-batches and ends cleanly.
    """
    java: Any = query
    runtime = java._jsq.streamingQuery()  # noqa: SLF001 - Spark has no public graceful stop
    package = _jvm().org.apache.spark.sql.execution.streaming.runtime
    runtime.state().set(getattr(getattr(package, "TERMINATED$"), "MODULE$"))
    # No micro-batch begins from here on. A loop that sleeps until its next trigger would look only then.
    query.awaitTermination(_SETTLE_SECONDS)  # returns True in this state, whether the query has ended or not
    if query.status["message"] == _BETWEEN_TRIGGERS:
        query.stop()


def _look(watch: TopicWatch, query: StreamingQuery) -> None:
    """Look at the topics; end the query at once where one was replaced: its micro-batch may read another topic."""
    try:
        watch.look()
    except JobError:
        _silence(query)
        query.stop()
        raise


def _silence(query: StreamingQuery) -> None:
    """Let Spark log nothing more."""
    java: Any = query
    java._jsq.sparkSession().sparkContext().setLogLevel("OFF")  # noqa: SLF001 - as below


def _jvm() -> Any:
    active = SparkSession.getActiveSession()
    if active is None:
        raise ReexpandError("there is no Spark session")
    return active._jvm  # noqa: SLF001 - as above
