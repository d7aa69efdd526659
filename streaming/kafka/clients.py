"""Creation and errors of librdkafka clients."""

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

from confluent_kafka import KafkaError, KafkaException, Producer

from streaming.errors import ConfigInvalid
from streaming.kafka.permissions import Grant, missing

T = TypeVar("T")


PARTITION_END: Final = KafkaError._PARTITION_EOF  # noqa: SLF001 - its only name
"""Code of the error with which a consumer reports the end of a partition."""

BY_HAND: Final = {
    "enable.auto.commit": False,
    "isolation.level": "read_committed",
    "auto.offset.reset": "error",  # records removed before they are read would leave a wrong relation
    "enable.partition.eof": True,
}
"""Options of a consumer whose partitions are assigned by hand."""

NO_ACCESS: Final = frozenset(
    {
        *(KafkaError._AUTHENTICATION, KafkaError._SSL),  # noqa: SLF001
        *(KafkaError.SASL_AUTHENTICATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED),
    }
)
"""Codes of errors from which no client recovers."""

_REFUSALS: Final = frozenset(
    {
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    }
)


def create(kind: Callable[[dict[str, Any]], T], options: Mapping[str, Any]) -> T:
    """Return a client; raise `ConfigInvalid` if an option is not valid."""
    try:
        return kind(dict(options))
    except KafkaException as error:
        raise ConfigInvalid(f"the Kafka client cannot be set up: {reason(error)}") from None


def reason(error: KafkaException | KafkaError, needed: Grant | None = None) -> str:
    """Return librdkafka's message, or the missing permission if the broker refused the request."""
    inner = error if isinstance(error, KafkaError) else error.args[0] if error.args else None
    if not isinstance(inner, KafkaError):
        return str(error)
    if needed is not None and inner.code() in _REFUSALS:
        return missing([needed])
    return inner.str().rstrip(".")


def cause(producer: Producer, error: KafkaException | KafkaError) -> KafkaException | KafkaError:
    """Return the error that made a producer unusable, or the given one.

    An idempotent producer without any permission to write fails for good, and reports the reason only at its next poll.
    """
    try:
        producer.poll(0)
    except KafkaException as fatal:
        return fatal
    return error


def produce(producer: Producer, *record: Any, **further: Any) -> None:
    """Hand a record to a producer; wait while its queue is full."""
    while True:
        try:
            producer.produce(*record, **further)
        except BufferError:
            producer.poll(0.1)
        else:
            return


def concerns_group(error: KafkaError) -> bool:
    """Return whether an error is about the consumer group.

    librdkafka looks for the coordinator of every group; partitions assigned by hand need none.
    """
    return error.code() == KafkaError.GROUP_AUTHORIZATION_FAILED
