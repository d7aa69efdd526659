"""Broker simulated by librdkafka: real connections, no Java."""

from typing import Any

from confluent_kafka import Producer

from streaming.client import SubscriptionClient
from tests.support.update_records import Record, gone

TOPIC = "updates"


class Simulated:
    """Simulated broker with an updates topic."""

    def __init__(self) -> None:
        self._producer = Producer({"bootstrap.servers": "", "test.mock.num.brokers": 1, "log_level": 0})
        (broker,) = self._producer.list_topics(timeout=60).brokers.values()
        self.address = f"{broker.host}:{broker.port}"
        self.write(gone("nothing"))  # which creates the topic

    def write(self, *records: Record | tuple[bytes | None, bytes | None], topic: str = TOPIC, **options: Any) -> None:
        for key, value in records:
            self._producer.produce(topic, key=key, value=value, **options)
        assert self._producer.flush(60) == 0

    def client(self, topic: str = TOPIC, **options: Any) -> SubscriptionClient:
        return SubscriptionClient(self.address, topic, **options)
