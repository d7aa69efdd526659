"""The driver of a checkpoint, as the broker knows it; see `streaming.spark.lease`."""

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
    """Check that no driver lives on a checkpoint, by listening for its beats; it takes 10 s where none lives.

    Args:
        identity: identity of the checkpoint.
        bootstrap_servers: addresses of brokers.
        options: further client options, in the names of librdkafka.

    Raises:
        BackupRefused: a driver lives, or Kafka does not answer.
    """
    if "id" not in identity:  # releases that wrote none had no lease
        return
    given: dict[str, Any] = {"log_level": 0, **options, "bootstrap.servers": bootstrap_servers}
    consumer = create(Consumer, {**given, "group.id": own_group(identity["id"]), "enable.auto.commit": False})
    where = TopicPartition(str(identity["clock"]), 0)

    def beats() -> int:
        # What the driver says of itself stands beside: some releases of librdkafka return it with a torn end.
        return int(consumer.committed([where], timeout=_ANSWER_SECONDS)[0].offset)

    try:
        check_silent(beats)
    except KafkaException as error:
        raise BackupRefused(
            f"Kafka at {bootstrap_servers} does not say whether a driver works on the checkpoint: {reason(error)}. "
            "Check the address and the client options, or say --driver-has-ended."
        ) from None
    finally:
        consumer.close()


def check_silent(beats: Callable[[], int], seconds: float = LEASE_SECONDS) -> None:
    """Check that a driver is not heard of.

    Args:
        beats: returns the number of its beats; negative if there never was one.
        seconds: time to listen.

    Raises:
        BackupRefused: it lives.
    """
    first, deadline = beats(), time.monotonic() + seconds
    while first >= 0 and time.monotonic() < deadline:
        time.sleep(_LOOK_SECONDS)
        if beats() != first:
            raise BackupRefused("a driver works on the checkpoint: it has just renewed its lease. Stop it first.")
