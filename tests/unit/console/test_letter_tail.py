"""The last dead letters."""

from collections.abc import Iterator
from typing import Any

import orjson
import pytest
from confluent_kafka import Message

from streaming.console import letters as module
from streaming.console import looking
from streaming.console.letters import LetterTail
from streaming.kafka import letters
from tests.support.processes import eventually
from tests.support.simulated import Simulated

TOPIC = "letters"


def letter(offset: int, reason: str = "not-json", **fields: Any) -> tuple[bytes, bytes]:
    value = {"reason": reason, "message": f"m{offset}", "original": "{", "originalBytes": 1, **fields}
    return orjson.dumps(["lite-topic-events", 0, offset, 0]), orjson.dumps(value)


def done(offset: int) -> tuple[bytes, None]:
    return letter(offset)[0], None


@pytest.fixture(autouse=True)
def _often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(looking, "_LOOK_SECONDS", 0.05)


@pytest.fixture
def tail(broker: Simulated) -> Iterator[LetterTail]:
    broker.write(*(letter(number, timestamp=0) for number in range(3)), topic=TOPIC, partition=0)
    with LetterTail(broker.address, TOPIC, {}) as found:
        yield found


def ids(tail: LetterTail, reason: str = "", start: int = 0, size: int = 100) -> list[str]:
    return [found["id"].partition("@")[2] for found in tail.page(reason, start, size)["letters"]]


def test_letters_are_followed_the_newest_first_until_they_are_replayed(broker: Simulated, tail: LetterTail) -> None:
    assert eventually(lambda: len(ids(tail)) == 3)
    broker.write(letter(9, "unknown-event"), topic=TOPIC, partition=0)
    assert eventually(lambda: ids(tail)[0] == "9")
    assert tail.page("", 0, 1)["counts"] == {"not-json": 3, "unknown-event": 1}
    assert ids(tail, "unknown-event") == ["9"]
    assert ids(tail, "", 1, 2) == ids(tail)[1:3]
    broker.write(done(1), (b"x", b"x"), (b"[]", b"{}"), (None, None), topic=TOPIC, partition=0)
    broker.write(letter(5, original="x" * 60_000), topic=TOPIC, partition=0)
    assert eventually(lambda: "5" in ids(tail))
    assert sorted(ids(tail)) == ["0", "2", "5", "9"], "without the replayed entry, and records that are no letters"
    (found,) = [each for each in tail.page("", 0, 100)["letters"] if each["id"].endswith("@5")]
    assert (len(found["original"]), found["truncated"]) == (2_048, True)


def test_letters_that_a_replay_can_help_name_what_to_do_first(broker: Simulated) -> None:
    reasons = ["quota-exceeded", "not-json", "a-later-reason"]
    broker.write(*(letter(number, reason) for number, reason in enumerate(reasons)), topic=TOPIC, partition=0)
    with LetterTail(broker.address, TOPIC, {}) as tail:
        assert eventually(lambda: len(ids(tail)) == 3)
        fixes = {each["reason"]: each["fix"] for each in tail.page("", 0, 9)["letters"]}
    assert fixes == {"quota-exceeded": "raise the quota", "not-json": "", "a-later-reason": ""}


def test_only_the_last_ones_are_kept(broker: Simulated, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those before the start are not even read; the number of the others is told."""
    monkeypatch.setattr(module, "KEPT", 4)
    broker.write(*(letter(number) for number in range(10)), topic=TOPIC, partition=0)
    read: list[int] = []
    records = letters.records

    def noted(block: list[Message]) -> Any:
        read.extend(message.offset() or 0 for message in block)
        return records(block)

    monkeypatch.setattr(letters, "records", noted)
    with LetterTail(broker.address, TOPIC, {}) as tail:
        assert eventually(lambda: sorted(ids(tail)) == ["6", "7", "8", "9"])
        assert read == [6, 7, 8, 9]
        assert tail.page("", 0, 1)["cut"] == 6
        broker.write(letter(10), letter(11), topic=TOPIC, partition=0)
        assert eventually(lambda: sorted(ids(tail)) == ["10", "11", "8", "9"])
        assert tail.page("", 0, 1)["cut"] == 8


def test_a_broker_that_does_not_answer_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streaming.kafka.reach.WAIT_SECONDS", 0.3)
    with LetterTail("127.0.0.1:1", TOPIC, {}) as tail:
        assert eventually(lambda: tail.page("", 0, 1)["error"] != "")
        assert "no Kafka broker answers at 127.0.0.1:1" in tail.page("", 0, 1)["error"]
