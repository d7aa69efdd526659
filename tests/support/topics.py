"""Operations on Kafka topics, such as an administrator's."""

from collections.abc import Iterator
from contextlib import closing, contextmanager

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions

from tests.support.processes import eventually
from tests.support.running_job import POLL_SECONDS, SETTLE_SECONDS, Streams


def topics(streams: Streams) -> set[str]:
    return {name for name in _admin(streams).list_topics(timeout=60).topics if not name.startswith("__")}


def delete(streams: Streams, *names: str) -> None:
    """Delete topics, and wait until they are gone."""
    client = _admin(streams)  # it must exist until the answer arrives
    for future in client.delete_topics(list(names)).values():
        future.result(60)
    assert eventually(lambda: topics(streams).isdisjoint(names), SETTLE_SECONDS, POLL_SECONDS)


def recreate(streams: Streams, *names: str) -> None:
    """Delete topics, and create new topics with the same names."""
    delete(streams, *names)
    create(streams, *names)


def create(streams: Streams, *names: str) -> None:
    """Create the missing topics of the six, and wait until they can be read."""
    streams.create()
    for name in names:
        _wait_for_leaders(streams, name)


@contextmanager
def left_open(streams: Streams, topic: str, name: str) -> Iterator[Producer]:
    """Leave a transaction with a record open, like a killed driver; the broker ends it after 15 minutes."""
    options = {"transactional.id": name, "transaction.timeout.ms": 900_000, "log_level": 0}
    producer = Producer({"bootstrap.servers": streams.bootstrap_servers, **options})
    producer.init_transactions(60)
    producer.begin_transaction()
    producer.produce(topic, b'{"tick": 0}', b"tick")
    producer.flush(60)
    yield producer


def add_partitions(streams: Streams, topic: str, total: int) -> None:
    """Add partitions to a topic, and wait until they exist."""
    client = _admin(streams)
    for future in client.create_partitions([NewPartitions(topic, total)]).values():
        future.result(60)
    _wait_for_leaders(streams, topic, total)


def remove_records(streams: Streams, topic: str, before: int) -> None:
    """Remove the records of each partition before an offset, as retention does."""
    offsets = [TopicPartition(topic, number, min(end, before)) for number, end in streams.ends(topic).items() if end]
    client = _admin(streams)
    for future in client.delete_records(offsets).values():
        future.result(60)


def committed(streams: Streams, group: str, topic: str) -> dict[int, int]:
    """Return the offsets of a consumer group by partition; negative if it has none."""
    with closing(Consumer({"bootstrap.servers": streams.bootstrap_servers, "group.id": group})) as consumer:
        asked = [TopicPartition(topic, number) for number in streams.ends(topic)]
        return {each.partition: each.offset for each in consumer.committed(asked, timeout=60)}


def _wait_for_leaders(streams: Streams, topic: str, partitions: int | None = None) -> None:
    def have_leaders() -> bool:
        try:
            found = streams.ends(topic)
        except KafkaException:  # the partition exists, but has no leader yet
            return False
        return len(found) == partitions if partitions else bool(found)

    assert eventually(have_leaders, SETTLE_SECONDS, POLL_SECONDS)


def _admin(streams: Streams) -> AdminClient:
    return AdminClient({"bootstrap.servers": streams.bootstrap_servers, "log_level": 0})
