"""Creates the Kafka topics that are missing when the job starts."""

import logging
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from streaming.config import Settings
from streaming.errors import KafkaUnavailable
from streaming.kafka.specs import specs
from streaming.kafka.topics import TopicSpec
from streaming.spark import sinks

log = logging.getLogger("reexpand")

BROKER_SECONDS = 60
"""How long the job waits for a broker at its start."""


def provide(spark: SparkSession, settings: Settings) -> None:
    """Creates the topics that do not exist, with as many partitions as the broker gives by default.

    Through Spark's own Kafka client, so that all of the job's client options hold. An updates topic that is not
    compacted is taken as it is, with a warning.

    Raises:
        KafkaUnavailable: no broker answers, or a topic can neither be found nor created.
    """
    jvm: Any = spark._jvm  # noqa: SLF001 - the one way to the Kafka client that Spark uses
    properties = sinks.client_properties(jvm, settings, {"default.api.timeout.ms": BROKER_SECONDS * 1_000})
    try:
        admin = jvm.org.apache.kafka.clients.admin.Admin.create(properties)
        try:
            existing = set(admin.listTopics().names().get())
            for spec in specs(settings):
                if spec.name not in existing:
                    _create(jvm, admin, spec)
            if settings.updates in existing:
                _warn_of_policy(jvm, admin, settings.updates)
        finally:
            admin.close()
    except Py4JJavaError as error:
        raise KafkaUnavailable(
            f"Kafka at {settings.bootstrap_servers} does not serve the job: {_cause(error)}. "
            "Check the address and the client options, and that the broker runs."
        ) from None


def _create(jvm: Any, admin: Any, spec: TopicSpec) -> None:
    default = jvm.java.util.Optional.empty()
    topic = jvm.org.apache.kafka.clients.admin.NewTopic(spec.name, default, default).configs(dict(spec.config))
    try:
        admin.createTopics([topic]).all().get()
    except Py4JJavaError as error:
        if "TopicExistsException" not in _cause(error):  # someone else was faster
            raise
    log.info("created the topic %s", spec.name)


def _warn_of_policy(jvm: Any, admin: Any, name: str) -> None:
    kind = jvm.org.apache.kafka.common.config.ConfigResource.Type.TOPIC
    resource = jvm.org.apache.kafka.common.config.ConfigResource(kind, name)
    policy = admin.describeConfigs([resource]).all().get()[resource].get("cleanup.policy").value()
    if "compact" not in policy:
        log.warning(
            "the topic %s has cleanup.policy=%s: it grows for ever or loses what still holds; set it to compact",
            name,
            policy,
        )


def _cause(error: Py4JJavaError) -> str:
    java = error.java_exception
    while java.getCause() is not None:
        java = java.getCause()
    return str(java.toString())
