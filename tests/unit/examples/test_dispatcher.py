"""The dispatcher: recipients of a message, delivery, and errors of the command."""

from __future__ import annotations

import logging
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import orjson
import pytest
from click.testing import CliRunner
from confluent_kafka import Message

from streaming.client import Relation, SubscriptionClient
from streaming.errors import ConfigInvalid, NotWritten
from streaming.examples import dispatcher
from streaming.examples.dispatcher import Dispatcher, Inbox, LeastRecentlyServed, main
from tests.support.processes import child, eventually
from tests.support.update_records import Record, add, remove

Delivered = tuple[str, str | None]


class Scene:
    """A relation and a dispatcher on it."""

    def __init__(self, *records: Record) -> None:
        self.relation = Relation()
        self.rotation = LeastRecentlyServed()
        self.delivered: list[Delivered] = []
        self.dispatcher = Dispatcher(
            self.relation.subscribers, self.rotation, lambda row, _: self.delivered.append((row.client_id, row.part))
        )
        self.apply(*records)

    def apply(self, *records: Record) -> None:
        for record in records:
            change = self.relation.apply(*record)
            if change is not None:
                self.rotation.forget(change)

    def send(self, topic: str = "t", times: int = 1) -> Counter[Delivered]:
        """Dispatch messages of parent `p`, and count the deliveries."""
        self.delivered.clear()
        for _ in range(times):
            self.dispatcher.dispatch(Message(topic="p", key=topic.encode(), value=b"v"))
        return Counter(self.delivered)


SHARES = [add(client=client, part=f"share:{share}") for share in "st" for client in "ab"]
PARTS = ("wamp:prefix:com.app", "wamp:wildcard:com..created")
STORIES: dict[str, tuple[list[Record], int, dict[Delivered, int]]] = {
    "each group gets a message once": (
        [add(client="a", group="g1"), add(client="b", group="g2"), add("u", client="c"), add(parent="q")],
        1, {("a", None): 1, ("b", None): 1},
    ),
    "a message without recipients": ([add("u")], 1, {}),
    "the clients of a group take turns": (
        [add(client=client) for client in "abc"], 9, {(client, None): 3 for client in "abc"}
    ),
    "one client of each share, and the clients with a subscription of their own": (
        [*SHARES, add(client="z")],
        2, {**{(client, f"share:{share}"): 1 for share in "st" for client in "ab"}, ("z", None): 2},
    ),
    "shares of one name with two filters are two shares": (
        [add(client="a", part="share:s/t"), *(add(client=client, part="share:s/+") for client in "bc")],
        2, {("a", "share:s/t"): 2, ("b", "share:s/+"): 1, ("c", "share:s/+"): 1},
    ),
    "shares of two groups are two shares": (
        [add(client=client, group=group, part="share:s") for client, group in (("a", "g1"), ("b", "g2"))],
        1, {("a", "share:s"): 1, ("b", "share:s"): 1},
    ),
    "each subscription that counts by itself, also of one client": (
        [add(client=client, part=part) for client in "ab" for part in PARTS],
        1, {(client, part): 1 for client in "ab" for part in PARTS},
    ),
}  # fmt: skip


@pytest.mark.parametrize(("records", "times", "delivered"), STORIES.values(), ids=STORIES)
def test_who_gets_a_message(records: list[Record], times: int, delivered: dict[Delivered, int]) -> None:
    assert Scene(*records).send(times=times) == delivered


def test_who_receives_more_topics_gets_fewer_of_the_common_one() -> None:
    """The least recently served client is next, over all topics together."""
    scene = Scene(add("t", client="a"), add("t", client="b"), add("u", client="a"), add("u", client="c"))
    for _ in range(6):
        scene.send("t")
        scene.send("u")
    assert scene.send("t", times=2) == {("a", None): 1, ("b", None): 1}


def test_the_turns_go_on_as_clients_come_and_go() -> None:
    scene = Scene(add(client="a"), add(client="b"))
    assert scene.send(times=2) == {("a", None): 1, ("b", None): 1}
    scene.send(times=3)
    scene.apply(remove(client="a"), add(client="c"))
    assert scene.send(times=4) == {("b", None): 2, ("c", None): 2}
    scene.apply(remove(client="b"), remove(client="c"))
    assert scene.rotation._last == {}


@pytest.mark.parametrize("key", [None, b"", b"\xff"])
def test_a_message_that_names_no_topic_is_logged(key: bytes | None, caplog: pytest.LogCaptureFixture) -> None:
    scene = Scene(add())
    scene.dispatcher.dispatch(Message(topic="p", key=key, value=b"v", partition=1, offset=7))
    assert scene.delivered == []
    assert "p[1]@7 names no lite topic" in caplog.text


class SentRecords(list[tuple[Any, ...]]):
    """Writer that keeps the records."""

    def send(self, topic: str, value: bytes, key: bytes, *, headers: Any) -> None:
        self.append((topic, value, key, headers))

    def flush(self, _: float) -> None:
        """Fail, as after a record that Kafka rejected."""
        raise NotWritten(f"{self[-1][0]} did not take a record")


def test_the_inbox_passes_a_message_on_with_its_reasons() -> None:
    """Value and headers stay as they are, and a message that cannot be written is an error."""
    (row,) = Scene(add("a__b", client="é", changes={"patterns": ["a__*", "**"]})).relation.rows()
    written = SentRecords()
    inbox = Inbox(written)  # type: ignore[arg-type]
    inbox(row, Message(topic="p", key=b"a__b", value=b"\x00v", headers=[("trace", b"1")]))
    headers = [
        ("trace", b"1"),
        ("group", b"g"),
        ("client", "é".encode()),
        ("liteTopic", b"a__b"),
        ("patterns", orjson.dumps(["a__*", "**"])),
    ]
    assert written == [("p-delivered", b"\x00v", "é".encode(), headers)]
    with pytest.raises(NotWritten, match="p-delivered"):
        inbox.flush()


@pytest.fixture(autouse=True)
def _no_handlers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the command from the log and the signals of the test process."""
    monkeypatch.setattr(logging, "basicConfig", lambda **_: None)
    monkeypatch.setattr(signal, "signal", lambda *_: None)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--option", "nonsense"], "Error: Invalid value for '--option': 'nonsense' is not KEY=VALUE."),
        (["--option", "=1"], "Error: Invalid value for '--option': '=1' is not KEY=VALUE."),
        (["--option", "nonsense=1"], 'Error: the Kafka client cannot be set up: No such configuration property: "'),
        (["--option", "linger.ms=x"], "Error: the Kafka client cannot be set up: Invalid value for configuration"),
        (["--option", "session.timeout.ms=0"], "Error: the Kafka client cannot be set up: "),
    ],
)
def test_a_wrong_option_is_refused_in_one_sentence(options: list[str], sentence: str) -> None:
    result = CliRunner().invoke(main, ["--bootstrap-servers", "127.0.0.1:1", "--parent", "p", *options])
    assert result.exit_code == 2
    assert sentence in result.output
    assert isinstance(result.exception, SystemExit)


@pytest.mark.parametrize(
    ("options", "partitioner"), [([], "consistent_random"), (["--option", "partitioner=random"], "random")]
)
def test_the_partitioner_is_the_users_or_the_default_of_librdkafka(
    monkeypatch: pytest.MonkeyPatch, options: list[str], partitioner: str
) -> None:
    writer = MagicMock(side_effect=ConfigInvalid("the end of the test"))
    monkeypatch.setattr(dispatcher, "Writer", writer)
    CliRunner().invoke(main, ["--bootstrap-servers", "127.0.0.1:1", "--parent", "p", *options])
    assert writer.call_args.args[-1] == {"partitioner": partitioner}


def test_without_a_broker_it_says_what_it_waits_for_and_gives_up(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    wait = SubscriptionClient.wait_ready

    def wait_ready(client: SubscriptionClient, _: float) -> None:
        assert eventually(lambda: client.trouble != "")
        wait(client, 0)

    monkeypatch.setattr(SubscriptionClient, "wait_ready", wait_ready)
    with caplog.at_level("INFO"):
        result = CliRunner().invoke(main, ["--bootstrap-servers", "127.0.0.1:1", "--parent", "p", "--updates", "u"])
    assert result.exit_code == 1
    (sentence,) = [line for line in result.output.splitlines() if line]
    assert sentence.startswith("Error: u at 127.0.0.1:1 is not read to its end within 0 s; the last error is: ")
    said = [record.message for record in caplog.records if record.name == "dispatcher"]
    assert said == ["reading u at 127.0.0.1:1 to its end, for at most 60 s"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stop_ends_the_wait_for_a_broker(number: signal.Signals) -> None:
    command = [sys.executable, "-m", "streaming.examples.dispatcher", "--bootstrap-servers", "127.0.0.1:1"]
    options = {"cwd": Path(__file__).parents[3], "stderr": subprocess.PIPE, "text": True}
    with child([*command, "--parent", "p"], **options) as process:
        assert process.stderr is not None
        assert "reading lite-subscription-updates at 127.0.0.1:1" in process.stderr.readline()
        process.send_signal(number)
        assert process.wait(60) == 0
        assert "Traceback" not in process.stderr.read()
