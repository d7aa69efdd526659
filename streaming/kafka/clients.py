"""Creation and errors of librdkafka clients."""

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

from confluent_kafka import KafkaError, KafkaException

from streaming.errors import ConfigInvalid
from streaming.kafka.permissions import Grant, missing

T = TypeVar("T")

_REFUSALS: Final = frozenset(
    {
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    }
)


def create(kind: Callable[[dict[str, Any]], T], options: Mapping[str, Any]) -> T:
    """Return a client with these options.

    Raises:
        ConfigInvalid: an option is not valid.
    """
    try:
        return kind(dict(options))
    except KafkaException as error:
        raise ConfigInvalid(f"the Kafka client cannot be set up: {reason(error)}") from None


def reason(error: KafkaException | KafkaError, needed: Grant | None = None) -> str:
    """Return the message of librdkafka or, where the broker does not allow it, the permission that is missing.

    Args:
        error: error of librdkafka.
        needed: what the request needs; None where that is not known.
    """
    inner = error if isinstance(error, KafkaError) else error.args[0] if error.args else None
    if not isinstance(inner, KafkaError):
        return str(error)
    if needed is not None and inner.code() in _REFUSALS:
        return missing([needed])
    return inner.str().rstrip(".")


class Refusal:
    """Memory of a refusal by the broker, as the `error_cb` of a producer.

    An idempotent producer that may write to no topic at all fails for good, and says only there why.
    """

    def __init__(self) -> None:
        self._refused: KafkaError | None = None

    def __call__(self, error: KafkaError) -> None:
        """Remember an error if it is a refusal."""
        if error.code() in _REFUSALS:
            self._refused = error

    def reason(self, error: KafkaException | KafkaError, needed: Grant) -> str:
        """Return the reason of an error; of a refusal, the permission that is missing."""
        return reason(self._refused or error, needed)


def concerns_group(error: KafkaError) -> bool:
    """Tell whether an error is about the consumer group.

    librdkafka looks for the coordinator of every group; who assigns partitions by hand needs none.
    """
    return error.code() == KafkaError.GROUP_AUTHORIZATION_FAILED
