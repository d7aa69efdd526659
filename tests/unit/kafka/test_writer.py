"""Writes of records: each is in Kafka afterwards, or an error names the topic and the reason."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from streaming.errors import NotWritten
from streaming.kafka import writer
from streaming.kafka.reader import Partition
from streaming.kafka.writer import Writer

REFUSED = KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)


class Taken:
    """A record that Kafka has taken or refused."""

    def __init__(self, topic: str, offset: int) -> None:
        self.topic, self.partition, self.offset = (lambda: topic), (lambda: 0), (lambda: offset)


class FakeProducer:
    """Producer with a short queue, whose broker gives these answers to records, in their order."""

    def __init__(self, answers: list[KafkaError | None]) -> None:
        self.answers = answers
        self.queue: list[tuple[str, Callable[..., None]]] = []
        self.full = 1
        self.taken = 0

    def produce(self, topic: str, *record: Any, headers: Any, on_delivery: Callable[..., None]) -> None:
        """Refuse the first record, since the queue is full."""
        self.full -= 1
        if self.full == 0:
            raise BufferError
        self.headers = headers
        self.queue.append((topic, on_delivery))
        if record[0] == b"broken":
            raise KafkaException(REFUSED)

    def poll(self, _: float) -> int:
        return 0

    def list_topics(self, topic: str, _: float) -> Any:
        """Describe the topic "missing", and no other one."""
        if topic != "missing":
            raise KafkaException(KafkaError(KafkaError._TRANSPORT))
        return SimpleNamespace(topics={topic: SimpleNamespace(error=KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART))})

    def flush(self, _: float) -> int:
        """Answer as many records as there are answers, and return the number of the others."""
        while self.queue and self.answers:
            topic, told = self.queue.pop(0)
            told(self.answers.pop(0), Taken(topic, self.taken))
            self.taken += 1
        return len(self.queue)


@pytest.fixture
def make(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Writer]:
    def made(*answers: KafkaError | None) -> Writer:
        monkeypatch.setattr(writer, "create", lambda *_: FakeProducer(list(answers)))
        return Writer("b:1", {}, NotWritten)

    return made


def test_the_places_of_written_records_are_returned_once(make: Callable[..., Writer]) -> None:
    found = make(None, None, None)
    found.send("t", b"1", None)
    found.send("t", b"2", None)
    assert found.flush(1) == [(Partition("t", 0), 0), (Partition("t", 0), 1)]
    found.send("u", b"3", None, headers=[("trace", b"1")])
    assert found.flush(1) == [(Partition("u", 0), 2)]
    assert found._producer.headers == [("trace", b"1")]  # type: ignore[attr-defined]


def test_a_wait_counts_what_is_not_acknowledged_and_keeps_no_places(make: Callable[..., Writer]) -> None:
    found = make(None)
    for value in (b"1", b"2"):
        found.send("t", value, None)
    assert found.wait(1) == 1
    found._producer.answers.append(None)  # type: ignore[attr-defined]
    assert found.flush(1) == [(Partition("t", 0), 1)]


def test_ctrl_c_within_a_callback_of_the_client_is_ctrl_c(make: Callable[..., Writer]) -> None:
    """The client loses it, and returns no value without an error."""

    def flush(_: float) -> int:
        raise SystemError("returned NULL without setting an exception")

    found = make()
    found._producer.flush = flush  # type: ignore[assignment, method-assign]
    with pytest.raises(KeyboardInterrupt):
        found.flush(1)


def test_a_refused_record_fails_once(make: Callable[..., Writer]) -> None:
    """Further records are written."""
    found = make(None, REFUSED, None)
    for value in (b"1", b"2"):
        found.send("t", value, None)
    with pytest.raises(NotWritten, match=r"the topic t at b:1 did not take a record: Kafka does not allow .* WRITE"):
        found.flush(1)
    found.send("t", b"3", None)
    assert found.flush(1) == [(Partition("t", 0), 2)]


def test_a_record_without_an_answer_and_an_unusable_client_fail(make: Callable[..., Writer]) -> None:
    found = make()
    found.send("t", b"1", None)
    with pytest.raises(NotWritten, match="the topic t at b:1 did not take a record: no broker answers within 1 s"):
        found.flush(1)
    found.send("missing", b"2", None)
    with pytest.raises(NotWritten, match="the topic missing at b:1 did not take a record: it does not exist"):
        found.flush(1)
    with pytest.raises(NotWritten, match="the topic u at b:1 did not take a record: Kafka does not allow"):
        found.send("u", b"broken", None)
