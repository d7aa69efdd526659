"""Life cycle of a job: start, standby until no other driver holds the checkpoint, end."""

import logging
import signal
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

from pyspark import SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from streaming.config import Settings
from streaming.errors import (
    CheckpointInUse,
    CheckpointMismatch,
    JobFailed,
    KafkaUnavailable,
    RecordsLost,
    ReexpandError,
    TopicReplaced,
    UpdatesUnknown,
)
from streaming.monitor.health import Condition, Health
from streaming.spark import checkpoint, job, kafka_clients, notes, positions, provision, session
from streaming.spark.attend import Limit, Stop
from streaming.spark.checkpoint import Agreement, for_java
from streaming.spark.clock import Clock
from streaming.spark.expand import expand
from streaming.spark.failures import end_of_java
from streaming.spark.kafka_admin import KafkaAdmin
from streaming.spark.lease import Lease
from streaming.spark.monitoring import JobPage, Monitor, QueryMonitor, served
from streaming.spark.query import Start, begin, keep_going
from streaming.spark.route import route
from streaming.storage import folder

log = logging.getLogger("reexpand")

READY = "ready: reading %s from %s"
"""Log line of a job whose query runs; scripts may wait for it."""

_END_SECONDS = 2
"""Time in seconds from the first failed call to a JVM that ends until its process has ended."""

STANDING_BY = "standing by: %s"
"""Log line of a driver that is warm and waits; scripts may wait for it."""

_WARM_RECORDS = 20
"""Largest number of records of each input partition with which a driver warms up."""

_WARM_SECONDS = 60
"""Longest time in seconds of the warm-up; the rest costs time later."""

_ABANDONED_NS = 3_600 * 10**9
"""Age in nanoseconds from which the folder of a warm-up is abandoned: its driver was killed."""


def run(
    settings: Settings,
    *,
    take_over: bool = False,
    accept_topics: bool = False,
    stands_by: bool = False,
    page: JobPage | None = None,
) -> None:
    """Run the job until SIGTERM or SIGINT; a running micro-batch is finished first, for `attend.STOP_SECONDS` at most.

    Args:
        settings: settings of the job.
        take_over: end another driver that works on the checkpoint.
        accept_topics: accept Kafka's topics as the checkpoint's, although their ids differ.
        stands_by: wait until no other driver works on the checkpoint.
        page: page that the job's server shows.

    Raises:
        SparkUnavailable: Spark does not start.
        CheckpointUnusable: the checkpoint is no folder, or may not be read or written.
        CheckpointMismatch: the checkpoint was made with other settings, or does not contain them.
        CheckpointUnfinished: the checkpoint is being rebuilt, or was replaced.
        KafkaUnavailable: no broker answers.
        TopicReplaced: a topic of the checkpoint was deleted or replaced.
        RecordsLost: inputs have lost records that the job has not read.
        UpdatesUnknown: the updates topic holds updates that are unknown to the checkpoint.
        ConfigInvalid: the file of group attributes is not valid.
        CheckpointInUse: another driver works on the checkpoint.
        TakenOver: another driver has taken over the checkpoint.
        NotWritten: Kafka did not take the group attributes.
        JobFailed: the query failed.
    """
    settings = settings.model_copy(update={"checkpoint": checkpoint.absolute(settings.checkpoint)})
    folder.check(settings.checkpoint, writes=True)
    group_events = provision.read_groups(settings.groups)
    stop = threading.Event()
    with Limit(stop) as limit, served(settings, page) as monitor, started(settings, stop) as spark:
        limit.watch(spark)
        kafka_clients.check_options(spark, settings)
        choices = {"take_over": take_over, "accept_topics": accept_topics, "stands_by": stands_by}
        work = partial(_work, spark, settings, monitor, stop, group_events, **choices)
        try:
            work()
        except CheckpointInUse as error:
            if not stands_by:
                raise
            log.info("%s This one stands by.", error)
            work()
    log.info("stopped")


def _work(
    spark: SparkSession,
    settings: Settings,
    monitor: Monitor,
    stop: threading.Event,
    group_events: Mapping[str, bytes],
    *,
    take_over: bool,
    accept_topics: bool,
    stands_by: bool,
) -> None:
    """Run the query until the job is to stop; `run` describes arguments and errors."""
    agreed = _agreed(spark, settings)
    with (
        KafkaAdmin(spark, settings, is_over=stop.is_set) as admin,
        provision.explaining_refusals(admin, settings, agreed.group),
        Lease(spark, settings, agreed.checkpoint_id) as lease,
        _nothing_open(settings, admin, agreed),
    ):
        if stop.is_set():
            return
        if stands_by:
            if not acquire_when_free(spark, settings, admin, lease, stop, health=monitor.health):
                return
            agreed = _agreed(spark, settings, agreed)
        start = Start(spark, settings, admin, lease, agreed)
        running, topics = begin(start, group_events, take_over=take_over, accept_topics=accept_topics)
        provision.warn_of_missing(admin, settings, agreed.group)
        monitor.health.former = lease.end_of_former()
        files = checkpoint.CheckpointFiles(spark, settings.checkpoint)

        def watched(query: StreamingQuery, _: Clock) -> tuple[Stop, QueryMonitor]:
            query_monitor = QueryMonitor(monitor, settings, query, admin, files)
            log.info(READY, ", ".join(settings.inputs), settings.bootstrap_servers)
            return stop.wait, query_monitor

        keep_going(start, running, topics, stop, watched)


def _agreed(spark: SparkSession, settings: Settings, former: Agreement | None = None) -> Agreement:
    """Return the agreement of checkpoint and settings; `former` is their agreement before a wait."""
    notes.check_usable(spark, settings)
    agreed = checkpoint.agree(spark, settings)
    if former is None or former.checkpoint_id == agreed.checkpoint_id:
        return agreed
    if not former.topics:  # it was new: each check of a new checkpoint gives it another id, and the lease has the first
        if not agreed.topics:
            return former
        raise checkpoint.just_begun(settings)
    raise CheckpointMismatch(
        f"the checkpoint {settings.checkpoint} was replaced by another one while this driver stood by. Start it again."
    )


@contextmanager
def _nothing_open(settings: Settings, admin: KafkaAdmin, agreed: Agreement) -> Iterator[None]:
    """End the open transactions of a checkpoint that does not fit its topics any more.

    No later driver would end them. Until the broker does, after 15 minutes, a job on a new checkpoint could not read
    past them in the inputs.
    """
    try:
        yield
    except (TopicReplaced, RecordsLost, UpdatesUnknown):
        clock = agreed.topics.get("clock")
        if clock is not None and clock.name == settings.clock:  # else a driver may live with another lease
            with suppress(KafkaUnavailable):
                admin.end_transactions(agreed.partition_names)
        raise


@contextmanager
def started(settings: Settings, stop: threading.Event) -> Iterator[SparkSession]:
    """Start Spark, and stop it in the end; SIGTERM and SIGINT set an event.

    Raises `SparkUnavailable`, or `JobFailed` if its JVM has ended by itself.
    """
    set_on_signal(stop)
    workers: list[threading.Thread] = []

    def start_workers(context: SparkContext) -> None:
        if session.is_local(settings):
            workers.append(threading.Thread(target=_run_task, args=(context,), name="start of workers", daemon=True))
            workers[0].start()

    spark = session.build(settings, session.default_partitions(), session.brought(), begun=start_workers)
    set_on_signal(stop)  # again: a new SparkContext handles SIGINT itself, and would abort the running micro-batch
    context: Any = spark.sparkContext
    jvm: subprocess.Popen[bytes] | None = getattr(context._gateway, "proc", None)  # noqa: SLF001 - none if it started us
    # py4j also logs the errors that it raises, with a traceback, in the root logger.
    logging.getLogger().addFilter(lambda record: record.msg != "Exception while sending command.")
    # Python's server of accumulators writes a traceback when the JVM that it serves is gone.
    context._accumulatorServer.handle_error = lambda *_: log.debug("the JVM is gone")  # noqa: SLF001
    try:
        yield spark
    except Exception as error:
        code = None if isinstance(error, ReexpandError) else _exit_code(jvm)
        if code is None:
            raise
        raise JobFailed(end_of_java(code, settings)) from None
    finally:
        if jvm is None or jvm.poll() is None:
            if any(each.is_alive() for each in workers):
                spark.sparkContext.setLogLevel("OFF")  # a job that is cut short logs its tasks' stacks
            spark.stop()


def _run_task(context: SparkContext) -> None:
    """Run a task to start the daemon of Python's workers before the first micro-batch needs it."""
    try:
        context.parallelize([0], 1).foreach(lambda _: None)
    except Exception as error:  # noqa: BLE001 - the query will start it, and report why it cannot
        log.debug("the Python workers start with the first micro-batch: %s", error)


def _exit_code(jvm: subprocess.Popen[bytes] | None) -> int | None:
    if jvm is not None:
        with suppress(subprocess.TimeoutExpired):
            return jvm.wait(_END_SECONDS)
    return None


def set_on_signal(stop: threading.Event) -> None:
    """Let SIGTERM and SIGINT set an event."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())


def acquire_when_free(
    spark: SparkSession, settings: Settings, admin: KafkaAdmin, lease: Lease, stop: threading.Event, *, health: Health
) -> bool:
    """Acquire the lease, at once or after a wait; return False on `stop`.

    Raises `KafkaUnavailable` if no broker answers at the start. Later the driver waits until one answers.
    """
    if settings.clock not in admin.names():  # the lease is kept under its name, so no driver has it
        return True
    is_warm = False
    while True:
        try:
            lease.acquire(take_over=False, way_out="This driver takes over when that one has ended.")
        except CheckpointInUse as error:
            if not is_warm:
                spark.sparkContext.setLogLevel("OFF")  # a query that is cut short logs its tasks' stacks
                _warm_up(spark, settings, admin, stop)
                is_warm = True
            log.info(STANDING_BY, error)
            health.enter(Condition.STANDING_BY, str(error))
            if not lease.wait_until_free(stop):
                return False
        else:
            if is_warm:
                spark.sparkContext.setLogLevel("WARN" if log.isEnabledFor(logging.DEBUG) else "ERROR")
            health.enter(Condition.STARTING, "the query starts")
            return True


def _warm_up(spark: SparkSession, settings: Settings, admin: KafkaAdmin, stop: threading.Event) -> None:
    """Run the query on the last records of the inputs, in a separate folder, and write nothing to Kafka.

    Most of a start is the work of a cold JVM: Spark's session, the first plan of the query, the first Python worker.
    """
    files, now = checkpoint.CheckpointFiles(spark, settings.checkpoint), time.time_ns()
    folder = f"standby/{now}"
    own = settings.model_copy(update={"checkpoint": f"{settings.checkpoint.rstrip('/')}/{folder}"})
    first, ends = admin.spans(settings.inputs)
    beginning = {
        topic: {number: max(first[topic][number], end - _WARM_RECORDS) for number, end in offsets.items()}
        for topic, offsets in ends.items()
    }
    try:
        records = job.read(spark, own, positions.dump(beginning), bounded=True)
        expanded = expand(route(records, own), own)
        writer = expanded.writeStream.format("noop").outputMode("update").queryName("standby")
        query = (
            writer.option("checkpointLocation", f"{for_java(own.checkpoint)}/query").trigger(availableNow=True).start()
        )
        for _ in range(_WARM_SECONDS):
            if query.awaitTermination(1) or stop.is_set():
                break
        query.stop()
    except PySparkException as error:  # a cold driver works as well, only slower
        log.debug("the warm-up failed: %s", error)
    finally:
        for each in files.numbers("standby"):
            if each == now or now - each > _ABANDONED_NS:
                files.delete(f"standby/{each}")
