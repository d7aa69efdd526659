"""The Kafka topics of the job: creates the missing ones when the job starts."""

import logging
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from streaming.config import Settings
from streaming.errors import KafkaUnavailable
from streaming.kafka.specs import specs
from streaming.kafka.topics import TopicSpec
from streaming.spark import kafka_options

log = logging.getLogger("reexpand")

BROKER_TIMEOUT_MS = 60_000
"""Longest wait for a broker at the start of the job, in milliseconds."""


def provide(spark: SparkSession, settings: Settings) -> None:
    """Create the missing topics with the broker's default number of partitions.

    Spark's own Kafka client does it, so that all of the job's client options hold. An updates topic without compaction
    is taken as it is, with a warning.

    Raises:
        KafkaUnavailable: no broker answers, or a topic can neither be found nor created.
    """
    jvm: Any = spark._jvm  # noqa: SLF001 - the one way to the Kafka client that Spark uses
    properties = kafka_options.for_client(jvm, settings, {"default.api.timeout.ms": BROKER_TIMEOUT_MS})
    try:
        admin = jvm.org.apache.kafka.clients.admin.Admin.create(properties)
        try:
            existing = set(admin.listTopics().names().get())
            for spec in specs(settings):
                if spec.name not in existing:
                    _create(jvm, admin, spec)
            if settings.updates in existing:
                _warn_without_compaction(jvm, admin, settings.updates)
        finally:
            admin.close()
    except Py4JJavaError as error:
        raise KafkaUnavailable(
            f"Kafka at {settings.bootstrap_servers} does not serve the job: {_root_cause(error)}. "
            "Check the address and the client options, and that the broker runs."
        ) from None


def _create(jvm: Any, admin: Any, spec: TopicSpec) -> None:
    default = jvm.java.util.Optional.empty()
    topic = jvm.org.apache.kafka.clients.admin.NewTopic(spec.name, default, default).configs(dict(spec.config))
    try:
        admin.createTopics([topic]).all().get()
    except Py4JJavaError as error:
        if "TopicExistsException" not in _root_cause(error):  # else someone has created it in the meantime
            raise
    log.info("created the topic %s", spec.name)


def _warn_without_compaction(jvm: Any, admin: Any, updates: str) -> None:
    topic_type = jvm.org.apache.kafka.common.config.ConfigResource.Type.TOPIC
    resource = jvm.org.apache.kafka.common.config.ConfigResource(topic_type, updates)
    policy = admin.describeConfigs([resource]).all().get()[resource].get("cleanup.policy").value()
    if "compact" not in policy:
        log.warning(
            "the topic %s has cleanup.policy=%s: it grows without end, or loses updates that still hold; "
            "set the policy to compact",
            updates,
            policy,
        )


def _root_cause(error: Py4JJavaError) -> str:
    java = error.java_exception
    while java.getCause() is not None:
        java = java.getCause()
    return str(java.toString())
