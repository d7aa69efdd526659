"""Kafka client options of the job, for Spark's source and sink and for Kafka clients in Spark's JVM."""

from collections.abc import Mapping
from typing import Any

from streaming.config import Settings


def for_spark(settings: Settings) -> dict[str, str]:
    """Return the client options as Spark's Kafka source and sink take them, each with the prefix `kafka.`."""
    return {f"kafka.{key}": value for key, value in _client_options(settings).items()}


def for_client(jvm: Any, settings: Settings, defaults: Mapping[str, int | str]) -> Any:
    """Return the client options as Java properties; `defaults` hold where the client options say nothing."""
    properties = jvm.java.util.Properties()
    for key, value in {**defaults, **_client_options(settings)}.items():
        properties.put(key, str(value))
    return properties


def _client_options(settings: Settings) -> dict[str, str]:
    return {"bootstrap.servers": settings.bootstrap_servers, **settings.client_options()}
