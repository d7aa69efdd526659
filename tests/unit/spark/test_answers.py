"""The topic of answers at the start: the job goes on without it, and says so."""

import logging
from collections.abc import Collection
from typing import Any

import pytest

from streaming.config import load
from streaming.errors import KafkaUnavailable
from streaming.kafka.topics import TopicSpec
from streaming.spark import provision

SETTINGS = load({"bootstrap_servers": "b:1", "checkpoint": "/c"})


class Kafka:
    """Kafka with or without the topic, in which a user may do something."""

    def __init__(self, *present: str, allowed: dict[str, set[str]] | None = None, refuses: str = "") -> None:
        self.present = set(present)
        self.allowed = allowed or {}
        self.refuses = refuses

    def names(self) -> set[str]:
        """Names of all topics."""
        return self.present

    def create(self, spec: TopicSpec) -> bool:
        """Create a topic."""
        if self.refuses:
            raise KafkaUnavailable(self.refuses)
        self.present.add(spec.name)
        return True

    def ids_of_new(self, names: Collection[str]) -> dict[str, str]:
        """Ids of new topics."""
        return dict.fromkeys(names, "id")

    def allowed_on_topics(self, _names: Collection[str]) -> dict[str, set[str]]:
        """Operations that are allowed, where the broker says."""
        return self.allowed


@pytest.mark.parametrize(
    ("kafka", "said"),
    [
        (Kafka(), None),
        (Kafka("lite-answers", allowed={"lite-answers": {"DESCRIBE", "WRITE"}}), None),
        (Kafka(refuses="Kafka refuses to create lite-answers."), "Kafka refuses to create lite-answers"),
        (Kafka("lite-answers", allowed={"lite-answers": {"DESCRIBE"}}), "WRITE on the topic lite-answers"),
    ],
)
def test_a_job_that_cannot_answer_says_so(kafka: Any, said: str | None, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "reexpand"):
        assert provision.provide_answers(kafka, SETTINGS) is (said is None)
    assert "lite-answers" in kafka.names() or said
    warnings = [record.getMessage() for record in caplog.records]
    assert len(warnings) == (said is not None)
    assert said is None or said in warnings[0]
