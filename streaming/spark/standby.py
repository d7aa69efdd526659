"""Standby driver: it waits, warm, until no other driver holds the checkpoint.

Most of a start is the work of a cold JVM: Spark's session, the first plan of the query, the first Python worker. A
standby driver does it in advance.
"""

import logging
import threading
from uuid import uuid4

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from streaming.config import Settings
from streaming.errors import CheckpointInUse
from streaming.monitor.health import Condition, Health
from streaming.spark import job, positions
from streaming.spark.checkpoint import CheckpointFiles, for_java
from streaming.spark.expand import expand
from streaming.spark.kafka_admin import KafkaAdmin
from streaming.spark.lease import Lease
from streaming.spark.route import route

log = logging.getLogger("reexpand")

STANDING_BY = "standing by: %s"
"""Log line of a driver that is warm and waits; scripts may wait for it."""

_WARM_RECORDS = 20
"""Largest number of records of each input partition with which a driver warms up."""

_WARM_SECONDS = 60
"""Longest time in seconds of the warm-up; the rest costs time later."""


def acquire(
    spark: SparkSession, settings: Settings, admin: KafkaAdmin, lease: Lease, stop: threading.Event, *, health: Health
) -> bool:
    """Acquire the lease, at once or after a wait; return False if `stop` is set before.

    Raises:
        KafkaUnavailable: no broker answers at the start. Later the driver waits until one answers.
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
    """Run the query on the last records of the inputs, in a separate folder, and write nothing to Kafka."""
    folder = f"standby/{uuid4().hex}"
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
        CheckpointFiles(spark, settings.checkpoint).delete(folder)
