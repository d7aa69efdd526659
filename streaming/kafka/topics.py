"""Creation of missing Kafka topics, and check and change of the configuration of existing ones."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from confluent_kafka import KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource
from confluent_kafka.admin._resource import ResourceType
from confluent_kafka.cimpl import NewTopic

from streaming.errors import TopicsUnusable
from streaming.kafka.clients import create, reason
from streaming.kafka.permissions import Grant
from streaming.kafka.reach import WAIT_SECONDS, wait_for_broker

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from streaming.kafka.reader import Partition

_POLICY = "cleanup.policy"

_URL_SAFE = str.maketrans("+/", "-_")
"""From the base64 of librdkafka to the base64 of Java's client."""


@dataclass(frozen=True)
class TopicSpec:
    """Specification of a topic.

    Attributes:
        name: its name.
        partitions: number of partitions at its creation; an existing topic may have another number.
        config: settings at its creation. Only the `cleanup.policy` of an existing topic is compared with this: without
            compaction the current relation would be deleted with age under any other settings.
    """

    name: str
    partitions: int = 1
    config: Mapping[str, str] = field(default_factory=dict)


def create_topics(
    bootstrap_servers: str,
    specs: Sequence[TopicSpec],
    *,
    client_options: Mapping[str, str] | None = None,
    timeout: float = 30,
) -> list[str]:
    """Create the missing topics, wait until all topics are usable, and return the names of the created ones.

    Raises:
        TopicsUnusable: the cluster does not answer, refuses a topic, or has a topic with another cleanup policy.
        ConfigInvalid: a client option is not valid.
    """
    client = _admin(bootstrap_servers, client_options)
    deadline = time.monotonic() + timeout
    existing = _existing(client, bootstrap_servers, timeout)
    # -1 is the broker's own default, which its operator chose.
    wanted = [
        NewTopic(spec.name, num_partitions=spec.partitions, replication_factor=-1, config=dict(spec.config))
        for spec in specs
        if spec.name not in existing
    ]
    created = _create(client, wanted, timeout) if wanted else []
    _check_policies(client, [spec for spec in specs if spec.name not in created], timeout)
    while not all(_is_usable(client, spec.name) for spec in specs):
        if time.monotonic() > deadline:
            raise TopicsUnusable(f"The topics have no leader at {bootstrap_servers} after {timeout:.0f} s.")
        time.sleep(0.05)
    return created


def configurations(
    bootstrap_servers: str,
    topics: Sequence[str],
    *,
    client_options: Mapping[str, str] | None = None,
    timeout: float = 30,
) -> dict[str, dict[str, str]]:
    """Return the configurations of the existing topics among some.

    Raises:
        TopicsUnusable: the cluster does not answer, or refuses the request.
        ConfigInvalid: a client option is not valid.
    """
    client = _admin(bootstrap_servers, client_options)
    existing = _existing(client, bootstrap_servers, timeout)
    return _described(client, [name for name in topics if name in existing], timeout)


def configure(
    bootstrap_servers: str,
    changes: Mapping[str, Mapping[str, str]],
    *,
    client_options: Mapping[str, str] | None = None,
    timeout: float = 30,
) -> None:
    """Change options of topics, and leave their other options as they are.

    Raises:
        TopicsUnusable: the cluster does not answer, or refuses a change.
        ConfigInvalid: a client option is not valid.
    """
    client = _admin(bootstrap_servers, client_options)
    resources = [
        ConfigResource(
            ResourceType.TOPIC,
            name,
            incremental_configs=[
                ConfigEntry(option, value, incremental_operation=AlterConfigOpType.SET)
                for option, value in options.items()
            ],
        )
        for name, options in changes.items()
    ]
    if not resources:
        return
    for resource, future in client.incremental_alter_configs(resources, request_timeout=timeout).items():
        try:
            future.result()
        except KafkaException as error:
            why = reason(error, Grant("TOPIC", str(resource.name), "ALTER_CONFIGS"))
            raise TopicsUnusable(f"The settings of {resource.name!r} cannot be changed: {why}.") from error


def ids(
    bootstrap_servers: str,
    topics: Sequence[str],
    *,
    client_options: Mapping[str, str] | None = None,
    timeout: float = 30,
) -> dict[str, str]:
    """Return the ids that Kafka gave to topics when they were created, as its Java client writes them.

    Raises:
        TopicsUnusable: the cluster does not answer, or a topic does not exist.
        ConfigInvalid: a client option is not valid.
    """
    client = _admin(bootstrap_servers, client_options)
    _existing(client, bootstrap_servers, timeout)  # which raises in time if no broker answers
    found = {}
    for name, future in client.describe_topics(TopicCollection(list(topics)), request_timeout=timeout).items():
        try:
            found[name] = str(future.result().topic_id).translate(_URL_SAFE)
        except KafkaException as error:
            why = reason(error, Grant("TOPIC", name, "DESCRIBE"))
            raise TopicsUnusable(f"The topic {name!r} cannot be looked at: {why}.") from error
    return found


def remove_records(
    bootstrap_servers: str,
    ends: Mapping[Partition, int],
    *,
    client_options: Mapping[str, str] | None = None,
    timeout: float = 30,
) -> None:
    """Remove the records before an offset of each partition.

    Raises:
        TopicsUnusable: the cluster does not answer, or does not allow it.
        ConfigInvalid: a client option is not valid.
    """
    client = _admin(bootstrap_servers, client_options)
    wanted = [TopicPartition(partition.topic, partition.number, end) for partition, end in ends.items()]
    for partition, future in client.delete_records(wanted, request_timeout=timeout).items():
        try:
            future.result()
        except KafkaException as error:
            why = reason(error, Grant("TOPIC", partition.topic, "DELETE"))
            raise TopicsUnusable(f"Records of {partition.topic!r} cannot be removed: {why}.") from error


def _admin(bootstrap_servers: str, client_options: Mapping[str, str] | None) -> AdminClient:
    return create(AdminClient, {"bootstrap.servers": bootstrap_servers, "log_level": 0, **(client_options or {})})


def _existing(client: AdminClient, bootstrap_servers: str, timeout: float) -> Collection[str]:
    wait_for_broker(bootstrap_servers, min(timeout, WAIT_SECONDS), TopicsUnusable)
    try:
        return client.list_topics(timeout=timeout).topics.keys()
    except KafkaException as error:
        raise TopicsUnusable(
            f"No Kafka broker answers at {bootstrap_servers} within {timeout:.0f} s ({reason(error)}). "
            "Check the address, and that the broker runs."
        ) from error


def _described(client: AdminClient, topics: Sequence[str], timeout: float) -> dict[str, dict[str, str]]:
    if not topics:
        return {}
    found = {}
    resources = [ConfigResource(ResourceType.TOPIC, name) for name in topics]
    for resource, future in client.describe_configs(resources, request_timeout=timeout).items():
        try:
            found[str(resource.name)] = {option: entry.value for option, entry in future.result().items()}
        except KafkaException as error:
            why = reason(error, Grant("TOPIC", str(resource.name), "DESCRIBE_CONFIGS"))
            raise TopicsUnusable(f"The settings of {resource.name!r} cannot be read: {why}.") from error
    return found


def _create(client: AdminClient, topics: list[NewTopic], timeout: float) -> list[str]:
    created = []
    for name, future in client.create_topics(topics, operation_timeout=timeout).items():
        try:
            future.result()
        except KafkaException as error:
            if error.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS:  # another process was faster
                continue
            why = reason(error, Grant("TOPIC", name, "CREATE"))
            raise TopicsUnusable(f"The topic {name!r} cannot be created: {why}.") from error
        created.append(name)
    return created


def _check_policies(client: AdminClient, specs: Sequence[TopicSpec], timeout: float) -> None:
    wanted = {spec.name: spec.config[_POLICY] for spec in specs if _POLICY in spec.config}
    if not wanted:
        return
    for topic, found in _described(client, list(wanted), timeout).items():
        if set(found[_POLICY].split(",")) != set(wanted[topic].split(",")):
            raise TopicsUnusable(
                f"The topic {topic!r} exists with {_POLICY}={found[_POLICY]}, but needs {wanted[topic]}. "
                "Mend it with `reexpand topics --fix`, or choose another name for the topic."
            )


def _is_usable(client: AdminClient, name: str) -> bool:
    topic = client.list_topics(name, timeout=5).topics[name]
    if topic.error is not None and topic.error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
        why = reason(topic.error, Grant("TOPIC", name, "DESCRIBE"))
        raise TopicsUnusable(f"The topic {name!r} cannot be looked at: {why}.")
    return (
        topic.error is None and all(part.leader >= 0 for part in topic.partitions.values()) and bool(topic.partitions)
    )
