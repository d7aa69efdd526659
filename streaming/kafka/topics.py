"""Creation of missing Kafka topics, and check and change of the configuration of existing ones.

Functions raise `TopicsUnusable` if the cluster does not answer, or refuses a request, and `ConfigInvalid` if a client
option is not valid.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TypeVar

from confluent_kafka import KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource
from confluent_kafka.admin._resource import ResourceType
from confluent_kafka.cimpl import NewTopic

from streaming.errors import TopicsUnusable
from streaming.kafka.clients import create, reason
from streaming.kafka.permissions import Grant
from streaming.kafka.reach import wait_for_broker

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from concurrent.futures import Future

    from streaming.kafka.reader import Partition

T = TypeVar("T")

Options = Mapping[str, str]
"""Client options of the user, in the names of librdkafka."""

_SECONDS: Final = 30.0
"""Time to wait for an answer."""

_POLICY: Final = "cleanup.policy"

_URL_SAFE: Final = str.maketrans("+/", "-_")
"""From the base64 of librdkafka to the base64 of Java's client."""


@dataclass(frozen=True)
class TopicSpec:
    """Specification of a topic.

    Attributes:
        partitions: number of partitions at its creation; an existing topic may have another number.
        config: settings at its creation. Only the `cleanup.policy` of an existing topic is compared with this: without
            compaction the current relation would be deleted with age under any other settings.
    """

    name: str
    partitions: int = 1
    config: Mapping[str, str] = field(default_factory=dict)


def create_topics(
    bootstrap_servers: str, specs: Sequence[TopicSpec], client_options: Options | None = None
) -> list[str]:
    """Create the missing topics, wait until all topics are usable, and return the names of the created ones.

    Raises:
        TopicsUnusable: as above, or a topic exists with another cleanup policy.
    """
    client, existing = _reached(bootstrap_servers, client_options)
    deadline = time.monotonic() + _SECONDS
    # -1 is the broker's own default, which its operator chose.
    missing = [
        NewTopic(spec.name, num_partitions=spec.partitions, replication_factor=-1, config=dict(spec.config))
        for spec in specs
        if spec.name not in existing
    ]
    created = []
    for name, future in (client.create_topics(missing, operation_timeout=_SECONDS) if missing else {}).items():
        try:
            _result(name, future, "CREATE", "The topic {!r} cannot be created")
        except TopicsUnusable as error:
            cause = error.__cause__
            if isinstance(cause, KafkaException) and cause.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS:
                continue  # another process was faster
            raise
        created.append(name)
    policies = {
        each.name: each.config[_POLICY] for each in specs if _POLICY in each.config and each.name not in created
    }
    for topic, found in _described(client, list(policies)).items():
        if set(found[_POLICY].split(",")) != set(policies[topic].split(",")):
            raise TopicsUnusable(
                f"The topic {topic!r} exists with {_POLICY}={found[_POLICY]}, but needs {policies[topic]}. "
                "Fix it with `reexpand topics --fix`, or choose another name for the topic."
            )
    while not all(_is_usable(client, spec.name) for spec in specs):
        if time.monotonic() > deadline:
            raise TopicsUnusable(f"The topics have no leader at {bootstrap_servers} after {_SECONDS:.0f} s.")
        time.sleep(0.05)
    return created


def configurations(
    bootstrap_servers: str, topics: Sequence[str], client_options: Options | None = None
) -> dict[str, dict[str, str]]:
    """Return the configurations of the existing topics among some."""
    client, existing = _reached(bootstrap_servers, client_options)
    return _described(client, [name for name in topics if name in existing])


def configure(
    bootstrap_servers: str, changes: Mapping[str, Mapping[str, str]], client_options: Options | None = None
) -> None:
    """Change options of topics, and leave their other options as they are."""
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
    if resources:
        client = _admin(bootstrap_servers, client_options)
        for resource, future in client.incremental_alter_configs(resources, request_timeout=_SECONDS).items():
            _result(str(resource.name), future, "ALTER_CONFIGS", "The settings of {!r} cannot be changed")


def ids(bootstrap_servers: str, topics: Sequence[str], client_options: Options | None = None) -> dict[str, str]:
    """Return the ids that Kafka gave to topics when they were created, as its Java client writes them.

    Raises:
        TopicsUnusable: as above, or a topic does not exist.
    """
    client, _ = _reached(bootstrap_servers, client_options)
    found = client.describe_topics(TopicCollection(list(topics)), request_timeout=_SECONDS)
    return {
        name: str(_result(name, future, "DESCRIBE", _UNSEEN).topic_id).translate(_URL_SAFE)
        for name, future in found.items()
    }


def remove_records(
    bootstrap_servers: str, ends: Mapping[Partition, int], client_options: Options | None = None
) -> None:
    """Remove the records before an offset of each partition."""
    client = _admin(bootstrap_servers, client_options)
    wanted = [TopicPartition(partition.topic, partition.number, end) for partition, end in ends.items()]
    for partition, future in client.delete_records(wanted, request_timeout=_SECONDS).items():
        _result(partition.topic, future, "DELETE", "Records of {!r} cannot be removed")


_UNSEEN: Final = "The topic {!r} cannot be described"


def _admin(bootstrap_servers: str, client_options: Options | None) -> AdminClient:
    return create(AdminClient, {"bootstrap.servers": bootstrap_servers, "log_level": 0, **(client_options or {})})


def _reached(bootstrap_servers: str, client_options: Options | None) -> tuple[AdminClient, Collection[str]]:
    """Return a client of a cluster that answers, and the names of its topics."""
    client = _admin(bootstrap_servers, client_options)
    wait_for_broker(bootstrap_servers, failure=TopicsUnusable)
    try:
        return client, client.list_topics(timeout=_SECONDS).topics.keys()
    except KafkaException as error:
        raise TopicsUnusable(
            f"No Kafka broker answers at {bootstrap_servers} within {_SECONDS:.0f} s ({reason(error)}). "
            "Check the address, and that the broker runs."
        ) from error


def _described(client: AdminClient, topics: Sequence[str]) -> dict[str, dict[str, str]]:
    found = {}
    resources = [ConfigResource(ResourceType.TOPIC, name) for name in topics]
    for resource, future in (client.describe_configs(resources, request_timeout=_SECONDS) if topics else {}).items():
        name = str(resource.name)
        entries = _result(name, future, "DESCRIBE_CONFIGS", "The settings of {!r} cannot be read")
        found[name] = {option: entry.value for option, entry in entries.items()}
    return found


def _result(topic: str, future: Future[T], operation: str, sentence: str) -> T:
    """Return the result of a request; its error begins with a sentence about the topic."""
    try:
        return future.result()
    except KafkaException as error:
        why = reason(error, Grant("TOPIC", topic, operation))
        raise TopicsUnusable(f"{sentence.format(topic)}: {why}.") from error


def _is_usable(client: AdminClient, name: str) -> bool:
    topic = client.list_topics(name, timeout=5).topics[name]
    if topic.error is not None and topic.error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
        raise TopicsUnusable(f"{_UNSEEN.format(name)}: {reason(topic.error, Grant('TOPIC', name, 'DESCRIBE'))}.")
    has_leaders = bool(topic.partitions) and all(part.leader >= 0 for part in topic.partitions.values())
    return topic.error is None and has_leaders
