"""Check in Kafka whether a driver of a checkpoint is running; see `streaming.spark.lease`."""

import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from confluent_kafka import Consumer, KafkaException, TopicPartition

from streaming.errors import BackupRefused
from streaming.kafka.clients import create, reason
from streaming.kafka.permissions import own_group
from streaming.spark.holder import LEASE_SECONDS

_ANSWER_SECONDS: Final = 10.0
_LOOK_SECONDS: Final = 0.5


def check_ended(identity: Mapping[str, Any], bootstrap_servers: str, options: Mapping[str, str]) -> None:
    """Check for up to 10 s that no driver of a checkpoint sends heartbeats.

    Args:
        identity: identity of the checkpoint.
        bootstrap_servers: addresses of brokers.
        options: further client options of librdkafka.

    Raises:
        BackupRefused: a driver is running, or Kafka does not answer.
    """
    if "id" not in identity:  # releases without ids had no lease
        return
    given: dict[str, Any] = {"log_level": 0, **options, "bootstrap.servers": bootstrap_servers}
    consumer = create(Consumer, {**given, "group.id": own_group(identity["id"]), "enable.auto.commit": False})
    where = TopicPartition(str(identity["clock"]), 0)

    def beats() -> int:
        # Not the metadata with the driver's address: some releases of librdkafka return it truncated.
        return int(consumer.committed([where], timeout=_ANSWER_SECONDS)[0].offset)

    try:
        check_silent(beats)
    except KafkaException as error:
        raise BackupRefused(
            f"Kafka at {bootstrap_servers} cannot be asked for the driver of the checkpoint: {reason(error)}. "
            "Check the address and the client options, or give --driver-has-ended."
        ) from None
    finally:
        consumer.close()


def check_silent(beats: Callable[[], int], seconds: float = LEASE_SECONDS) -> None:
    """Check that a driver sends no heartbeats.

    Args:
        beats: returns the number of its heartbeats; negative if it never sent one.
        seconds: time to listen.

    Raises:
        BackupRefused: it is running.
    """
    first, deadline = beats(), time.monotonic() + seconds
    while first >= 0 and time.monotonic() < deadline:
        time.sleep(_LOOK_SECONDS)
        if beats() != first:
            raise BackupRefused("a driver uses the checkpoint: it has just renewed its lease. Stop it first.")
