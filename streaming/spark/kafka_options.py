"""Kafka client options of the job, for Spark's source and sink and for Kafka clients in Spark's JVM."""

from collections.abc import Mapping
from typing import Any

from pyspark.sql import SparkSession

from streaming.config import Settings
from streaming.kafka import options

_PROVIDERS = "config.providers"
"""Prefix of options that Java's clients accept and do not list."""


def check(spark: SparkSession, settings: Settings) -> None:
    """Check that Kafka's Java clients accept all options of the file.

    Raises:
        ConfigInvalid: they do not accept an option.
    """
    if settings.kafka_options is None:
        return
    jvm: Any = spark._jvm  # noqa: SLF001 - the only way to the Kafka client that Spark uses
    clients = jvm.org.apache.kafka.clients
    configs = (clients.producer.ProducerConfig, clients.consumer.ConsumerConfig, clients.admin.AdminClientConfig)
    known = {str(name) for config in configs for name in config.configNames()}
    options.check_java(settings, lambda name: name in known or name.startswith(_PROVIDERS))


def for_spark(settings: Settings) -> dict[str, str]:
    """Return the client options as Spark's Kafka source and sink take them, each with the prefix `kafka.`."""
    return {f"kafka.{key}": value for key, value in _client_options(settings).items()}


def for_client(jvm: Any, settings: Settings, defaults: Mapping[str, int | str]) -> Any:
    """Return the client options as Java properties; `defaults` apply to options that are not set."""
    properties = jvm.java.util.Properties()
    for key, value in {**defaults, **_client_options(settings)}.items():
        properties.put(key, str(value))
    return properties


def _client_options(settings: Settings) -> dict[str, str]:
    return {"bootstrap.servers": settings.bootstrap_servers, **options.java_options(settings)}
