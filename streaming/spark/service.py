"""Life cycle of a job: start, lease of the checkpoint, end."""

import itertools
import logging
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from streaming.config import Settings
from streaming.errors import (
    CheckpointInUse,
    CheckpointMismatch,
    EntriesLethal,
    JobFailed,
    KafkaUnavailable,
    RecordsLost,
    ReexpandError,
    TopicReplaced,
    UpdatesUnknown,
)
from streaming.kafka.facts import NotedTopic, Offsets
from streaming.local import classes, jars
from streaming.spark import (
    checkpoint,
    clock,
    job,
    kafka_clients,
    notes,
    provision,
    quarantine,
    session,
    sinks,
    standby,
)
from streaming.spark.attend import Beside, TopicWatch, attend, limited, until
from streaming.spark.checkpoint import Agreement
from streaming.spark.clock import Clock
from streaming.spark.failures import end_of_java, explained, one_line
from streaming.spark.kafka_admin import KafkaAdmin
from streaming.spark.lease import Lease
from streaming.spark.monitoring import JobPage, Monitor, QueryMonitor
from streaming.spark.notes import Terms
from streaming.spark.report import Report
from streaming.storage import folder

log = logging.getLogger("reexpand")

READY = "ready: reading %s from %s"
"""Log line of a job whose query runs; scripts may wait for it."""

_RUNS = itertools.count()
"""Numbers of the queries of this process."""

_END_SECONDS = 2
"""Time in seconds from the first failed call to a JVM that ends until its process has ended."""


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
    with limited(stop) as limit, Monitor(settings, page) as monitor, started(settings, stop) as spark:
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
            if not standby.acquire(spark, settings, admin, lease, stop, health=monitor.health):
                return
            agreed = _agreed(spark, settings, agreed)
        start = Start(spark, settings, admin, lease, agreed)
        running, topics = begin(start, group_events, take_over=take_over, accept_topics=accept_topics)
        provision.warn_of_missing(admin, settings, agreed.group)
        monitor.health.note_former(lease.end_of_former())
        watch = TopicWatch(spark, settings, admin, topics)
        files = checkpoint.CheckpointFiles(spark, settings.checkpoint)

        def follow(running: Running) -> bool:
            query, terms = running
            follower = QueryMonitor(monitor, settings, query, admin, files)
            log.info(READY, ", ".join(settings.inputs), settings.bootstrap_servers)
            with Clock(spark, settings, query) as clock:
                beside = Beside(Report(query, follower.follow), lease, clock, watch, follower)
                attend(query, until(query, stop, terms.through), beside)
            return not stop.is_set()

        keep_going(start, running, follow)


def _agreed(spark: SparkSession, settings: Settings, former: Agreement | None = None) -> Agreement:
    """Return the agreement of checkpoint and settings; `former` is their agreement before a wait.

    Raises:
        CheckpointInUse: another driver has begun on the new checkpoint during the wait.
        CheckpointMismatch: it was replaced by another checkpoint.
    """
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

    Raises:
        SparkUnavailable: Spark does not start.
        JobFailed: its JVM has ended by itself.
    """
    set_on_signal(stop)
    brought = [] if session.is_submitted() else [*jars.spark(), classes.sink()]
    spark = session.build(settings, checkpoint.default_partitions(), brought)
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
            spark.stop()


def _exit_code(jvm: subprocess.Popen[bytes] | None) -> int | None:
    """Return the exit code of a JVM that has just ended; None if it lives."""
    if jvm is not None:
        with suppress(subprocess.TimeoutExpired):
            return jvm.wait(_END_SECONDS)
    return None


class Start(NamedTuple):
    """Parts of a job that is about to begin.

    Attributes:
        spark: its session.
        settings: its settings.
        admin: Kafka, with all of its client options.
        lease: right to its checkpoint.
        agreed: agreement of the checkpoint and the settings.
    """

    spark: SparkSession
    settings: Settings
    admin: KafkaAdmin
    lease: Lease
    agreed: Agreement


class Running(NamedTuple):
    """A running query, and the settings with which it was started."""

    query: StreamingQuery
    terms: Terms


def begin(
    start: Start,
    group_events: Mapping[str, bytes],
    *,
    take_over: bool = False,
    accept_topics: bool = False,
    rebuilding: bool = False,
    adopted: Offsets | None = None,
) -> tuple[Running, dict[str, NotedTopic]]:
    """Check the checkpoint and the Kafka topics, start the query, and return it with the topics by role.

    Args:
        start: parts of the job.
        group_events: group events to write first.
        take_over: as for `run`.
        accept_topics: as for `run`.
        rebuilding: take the updates topic as it is, and write no updates to it.
        adopted: positions that the states have read with which a new checkpoint begins; None if it has none.

    Raises:
        ReexpandError: as in `run`.
    """
    spark, settings, admin, lease, agreed = start
    has_clock = settings.clock in admin.names()
    if has_clock:  # the lease is kept under the name of that topic; a living driver would change what is checked next
        lease.acquire(take_over=take_over)
    spark.conf.set("spark.sql.shuffle.partitions", agreed.shuffle_partitions)
    known = replace(agreed, topics={}) if accept_topics else agreed
    progress = checkpoint.progress(spark, settings)
    if has_clock and not progress.begun:
        provision.end_abandoned(spark, settings, admin)
    topics = provision.provide(spark, settings, admin, known, progress, rebuilding=rebuilding, adopted=adopted)
    if not has_clock:
        lease.acquire(take_over=take_over)
    clock.prepare(spark, settings, admin, agreed.topics.get("clock"), progress)
    provision.publish_groups(spark, settings, group_events)
    checkpoint.fix(spark, settings, agreed, topics)  # not earlier: a start that fails must not fix settings
    return _query(start, rebuilding=rebuilding, adopted=adopted), topics


def _query(start: Start, *, rebuilding: bool, adopted: Offsets | None) -> Running:
    """Start the query."""
    spark, settings, admin, lease, agreed = start
    settings, _ = terms = notes.settings_of_plan(spark, settings, admin, agreed)
    fence = sinks.Fence(agreed.checkpoint_id, lease.generation, next(_RUNS))
    can_answer = not rebuilding and provision.provide_answers(admin, settings)
    precautions = quarantine.precautions(spark, settings)
    try:
        query = job.start(
            spark,
            settings,
            admin,
            fence,
            silent=rebuilding,
            answers=can_answer,
            adopted=adopted,
            precautions=precautions,
        )
    except PySparkException as error:
        raise JobFailed(explained(one_line(str(error)), settings)) from error
    return Running(query, terms)


def keep_going(
    start: Start,
    running: Running,
    follow: Callable[[Running], bool],
    *,
    rebuilding: bool = False,
    adopted: Offsets | None = None,
) -> None:
    """Follow a query to its end; start it again without entries that kill or hang workers, or with other settings.

    Args:
        start: parts of the job.
        running: the query from `begin`.
        follow: follows a query, and returns True unless the job is to end; raises `EntriesLethal` if it has ended for
            that.
        rebuilding: as for `begin`.
        adopted: as for `begin`.

    Raises:
        ReexpandError: as in `run`.
    """
    while True:
        try:
            if not (follow(running) and running.terms.through is not None):
                return
            log.info("micro-batch %d is committed: the settings of this start apply", running.terms.through)
        except EntriesLethal as error:
            if start.lease.find_successor() is not None:
                raise start.lease.taken_over() from None
            quarantine.leave_out(start.spark, start.settings, start.admin, start.agreed, error)
        running = _query(start, rebuilding=rebuilding, adopted=adopted)


def set_on_signal(stop: threading.Event) -> None:
    """Let SIGTERM and SIGINT set an event."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
