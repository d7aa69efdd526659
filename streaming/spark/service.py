"""The life of a running job: start, report, stop after the running micro-batch."""

import logging
import signal
import threading
from typing import Any

from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from streaming.config import Settings
from streaming.errors import JobFailed, ReexpandError
from streaming.local import jars
from streaming.spark import checkpoint, group_file, job, provision, session
from streaming.spark.clock import Clock
from streaming.spark.report import Report

log = logging.getLogger("reexpand")

READY = "ready: reading %s from %s"
"""Log line of a job whose query runs; scripts may wait for it."""

_POLL_SECONDS = 0.2

_SETTLE_SECONDS = 1
"""Time in seconds until the query's status shows a micro-batch begun just before the query was to end."""

_BETWEEN_TRIGGERS = "Waiting for next trigger"
"""Status message of Spark's MicroBatchExecution between two micro-batches."""


def run(settings: Settings) -> None:
    """Run the job until SIGTERM or SIGINT; a running micro-batch is finished first.

    Raises:
        SparkUnavailable: Spark does not start.
        CheckpointMismatch: the checkpoint was made with other settings, or does not say with which.
        KafkaUnavailable: no broker answers.
        ConfigInvalid: the file of group attributes is not valid.
        NotWritten: Kafka did not take the group attributes.
        JobFailed: the query failed.
    """
    settings = settings.model_copy(update={"checkpoint": checkpoint.absolute(settings.checkpoint)})
    group_events = group_file.read(settings.groups)
    stop = threading.Event()
    _set_on_signal(stop)
    spark = session.build(settings, checkpoint.default_partitions(), jars.spark())
    _set_on_signal(stop)  # again: a new SparkContext handles SIGINT itself, and would abort the running micro-batch
    try:
        shuffle_partitions = checkpoint.agree(spark, settings)
        spark.conf.set("spark.sql.shuffle.partitions", shuffle_partitions)
        provision.provide(spark, settings)
        group_file.publish(spark, settings, group_events)
        checkpoint.fix(spark, settings, shuffle_partitions)  # not earlier: a start that fails must not fix settings
        query = job.start(spark, settings)
        log.info(READY, ", ".join(settings.inputs), settings.bootstrap_servers)
        with Clock(spark, settings, query):
            _wait(query, stop, Report(query))
    finally:
        spark.stop()
    log.info("stopped")


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


def _set_on_signal(stop: threading.Event) -> None:
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())


def _wait(query: StreamingQuery, stop: threading.Event, report: Report) -> None:
    """Report on the query until it is to stop, then let it end."""
    try:
        while not stop.wait(_POLL_SECONDS):
            report.write()
            if not query.isActive:
                query.awaitTermination()  # raises the error that ended it
                raise JobFailed("the query ended without being asked to")
        log.info("stopping after the running micro-batch")
        end_after_batch(query)
        query.awaitTermination()
        report.write()
    except StreamingQueryException as error:
        raise JobFailed(_reason(error)) from error


def _jvm() -> Any:
    active = SparkSession.getActiveSession()
    if active is None:
        raise ReexpandError("there is no Spark session")
    return active._jvm  # noqa: SLF001 - as above


def _reason(error: StreamingQueryException, limit: int = 4_000) -> str:
    """Return Spark's text of an error without the query's plan, cut to `limit` characters."""
    text = str(error).partition("=== Streaming Query ===")[0].strip()
    return text if len(text) <= limit else f"{text[:limit]}..."
