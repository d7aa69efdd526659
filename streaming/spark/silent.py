"""The job on a checkpoint that is being rebuilt: it reads its inputs, and writes no updates."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from streaming.config import Settings
from streaming.kafka.facts import Offsets
from streaming.kafka.permissions import partition_names
from streaming.spark import checkpoint, positions, service
from streaming.spark.attend import Beside, TopicWatch, attend, until
from streaming.spark.clock import Clock
from streaming.spark.kafka_admin import KafkaAdmin
from streaming.spark.lease import Lease
from streaming.spark.report import Report

TICK_INTERVAL_MS = 1_000
"""Longest time between ticks: they end the same clients and topics at any rate, and a rebuild waits for a tick."""


class InputProgress(NamedTuple):
    """A running query, and how far it has come.

    Attributes:
        ends: returns the present ends of the inputs.
        read: returns how far committed micro-batches have read them.
        has_told_present: returns whether time has passed up to the start of the query.
    """

    ends: Callable[[], Offsets]
    read: Callable[[], Offsets]
    has_told_present: Callable[[], bool]


class _Until(NamedTuple):
    """Request to end a query when it has settled, or on a signal."""

    signal: threading.Event
    is_settled: Callable[[], bool]

    def wait(self, timeout: float, /) -> bool:
        return self.signal.wait(timeout) or self.is_settled()


def read_inputs(
    spark: SparkSession,
    settings: Settings,
    signal: threading.Event,
    settling: Callable[[InputProgress], Callable[[], bool]],
    adopted: Offsets | None = None,
) -> None:
    """Run the job without updates and dead letters until it has settled, or until a signal.

    Args:
        spark: session from `service.started`.
        settings: settings of the job.
        signal: set on SIGTERM and SIGINT.
        settling: returns, for the running query, a predicate that is true once it may end.
        adopted: positions that the states have read with which the checkpoint begins; None if it has none.

    Raises:
        ReexpandError: as in `service.run`.
    """
    ticks = min(settings.tick_interval_ms, TICK_INTERVAL_MS)
    settings = settings.model_copy(update={"tick_interval_ms": ticks, "pace_cpu": 0.0})
    agreed = checkpoint.agree(spark, settings)
    with KafkaAdmin(spark, settings) as admin, Lease(spark, settings, agreed.checkpoint_id) as lease:
        start = service.Start(spark, settings, admin, lease, agreed)
        running, topics = service.begin(start, {}, rebuilding=True, adopted=adopted)
        watch = TopicWatch(spark, settings, admin, topics)

        def follow(running: service.Running) -> bool:
            query, terms = running
            with Clock(spark, settings, query) as clock:
                settled = _Until(signal, settling(_reading(settings, admin, query, clock)))
                attend(query, until(query, settled, terms.through), Beside(Report(query), lease, clock, watch))
            return not signal.is_set()

        service.keep_going(start, running, follow, rebuilding=True, adopted=adopted)


def _reading(settings: Settings, admin: KafkaAdmin, query: StreamingQuery, clock: Clock) -> InputProgress:
    return InputProgress(
        lambda: admin.ends(settings.inputs), lambda: positions.committed(query), lambda: clock.has_told_present
    )


@contextmanager
def held(spark: SparkSession, settings: Settings, checkpoint_id: str, partitions: int) -> Iterator[Callable[[], None]]:
    """Hold the lease of a former checkpoint against jobs, and end its last job's open transactions.

    The context is a function that raises `TakenOver` if a job has started there by force.

    Args:
        spark: session from `service.started`.
        settings: settings with the former checkpoint and its clock topic.
        checkpoint_id: its name in Kafka.
        partitions: number of its state partitions.

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
