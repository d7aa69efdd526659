"""Creation and errors of librdkafka clients."""

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from confluent_kafka import KafkaException

from streaming.errors import ConfigInvalid

T = TypeVar("T")


def create(kind: Callable[[dict[str, Any]], T], options: Mapping[str, Any]) -> T:
    """Return a client with these options.

    Raises:
        ConfigInvalid: an option is not valid.
    """
    try:
        return kind(dict(options))
    except KafkaException as error:
        raise ConfigInvalid(f"the Kafka client cannot be set up: {reason(error)}") from None


def reason(error: KafkaException) -> str:
    """Return the message of librdkafka."""
    return str(error.args[0].str()) if error.args else str(error)
