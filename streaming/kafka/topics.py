"""Creation of missing Kafka topics, and a check of existing ones."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import ConfigResource
from confluent_kafka.admin._resource import ResourceType
from confluent_kafka.cimpl import NewTopic

from streaming.errors import TopicsUnusable
from streaming.kafka.clients import reason

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_POLICY = "cleanup.policy"


@dataclass(frozen=True)
class TopicSpec:
    """Specification of a topic.

    Attributes:
        name: its name.
        partitions: number of partitions at its creation; an existing topic may have another number.
        config: settings at its creation. Only the `cleanup.policy` of an existing topic is compared with this: without
            compaction the current relation would be deleted with age, whatever the other settings are.
    """

    name: str
    partitions: int = 1
    config: Mapping[str, str] = field(default_factory=dict)


def create_topics(bootstrap_servers: str, specs: Sequence[TopicSpec], *, timeout: float = 30) -> list[str]:
    """Create the missing topics, wait until all topics are usable, and return the names of the created ones.

    Raises:
        TopicsUnusable: the cluster does not answer, refuses a topic, or has one with another cleanup policy.
    """
    client = AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 0})
    deadline = time.monotonic() + timeout
    try:
        existing = client.list_topics(timeout=timeout).topics
    except KafkaException as error:
        raise TopicsUnusable(
            f"No Kafka broker answers at {bootstrap_servers} within {timeout:.0f} s ({reason(error)}). "
            "Check the address, and that the broker runs."
        ) from error
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


def _create(client: AdminClient, topics: list[NewTopic], timeout: float) -> list[str]:
    created = []
    for name, future in client.create_topics(topics, operation_timeout=timeout).items():
        try:
            future.result()
        except KafkaException as error:
            if error.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS:  # another process was faster
                continue
            raise TopicsUnusable(f"The topic {name!r} cannot be created: {reason(error)}.") from error
        created.append(name)
    return created


def _check_policies(client: AdminClient, specs: Sequence[TopicSpec], timeout: float) -> None:
    wanted = {spec.name: spec.config[_POLICY] for spec in specs if _POLICY in spec.config}
    if not wanted:
        return
    resources = [ConfigResource(ResourceType.TOPIC, name) for name in wanted]
    for resource, future in client.describe_configs(resources, request_timeout=timeout).items():
        try:
            found = future.result()[_POLICY].value
        except KafkaException as error:
            raise TopicsUnusable(f"The settings of {resource.name!r} cannot be read: {reason(error)}.") from error
        if set(found.split(",")) != set(wanted[resource.name].split(",")):
            raise TopicsUnusable(
                f"The topic {resource.name!r} exists with {_POLICY}={found}, but needs {wanted[resource.name]}. "
                f"Set it (kafka-configs.sh --alter --topic {resource.name} "
                f"--add-config {_POLICY}={wanted[resource.name]}), or choose another name for the topic."
            )


def _is_usable(client: AdminClient, name: str) -> bool:
    topic = client.list_topics(name, timeout=5).topics[name]
    return (
        topic.error is None and all(part.leader >= 0 for part in topic.partitions.values()) and bool(topic.partitions)
    )
