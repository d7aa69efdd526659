"""Requests of a consumer by pattern, while Kafka loses some of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaError

from streaming.client import requests
from streaming.client.requests import KafkaRequests, KafkaSubscription
from tests.support.processes import eventually

if TYPE_CHECKING:
    import pytest


class Kafka:
    """A producer whose first records expire."""

    def __init__(self, lost: int) -> None:
        self.topics: list[str] = []
        self._lost = lost

    def produce(self, topic: str, *_: Any, on_delivery: Any) -> None:
        self._lost -= 1
        on_delivery(KafkaError(KafkaError._MSG_TIMED_OUT) if self._lost >= 0 else None, None)
        if self._lost < 0:
            self.topics.append(topic)

    def poll(self, _: float) -> None:
        """Have no answer."""

    def flush(self, _: float) -> int:
        return 0

    def __len__(self) -> int:
        return 0


def test_the_group_is_declared_once_kafka_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its event may expire like a request, and is sent again with the next one, until it is written."""
    kafka = Kafka(lost=3)
    monkeypatch.setattr(requests, "create", lambda *_: kafka)
    subscription = KafkaSubscription("kafka", "g", "c", ("a.*",))
    sent = KafkaRequests(subscription, ("requests", "groups"), {}, lease_seconds=0.3, silent_seconds=60)
    assert eventually(lambda: len(kafka.topics) >= 4)
    assert sent.close()
    assert kafka.topics[:2] == ["requests", "groups"]
    assert set(kafka.topics[2:]) == {"requests"}
