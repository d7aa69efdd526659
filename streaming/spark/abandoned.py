"""Open transactions of the drivers of lost checkpoints.

The next driver of a checkpoint ends the transactions that its predecessor left open. If the checkpoint is lost, so is
its id. Until the broker aborted the transaction, after 15 minutes, a new checkpoint could not read past it.
"""

import logging
from collections import defaultdict

from pyspark.sql import SparkSession

from streaming.config import Settings
from streaming.kafka.permissions import checkpoint_of
from streaming.spark.kafka_admin import KafkaAdmin
from streaming.spark.lease import Lease

log = logging.getLogger("reexpand")


def end(spark: SparkSession, settings: Settings, admin: KafkaAdmin) -> None:
    """End the open transactions of each checkpoint whose driver has held the lease at this clock topic, and is gone.

    A driver that only seems to be gone loses no more than its running micro-batch, which its next start repeats.

    Raises:
        KafkaUnavailable: no broker answers.
    """
    left: dict[str, list[str]] = defaultdict(list)
    for name in sorted(admin.open_transactions()):
        checkpoint_id = checkpoint_of(name)
        if checkpoint_id is not None:
            left[checkpoint_id].append(name)
    for checkpoint_id, producers in left.items():
        with Lease(spark, settings, checkpoint_id) as lease:
            if lease.is_abandoned():
                admin.end_transactions(producers)
                log.info("ended %d transactions that a driver of another checkpoint has left open", len(producers))
