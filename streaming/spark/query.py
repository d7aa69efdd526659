"""The query of a job: its start, its starts after failures, and its run for a rebuild, which writes no updates."""

import itertools
import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import NamedTuple

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from streaming.config import Settings
from streaming.errors import EntriesLethal, JobFailed
from streaming.kafka.facts import NotedTopic, Offsets
from streaming.kafka.permissions import partition_names
from streaming.spark import checkpoint, clock, job, notes, positions, provision, quarantine, sinks
from streaming.spark.attend import Stop, TopicWatch, attend, until
from streaming.spark.checkpoint import Agreement
from streaming.spark.clock import Clock
from streaming.spark.failures import explained, one_line
from streaming.spark.kafka_admin import KafkaAdmin
from streaming.spark.lease import Lease
from streaming.spark.monitoring import QueryMonitor
from streaming.spark.notes import Terms

log = logging.getLogger("reexpand")

_RUNS = itertools.count()
"""Numbers of the queries of this process."""

_TICK_INTERVAL_MS = 1_000
"""Longest time between ticks: they end the same clients and topics at any rate, and a rebuild waits for a tick."""


class Start(NamedTuple):
    """Parts of a job that is about to begin.

    A rebuild takes the updates topic as it is, and writes no updates to it. `adopted` are positions that the states
    have read with which a new checkpoint begins.
    """

    spark: SparkSession
    settings: Settings
    admin: KafkaAdmin
    lease: Lease
    agreed: Agreement
    rebuilding: bool = False
    adopted: Offsets | None = None


Running = tuple[StreamingQuery, Terms]
"""A running query, and the settings with which it was started."""


def begin(
    start: Start,
    group_events: Mapping[str, bytes],
    *,
    take_over: bool = False,
    accept_topics: bool = False,
) -> tuple[Running, dict[str, NotedTopic]]:
    """Start the query after all checks; return it, and the topics by role.

    Group events are written first. The other arguments, and the errors, are those of `service.run`.
    """
    spark, settings, admin, lease, agreed, rebuilding, adopted = start
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
    return _query(start), topics


def _query(start: Start) -> Running:
    spark, settings, admin, lease, agreed, rebuilding, adopted = start
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
    return query, terms


Watched = Callable[[StreamingQuery, Clock], tuple[Stop, QueryMonitor | None]]
"""Function that returns the request to end a running query with its clock, and its monitor."""


def keep_going(
    start: Start, running: Running, topics: Mapping[str, NotedTopic], signal: threading.Event, watched: Watched
) -> None:
    """Supervise a query to its end, and restart it if needed.

    It starts again without entries that kill or hang workers, or with other settings. `watched` is called for each
    query; `signal` is set when the job is to end. Raises `ReexpandError` as `service.run` does.
    """
    spark, settings, admin, lease, agreed, *_ = start
    watch = TopicWatch(spark, settings, admin, topics)
    while True:
        query, terms = running
        try:
            with Clock(spark, settings, query) as clock:
                stop, monitor = watched(query, clock)
                attend(query, until(query, stop, terms.through), lease, clock, watch, monitor=monitor)
            if terms.through is None or signal.is_set():
                return
            log.info("micro-batch %d is committed: the settings of this start apply", terms.through)
        except EntriesLethal as error:
            if lease.find_successor() is not None:
                raise lease.taken_over() from None
            quarantine.leave_out(spark, settings, admin, agreed, error)
        running = _query(start)


class InputProgress(NamedTuple):
    """A running query: ends of the inputs, how far micro-batches have read, and whether time has reached its start."""

    ends: Callable[[], Offsets]
    read: Callable[[], Offsets]
    has_told_present: Callable[[], bool]


def read_inputs(
    spark: SparkSession,
    settings: Settings,
    signal: threading.Event,
    settling: Callable[[InputProgress], Callable[[], bool]],
    adopted: Offsets | None = None,
) -> None:
    """Run the job without updates and dead letters until settled or a signal.

    `settling` returns, for the running query, a predicate that is true once it may end. `adopted` are positions that
    the states have read with which the checkpoint begins. Raises `ReexpandError` as `service.run` does.
    """
    ticks = min(settings.tick_interval_ms, _TICK_INTERVAL_MS)
    settings = settings.model_copy(update={"tick_interval_ms": ticks, "pace_cpu": 0.0})
    agreed = checkpoint.agree(spark, settings)
    with KafkaAdmin(spark, settings) as admin, Lease(spark, settings, agreed.checkpoint_id) as lease:
        start = Start(spark, settings, admin, lease, agreed, rebuilding=True, adopted=adopted)
        running, topics = begin(start, {})

        def watched(query: StreamingQuery, clock: Clock) -> tuple[Stop, None]:
            is_settled = settling(
                InputProgress(
                    lambda: admin.ends(settings.inputs),
                    lambda: positions.committed(query),
                    lambda: clock.has_told_present,
                )
            )
            return lambda timeout: signal.wait(timeout) or is_settled(), None

        keep_going(start, running, topics, signal, watched)


@contextmanager
def held(spark: SparkSession, settings: Settings, checkpoint_id: str, partitions: int) -> Iterator[Callable[[], None]]:
    """Hold the lease of a former checkpoint, and end its open transactions.

    The context is a function that raises `TakenOver` if a job has started there by force.

    Raises:
        CheckpointInUse: a driver lives.
        KafkaUnavailable: no broker answers.
    """
    producers = partition_names(checkpoint_id, partitions)
    with KafkaAdmin(spark, settings) as admin:
        if settings.clock not in admin.names():  # the lease is kept under its name, and without it no job lives
            admin.end_transactions(producers)
            yield lambda: None
            return
        with Lease(spark, settings, checkpoint_id) as lease:
            lease.acquire(take_over=False, way_out="Stop that driver first.")
            admin.end_transactions(producers)  # else the inputs could not be read to their ends for 15 minutes

            def check() -> None:
                if lease.find_successor() is not None:
                    raise lease.taken_over()

            yield check
