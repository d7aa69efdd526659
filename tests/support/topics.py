"""What an administrator, or nobody in particular, does to Kafka topics."""

from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions

from tests.support.processes import eventually
from tests.support.running_job import POLL_SECONDS, Streams


def topics(streams: Streams) -> set[str]:
    """Return the topics but those of Kafka itself."""
    return {name for name in _admin(streams).list_topics(timeout=10).topics if not name.startswith("__")}


def delete(streams: Streams, *names: str) -> None:
    """Delete topics, and wait until they are gone."""
    client = _admin(streams)  # it must live until the answer is there
    for future in client.delete_topics(list(names)).values():
        future.result(30)
    assert eventually(lambda: topics(streams).isdisjoint(names), 30, POLL_SECONDS)


def recreate(streams: Streams, *names: str) -> None:
    """Delete topics, and create others of the same names."""
    delete(streams, *names)
    create(streams, *names)


def create(streams: Streams, *names: str) -> None:
    """Create those of the six topics that are missing, and wait until these can be read."""
    streams.create()
    for name in names:
        _wait_for_leaders(streams, name)


def add_partitions(streams: Streams, topic: str, total: int) -> None:
    """Give a topic more partitions, and wait until they are there."""
    client = _admin(streams)
    for future in client.create_partitions([NewPartitions(topic, total)]).values():
        future.result(30)
    _wait_for_leaders(streams, topic, total)


def remove_records(streams: Streams, topic: str, before: int) -> None:
    """Remove the first records of each partition, as retention does: those that it has before an offset."""
    offsets = [TopicPartition(topic, number, min(end, before)) for number, end in streams.ends(topic).items() if end]
    client = _admin(streams)
    for future in client.delete_records(offsets).values():
        future.result(30)


def _wait_for_leaders(streams: Streams, topic: str, partitions: int = 1) -> None:
    def have_leaders() -> bool:
        try:
            return len(streams.ends(topic)) >= partitions
        except KafkaException:  # of a partition that is there, but has no leader yet
            return False

    assert eventually(have_leaders, 30, POLL_SECONDS)


def _admin(streams: Streams) -> AdminClient:
    return AdminClient({"bootstrap.servers": streams.bootstrap_servers, "log_level": 0})
