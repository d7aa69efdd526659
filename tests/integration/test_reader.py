"""Parts of topics as a real broker gives them."""

from uuid import uuid4

import pytest
from confluent_kafka import Producer

from streaming.errors import TopicUnreadable
from streaming.kafka.reader import Partition, Span, TopicReader
from streaming.kafka.topics import TopicSpec, create_topics
from tests.support.brokers import SharedBroker


@pytest.fixture
def topic(broker: SharedBroker) -> Partition:
    name = uuid4().hex
    create_topics(broker.bootstrap_servers, [TopicSpec(name, config={"retention.ms": "-1"})])  # its records are old
    return Partition(name, 0)


def values(reader: TopicReader, where: Partition, span: Span) -> list[bytes | None]:
    return [message.value() for block in reader.read({where: span}) for message in block]


def test_a_span_is_read_from_its_start_to_its_end(broker: SharedBroker, topic: Partition) -> None:
    """And again; offsets are found by time."""
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    for number in range(10):
        producer.produce(topic.topic, str(number), timestamp=1_000 * (number + 1))
    producer.flush(60)
    with TopicReader(broker.bootstrap_servers, {}) as reader:
        assert reader.spans([topic.topic]) == {topic: Span(0, 10)}
        assert values(reader, topic, Span(3, 6)) == [b"3", b"4", b"5"]
        assert values(reader, topic, Span(9, 10)) == [b"9"]
        assert values(reader, topic, Span(4, 4)) == []
        assert reader.offsets_at(4_500, [topic]) == {topic: 4}
        assert reader.offsets_at(99_000, [topic]) == {topic: None}


def test_only_committed_records_are_there(broker: SharedBroker, topic: Partition) -> None:
    """The marks of transactions are no records, and what is under way is behind the end."""

    def transaction(*texts: str) -> Producer:
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "transactional.id": uuid4().hex})
        producer.init_transactions(30)
        producer.begin_transaction()
        for text in texts:
            producer.produce(topic.topic, text)
        producer.flush(60)
        return producer

    transaction("committed").commit_transaction(30)
    transaction("aborted").abort_transaction(30)
    transaction("last").commit_transaction(30)
    under_way = transaction("open")
    with TopicReader(broker.bootstrap_servers, {}) as reader:
        (span,) = reader.spans([topic.topic]).values()
        assert values(reader, topic, span) == [b"committed", b"last"]
        under_way.commit_transaction(30)
        assert values(reader, topic, span) == [b"committed", b"last"]
        (span,) = reader.spans([topic.topic]).values()
        assert values(reader, topic, span) == [b"committed", b"last", b"open"]


def test_a_topic_that_does_not_exist_is_named(broker: SharedBroker) -> None:
    with TopicReader(broker.bootstrap_servers, {}) as reader, pytest.raises(TopicUnreadable, match="no-such-topic"):
        reader.spans(["no-such-topic"])
