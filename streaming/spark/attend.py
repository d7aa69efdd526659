"""Supervisor loop of a running query: reports, lease, clock, topics and an end within a limited time."""

import logging
import re
import threading
import time
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any, Final, Self

from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from streaming.config import Settings
from streaming.errors import EntriesLethal, JobError, JobFailed, KafkaUnavailable, ReexpandError
from streaming.kafka import facts
from streaming.kafka.facts import NotedTopic
from streaming.spark import checkpoint, quarantine, sinks
from streaming.spark.clock import Clock
from streaming.spark.failures import explained, text_of
from streaming.spark.kafka_admin import KafkaAdmin
from streaming.spark.lease import Lease
from streaming.spark.monitoring import QueryMonitor, Report

log = logging.getLogger("reexpand")

if TYPE_CHECKING:
    from subprocess import Popen

STOP_SECONDS: Final = 15
"""Time in seconds within which a running micro-batch may end; then it is interrupted, and the next start repeats it."""

LIMIT_SECONDS: Final = 22
"""Time in seconds after which Spark's JVM is killed; orchestrators kill the job itself after 30 s."""

_GONE_SECONDS: Final = 5

LOOK_SECONDS = 5
"""Time between two checks of the topics."""

_POLL_SECONDS = 0.2


class Limit:
    """Limit for the end of a job after `stop` is set: it kills Spark's JVM, and suppresses the failures of that."""

    def __init__(self, stop: threading.Event, seconds: float = LIMIT_SECONDS) -> None:
        self._stop, self._seconds, self._is_over = stop, seconds, threading.Event()
        self._has_killed = False
        self._jvm: Popen[bytes] | None = None

    def watch(self, spark: SparkSession) -> None:
        """Set the JVM to kill to a session's; under spark-submit it is not ours."""
        gateway: Any = spark.sparkContext._gateway  # noqa: SLF001 - PySpark shows no more
        self._jvm = getattr(gateway, "proc", None)

    def __enter__(self) -> Self:
        threading.Thread(target=self._run, name="ending", daemon=True).start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> bool:
        self._is_over.set()
        return self._has_killed and kind is not None and issubclass(kind, Exception)

    def _run(self) -> None:
        self._stop.wait()
        if self._is_over.wait(self._seconds) or self._jvm is None:
            return
        log.warning("the job does not end within %d s: its JVM is killed; nothing is lost", LIMIT_SECONDS)
        self._has_killed = True
        self._jvm.kill()
        self._jvm.wait(_GONE_SECONDS)


class TopicWatch:
    """Watch on the topics of a job.

    Spark compares offsets only: if a recreated topic has grown past them, it would read on in the middle. `look`
    requests the ids at intervals, without waiting.
    """

    def __init__(
        self, spark: SparkSession, settings: Settings, admin: KafkaAdmin, topics: Mapping[str, NotedTopic]
    ) -> None:
        self._spark = spark
        self._settings = settings
        self._admin = admin
        self._topics = topics
        self._names = [topic.name for role, topic in topics.items() if role != "dead_letters"]
        self._asked: dict[str, Any] | None = None
        self._absent: set[str] = set()
        self._next = time.monotonic() + LOOK_SECONDS

    def look(self) -> None:
        """Compare the topics with the topics at the start, if a check is due.

        A topic that seems not to exist is checked twice: a broker that has just started may not list it yet.

        Raises:
            TopicReplaced: a topic was deleted or recreated.
            JobFailed: the clock topic was deleted or recreated; the next start goes on with a new topic.
        """
        if self._asked is None:
            if time.monotonic() >= self._next:
                self._next = time.monotonic() + LOOK_SECONDS
                self._asked = self._admin.asked(self._names)
            return
        if not all(future.isDone() for future in self._asked.values()):
            return
        asked, self._asked = self._asked, None
        try:
            found = self._admin.ids_of(asked)
        except KafkaUnavailable:  # Spark waits for the broker as well
            return
        absent = set(self._names) - found.keys()
        self._check(found, absent & self._absent)
        self._absent = absent

    def explain(self, failure: str) -> ReexpandError:
        """Return the reason why the query has failed, given Spark's text."""
        settings = self._settings
        try:
            found = self._admin.ids(self._names)
            self._check(found, set(self._names) - found.keys())
            progress = checkpoint.progress(self._spark, settings)
            facts.check_unread(settings, progress.read, *self._admin.spans(facts.events(settings)))
        except KafkaUnavailable:
            pass
        except ReexpandError as error:
            return error
        return JobFailed(explained(failure, settings))

    def _check(self, found: Mapping[str, str], absent: Collection[str]) -> None:
        facts.check_identity(self._settings, self._topics, found, absent)
        clock = self._topics["clock"]
        if clock.name in absent or found.get(clock.name, clock.id) != clock.id:
            raise JobFailed(
                f"the topic {clock.name} was deleted, or created again, while the job ran. Start the job again: "
                "it creates a missing topic, and nothing is lost."
            )


Stop = Callable[[float], bool]
"""Request to end a query: wait some seconds at most, and return whether it is to end."""


def until(query: StreamingQuery, stop: Stop, through: int | None) -> Stop:
    """Return the request to end a query, also when a micro-batch is committed."""
    if through is None:
        return stop
    java: Any = query

    def is_over(timeout: float) -> bool:
        latest = java._jsq.lastProgress()  # noqa: SLF001 - PySpark's own objects ask the JVM for each field
        return stop(timeout) or (latest is not None and latest.batchId() >= through)

    return is_over


def attend(
    query: StreamingQuery,
    stop: Stop,
    lease: Lease,
    clock: Clock,
    watch: TopicWatch,
    *,
    monitor: QueryMonitor | None,
) -> None:
    """Supervise the query until it is to stop, then end it after its running micro-batch.

    Raises:
        EntriesLethal: entries kill or hang workers; the query has ended, and may be started again without them.
        ReexpandError: as in `service.run`.
    """
    report = Report(query, monitor.follow if monitor else None)
    failures = quarantine.FailureWatch(query)
    try:
        while not (clock.has_failed or stop(_POLL_SECONDS)):
            report.write()
            _check(query, lease, failures, watch)
            if monitor is not None:
                monitor.look()
            if not query.isActive:
                query.awaitTermination()  # raises the error that ended it
                raise JobFailed("the query ended without being asked to")
        log.info("stopping after the running micro-batch")
        sinks.end_after_batch(query)
        if not query.awaitTermination(STOP_SECONDS):
            log.warning("the micro-batch does not end within %d s: it is interrupted, and repeated later", STOP_SECONDS)
            _interrupt(query)
            return
        report.write()
        if monitor is not None:
            monitor.keep_sizes()
        clock.check()
    except StreamingQueryException as error:
        if lease.find_successor():
            raise lease.taken_over() from None
        if refusal := re.search(r"reexpand\.Refused: (.+)", str(error)):
            raise JobFailed(f"{refusal[1]}.") from None
        if lethal := quarantine.lethal(str(error)):
            raise lethal from None
        raise watch.explain(text_of(error)) from error


def _check(query: StreamingQuery, lease: Lease, failures: quarantine.FailureWatch, watch: TopicWatch) -> None:
    """End the query at once if there is a reason: its micro-batch may read a topic that was replaced."""
    try:
        if lease.successor:
            raise lease.taken_over()
        if lethal := failures.found():
            raise lethal
        watch.look()
    except JobError as error:
        _interrupt(query)
        if isinstance(error, EntriesLethal):  # it starts again
            _set_level(query, "WARN" if log.isEnabledFor(logging.DEBUG) else "ERROR")
        raise


def _interrupt(query: StreamingQuery) -> None:
    """End the query at once, without Spark's log of each task that it cancels."""
    _set_level(query, "OFF")
    query.stop()


def _set_level(query: StreamingQuery, level: str) -> None:
    java: Any = query
    java._jsq.sparkSession().sparkContext().setLogLevel(level)  # noqa: SLF001 - PySpark does not expose it
