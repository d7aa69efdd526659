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
from streaming.spark import checkpoint, groups, job, provision, session
from streaming.spark.clock import Clock
from streaming.spark.report import Report

log = logging.getLogger("reexpand")

READY = "ready: reading %s from %s"
"""The line that says that the job runs; scripts may wait for it."""

_POLL_SECONDS = 0.2


def run(settings: Settings) -> None:
    """Runs the job until SIGTERM or SIGINT; a running micro-batch is finished first.

    Raises:
        CheckpointMismatch: the checkpoint was made with other settings.
        KafkaUnavailable: no broker answers.
        ConfigInvalid: the file of group attributes is not valid.
        NotWritten: Kafka did not take them.
        JobFailed: the query failed.
    """
    known = groups.read(settings.groups)
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    spark = session.build(settings, checkpoint.default_partitions(), jars.spark())
    try:
        spark.conf.set("spark.sql.shuffle.partitions", checkpoint.agree(spark, settings))
        provision.provide(spark, settings)
        groups.publish(spark, settings, known)
        query = job.start(spark, settings)
        log.info(READY, ", ".join(settings.inputs), settings.bootstrap_servers)
        with Clock(spark, settings, query):
            _wait(query, stop, Report(query))
    finally:
        spark.stop()
    log.info("stopped")


def _wait(query: StreamingQuery, stop: threading.Event, report: Report) -> None:
    try:
        while not stop.wait(_POLL_SECONDS):
            report.write()
            if not query.isActive:
                query.awaitTermination()  # raises what ended it
                raise JobFailed("the query ended without being asked to")
        log.info("stopping after the running micro-batch")
        end_after_batch(query)
        query.awaitTermination()
        report.write()
    except StreamingQueryException as error:
        raise JobFailed(_reason(error)) from error


def end_after_batch(query: StreamingQuery) -> None:
    """Lets the query end when its running micro-batch is committed.

    `StreamingQuery.stop` interrupts the batch, which then is repeated at the next start: nothing is lost, but its
    updates are written twice. Spark's loop looks at this state between micro-batches and ends cleanly.
    """
    java: Any = query
    runtime = java._jsq.streamingQuery()  # noqa: SLF001 - Spark has no public graceful stop
    package = _jvm().org.apache.spark.sql.execution.streaming.runtime
    runtime.state().set(getattr(getattr(package, "TERMINATED$"), "MODULE$"))


def _jvm() -> Any:
    active = SparkSession.getActiveSession()
    if active is None:
        raise ReexpandError("there is no Spark session")
    return active._jvm  # noqa: SLF001 - as above


def _reason(error: StreamingQueryException, limit: int = 4_000) -> str:
    """What Spark says went wrong, without the query's plan."""
    text = str(error).partition("=== Streaming Query ===")[0].strip()
    return text if len(text) <= limit else f"{text[:limit]}..."
