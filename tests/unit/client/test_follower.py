"""The client on the broker that librdkafka simulates: real connections, no Java."""

from __future__ import annotations

import logging
import threading

import pytest

from streaming.client import (
    CallbackFailed,
    Change,
    ClientError,
    NotReady,
    Op,
    SubscriptionClient,
    UpdatesUnreadable,
)
from tests.support.processes import eventually
from tests.support.simulated import TOPIC, Simulated
from tests.support.threads import write_with_readers
from tests.support.update_records import add, gone, remove

PARTITIONS = 4


@pytest.fixture
def broker() -> Simulated:
    return Simulated()


def until(client: SubscriptionClient, rows: int) -> None:
    assert eventually(lambda: len(client.relation) == rows)


def test_what_was_written_before_is_there_when_it_is_ready(broker: Simulated) -> None:
    with broker.client() as client:
        client.wait_ready(60)
        assert client.relation.rows() == []
    broker.write(*(add(f"t{number}") for number in range(500)), remove("t7"), gone("t7"))
    with broker.client() as client:
        client.wait_ready(60)
        assert client.ready
        assert len(client.relation) == 499
        assert client.topics("p", "g", "c") >= {"t0", "t499"}
        assert client.subscribers("p", "t7") == []


def test_a_client_may_admit_the_rows_of_some_only(broker: Simulated) -> None:
    """Of all parts of a client."""
    broker.write(
        add("t1"), add("t2", part="share:s"), add("t3", client="c1"), add("t4", client="d"), add("t5", group="h"),
        remove("t1", client="d"),
    )  # fmt: skip
    with broker.client(admits=lambda subscriber: subscriber[:3] == ("p", "g", "c")) as client:
        client.wait_ready(60)
        assert {row.lite_topic for row in client.relation.rows()} == {"t1", "t2"}
        assert client.malformed == 0


def test_changes_come_in_order_and_once(broker: Simulated) -> None:
    """In the order of each partition, from the beginning on."""
    changes: list[Change] = []
    batch = [add("t"), add("t", client="d"), add("t")]
    broker.write(*batch, partition=0)
    with broker.client(on_change=changes.append) as client:
        client.wait_ready(60)
        assert [(change.op, change.row.client_id) for change in changes] == [("ADD", "c"), ("ADD", "d"), ("ADD", "c")]
        broker.write(batch[-1], remove("t"), gone("t"), remove("t"), gone("t"), add("u"), partition=0)
        assert eventually(lambda: len(changes) == 5)
    assert [(change.op, change.row.lite_topic) for change in changes[3:]] == [(Op.REMOVE, "t"), (Op.ADD, "u")]


def test_a_change_is_in_the_relation_when_it_is_told(broker: Simulated) -> None:
    """And nothing after it: a question from `on_change` is about that moment."""
    told: list[tuple[str, set[str]]] = []

    def on_change(change: Change) -> None:
        told.append((change.row.lite_topic, client.topics("p", "g", "c")))

    with broker.client(on_change=on_change) as client:
        client.wait_ready(60)
        broker.write(add("t"), add("u"), remove("t"), partition=0)
        assert eventually(lambda: len(told) == 3)
    assert told == [("t", {"t"}), ("u", {"t", "u"}), ("t", {"u"})]


def test_a_malformed_record_is_counted_and_logged(broker: Simulated, caplog: pytest.LogCaptureFixture) -> None:
    broker.write(add("t"), (b"no key", None), (add("u")[0], b"no value"), (None, b"{}"), add("v"), partition=0)
    with broker.client() as client:
        client.wait_ready(60)
        assert client.topics("p", "g", "c") == {"t", "v"}
        assert client.malformed == 3
        assert client.error is None
    logged = [record.getMessage() for record in caplog.records if record.name == "reexpand.client"]
    assert len(logged) == 3
    assert all(line.startswith(f"{TOPIC}[0]@") for line in logged)


SASL = {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "PLAIN",
    "sasl.username": "u",
    "sasl.password": "secret",
}
"""Options that the simulated broker, which has no SASL, refuses."""


@pytest.mark.parametrize(
    ("topic", "options", "said"),
    [("missing", {}, r"missing at .* cannot be read: .*[Uu]nknown topic"), (TOPIC, SASL, "SASL")],
    ids=["an unknown topic", "refused credentials"],
)
def test_a_topic_that_cannot_be_read_is_reported(
    broker: Simulated, topic: str, options: dict[str, str], said: str
) -> None:
    with broker.client(topic, options=options) as client:
        with pytest.raises(UpdatesUnreadable, match=said) as caught:
            client.wait_ready(60)
        assert "secret" not in str(caught.value)
        assert isinstance(client.error, UpdatesUnreadable)
        assert not client.ready
    with pytest.raises(UpdatesUnreadable, match=r"no\.such\.option"):
        SubscriptionClient("127.0.0.1:1", options={"no.such.option": 1})


def test_a_broker_that_is_down_is_waited_for(caplog: pytest.LogCaptureFixture) -> None:
    """It may come back; until then the timeout names the error, and the log has it once."""
    with SubscriptionClient("127.0.0.1:1") as client:
        assert eventually(lambda: bool(caplog.records))
        with pytest.raises(NotReady, match=r"127\.0\.0\.1:1.*refused") as caught:
            client.wait_ready(0)
        assert isinstance(caught.value, TimeoutError)
        assert not client.ready
        assert client.error is None
    assert len([record for record in caplog.records if record.levelno == logging.WARNING]) == 1


def test_a_failing_callback_stops_the_client(broker: Simulated) -> None:
    """Its owner has missed a change, so any copy of the relation is wrong from there on."""

    def fail(_: Change) -> None:
        raise ValueError("my own mistake")

    broker.write(add())
    with broker.client(on_change=fail) as client:
        for _ in range(2):
            with pytest.raises(CallbackFailed, match="my own mistake") as caught:
                client.wait_ready(60)
            assert isinstance(caught.value.__cause__, CallbackFailed)
            assert isinstance(caught.value.__cause__.__cause__, ValueError)
        assert isinstance(client.error, CallbackFailed)


@pytest.mark.parametrize("failure", [MemoryError("no room"), SystemExit("no room")])
def test_an_unexpected_failure_is_said(
    broker: Simulated, monkeypatch: pytest.MonkeyPatch, failure: BaseException
) -> None:
    def fail(*_: object) -> None:
        raise failure

    broker.write(add())
    monkeypatch.setattr("streaming.client.relation.Relation.apply", fail)
    with broker.client() as client, pytest.raises(ClientError, match="no room"):
        client.wait_ready(60)


def test_closing_ends_the_thread_and_keeps_the_answers(broker: Simulated) -> None:
    broker.write(add())
    client = broker.client()
    client.wait_ready(60)
    client.close()
    client.close()
    assert not client._thread.is_alive()
    assert not client.ready
    assert client.error is None
    assert client.topics("p", "g", "c") == {"t"}
    with pytest.raises(NotReady, match="closed"):
        client.wait_ready(0)


def test_a_callback_may_close_the_client(broker: Simulated) -> None:
    """No change is reported afterwards."""
    changes: list[Change] = []

    def close(change: Change) -> None:
        changes.append(change)
        client.close()

    with broker.client(on_change=close) as client:
        client.wait_ready(60)
        broker.write(add("t"), add("u"), add("v"), partition=0)
        assert eventually(lambda: bool(changes))
    assert len(changes) == 1


def test_many_threads_ask_a_client_that_reads(broker: Simulated) -> None:
    """While rows are only added, a row once seen stays."""
    seen = threading.local()
    with broker.client() as client:

        def ask() -> None:
            found = len(client.topics("p", "g", "c"))
            assert found >= getattr(seen, "rows", 0)
            assert len(client.subscribers("p", "t0")) <= 1
            seen.rows = found

        def write() -> None:
            for start in range(0, 2_000, 200):
                broker.write(*(add(f"t{number}") for number in range(start, start + 200)))
            until(client, 2_000)

        write_with_readers(write, ask)
