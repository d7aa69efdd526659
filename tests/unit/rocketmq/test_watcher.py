"""The watcher of RocketMQ with fake brokers. The integration test uses a real broker."""

import asyncio
import logging
import threading
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar, cast

import pytest
from click.testing import CliRunner

from streaming.adapters.watch import TopicChange, Watch
from streaming.cli import main
from streaming.kafka import reach
from streaming.rocketmq import brokers, lite_topics, watcher
from streaming.rocketmq.brokers import Message, Pulled, Queue
from streaming.rocketmq.lite_topics import now_ms
from streaming.rocketmq.remoting import Link, Refused, Unreachable

if TYPE_CHECKING:
    from streaming.adapters.topic_events import TopicEvents

LATER = Message("a", False, 5, None, {})
FIRST = Message("a", True, 5, "paid", {"region": "eu"})


class FakeEvents:
    """Kafka's side: what was announced before, and what is announced."""

    bootstrap_servers = "broker:9092"

    def __init__(self, *history: TopicChange) -> None:
        self.history = history
        self.written: list[TopicChange] = []

    def read_back(self, watch: Watch) -> None:
        for change in (*self.history, *self.written):
            watch.fold(change)

    def announce(self, changes: list[TopicChange], _: int) -> list[bytes]:
        self.written += changes
        return []


class FakeBroker:
    """Broker whose queues hold some messages; the topics of all of them live."""

    queues: Mapping[str, list[list[Message]]] = {}
    counts: ClassVar[list[int]] = []
    """Numbers of topics that it gives, one a question; the last one stays. Without any it is one."""

    dead: ClassVar[set[str]] = set()
    """Topics that have ended, once the last number is given."""

    unanswered: ClassVar[list[str]] = []
    """Brokers that do not answer to the next question for the parent, once for each entry."""

    def __init__(self, address: str, *_: object) -> None:
        self.address = address

    async def pull(self, queue: int, offset: int, *, births: bool, hold: bool) -> Pulled:
        """Return the messages from an offset on; wait where there are none."""
        messages = self.queues[self.address][queue]
        if offset >= len(messages) and hold:
            await asyncio.sleep(600)
        found = [each for each in messages[offset:] if each.is_first or not births]
        return Pulled(found, len(messages), len(messages))

    async def probe(self, topics: Sequence[str]) -> dict[str, int]:
        named = {each.topic for messages in self.queues[self.address] for each in messages}
        ended = self.dead if len(self.counts) == 1 else set()
        return {topic: now_ms() for topic in topics if topic in named - ended}

    async def parent_info(self) -> tuple[int, float]:
        if self.address in self.unanswered:
            self.unanswered.remove(self.address)
            raise Unreachable("it is away")
        if not self.counts:
            return 1, 3_600_000
        return self.counts.pop(0) if len(self.counts) > 1 else self.counts[0], 3_600_000

    async def close(self) -> None:
        """Nothing is open."""


@pytest.fixture(autouse=True)
def _fakes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(brokers, "ParentBroker", FakeBroker)
    monkeypatch.setattr(watcher, "_ROUTE_SECONDS", 0.02)
    monkeypatch.setattr(watcher, "_EARLY_ROUTE_SECONDS", 0.02)
    monkeypatch.setattr(watcher, "_RETRY_SECONDS", 0.01)


def routed(monkeypatch: pytest.MonkeyPatch, *routes: Mapping[str, int]) -> None:
    """Let the name server answer with numbers of queues by broker, the last answer again and again.

    It knows no parent without brokers.
    """
    answers = list(routes)

    async def route(_: Link, __: str) -> tuple[dict[str, str], list[Queue]]:
        found = answers.pop(0) if len(answers) > 1 else answers[0]
        if not found:
            raise Refused(17, "No topic route info in name server for the topic")
        queues = [Queue(name, number) for name, count in found.items() for number in range(count)]
        return {name: name for name in found}, queues

    monkeypatch.setattr(brokers, "route", route)


def watched(events: FakeEvents, *, once: bool = False, until: int = 0) -> list[TopicChange]:
    """Return what a watcher announces by its end, or until there are so many changes."""
    options = watcher.RocketMQOptions("names:9876", "orders", once=once)
    stop = threading.Event()
    work = watcher._LiteWatcher(cast("TopicEvents", events), options, lambda _: None, stop)

    async def run() -> None:
        task = asyncio.create_task(work.run())
        async with asyncio.timeout(60):
            while not (task.done() or (until and len(events.written) >= until)):  # noqa: ASYNC110 - as threads write
                await asyncio.sleep(0.01)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(run())
    return events.written


A, ANNOUNCED = TopicChange(True, "a", "5"), TopicChange(True, "a", "0")


@pytest.mark.parametrize(
    ("routes", "queues", "history", "changes"),
    [
        ([{"x": 1, "y": 1}], {"x": [[FIRST]], "y": [[FIRST._replace(stored_ms=7)]]}, [],
         [A._replace(tags="paid", properties={"region": "eu"})]),
        ([{"x": 1}], {"x": [[LATER]]}, [], [ANNOUNCED]),
        ([{"x": 1}], {"x": [[LATER]]}, [ANNOUNCED], []),
        ([{}, {}, {"x": 1}], {"x": [[FIRST, FIRST._replace(topic="b")]]}, [A],
         [TopicChange(True, "b", "5", "paid", {"region": "eu"})]),
        ([{}, {}, {"x": 1}], {"x": [[FIRST]]}, [], []),
        ([{"x": 2}], {"x": [[FIRST._replace(stored_ms=7, tags="new")], [FIRST]]}, [],
         [TopicChange(True, "a", "7", "new", {"region": "eu"})]),
        ([{"x": 2}], {"x": [[FIRST._replace(stored_ms=7, tags="new")], [FIRST]]}, [A],
         [TopicChange(False, "a"), TopicChange(True, "a", "7", "new", {"region": "eu"})]),
    ],
    ids=["a topic on two brokers is announced once",
         "the very first start announces topics whose birth is gone",
         "a later start knows them from its own events",
         "a parent that had topics is waited for while its brokers register at a name server",
         "a parent that was never seen may be misspelt",
         "the last birth counts, in whatever queue",
         "a topic that was born again in another queue"],
)  # fmt: skip
def test_the_start_announces_what_differs(
    monkeypatch: pytest.MonkeyPatch,
    routes: list[Mapping[str, int]],
    queues: Mapping[str, list[list[Message]]],
    history: list[TopicChange],
    changes: list[TopicChange],
) -> None:
    routed(monkeypatch, *routes)
    monkeypatch.setattr(FakeBroker, "queues", queues)
    assert watched(FakeEvents(*history), once=True) == changes


ON_Y = TopicChange(True, "y", "5")


@pytest.mark.parametrize("once", [True, False])
def test_topics_of_a_broker_that_registers_late_are_not_announced_as_deleted(
    monkeypatch: pytest.MonkeyPatch,
    *,
    once: bool,
) -> None:
    """Nor is one that has ended there announced at all."""
    queues = {"x": [[FIRST]], "y": [[FIRST._replace(topic="y"), FIRST._replace(topic="dead")], []]}
    monkeypatch.setattr(FakeBroker, "queues", queues)
    monkeypatch.setattr(FakeBroker, "dead", {"dead"})
    monkeypatch.setattr(FakeBroker, "counts", [1])
    monkeypatch.setattr(watcher, "_REGISTERED_SECONDS", 0.5)
    routed(monkeypatch, {"x": 1}, {"x": 1, "y": 2})
    events = FakeEvents(ON_Y, TopicChange(True, "gone", "5"))
    found = watched(events, once=once, until=0 if once else 2)
    assert [(change.created, change.topic) for change in found] == [(True, "a"), (False, "gone")]


def test_a_topic_whose_broker_does_not_come_back_is_announced_as_deleted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once all brokers must have registered."""
    monkeypatch.setattr(watcher, "_REGISTERED_SECONDS", 0.5)
    monkeypatch.setattr(FakeBroker, "queues", {"x": [[]]})
    routed(monkeypatch, {"x": 1})
    begin = time.monotonic()
    assert watched(FakeEvents(ON_Y), until=1) == [TopicChange(False, "y")]
    assert time.monotonic() - begin > 0.5


def test_queues_of_a_new_broker_that_does_not_answer_at_first_are_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    routed(monkeypatch, {"x": 1}, {"x": 2, "y": 1})
    monkeypatch.setattr(FakeBroker, "queues", {"x": [[], []], "y": [[FIRST]]})
    monkeypatch.setattr(FakeBroker, "unanswered", ["y", "y"])
    assert [change.topic for change in watched(FakeEvents(), until=1)] == ["a"]


@pytest.mark.parametrize("counts", [[7, 7, 7, 6], [7, 7, 7, 7]], ids=["the number falls", "the number stays"])
def test_an_end_is_found_where_the_broker_counts_more_topics_than_are_known(
    monkeypatch: pytest.MonkeyPatch, counts: list[int]
) -> None:
    """It counts topics of other kinds as well; and a birth may hide an end."""
    monkeypatch.setattr(FakeBroker, "queues", {"one": [[FIRST]]})
    monkeypatch.setattr(FakeBroker, "counts", counts)
    monkeypatch.setattr(FakeBroker, "dead", {"a"})
    monkeypatch.setattr(lite_topics, "LOOK_SECONDS", 0.01)
    routed(monkeypatch, {"one": 1})
    found = watched(FakeEvents(), until=2)
    assert [(change.created, change.topic) for change in found] == [(True, "a"), (False, "a")]


@pytest.mark.parametrize("is_seen", [True, False], ids=["the broker tells it", "nothing was asked meanwhile"])
def test_topics_of_a_recreated_parent_are_announced(monkeypatch: pytest.MonkeyPatch, *, is_seen: bool) -> None:
    """Its new queues begin at 0, and may have passed the former offsets already. Topics that ended are left out."""
    new = [FIRST._replace(topic=name, stored_ms=9) for name in ("dead", "b")]
    monkeypatch.setattr(FakeBroker, "queues", {"x": [[FIRST, LATER, LATER]]})
    monkeypatch.setattr(FakeBroker, "counts", [1])
    monkeypatch.setattr(FakeBroker, "dead", {"a", "dead"})
    routed(monkeypatch, {"x": 1})
    original, holds = FakeBroker.pull, list[int]()

    async def pull(self: FakeBroker, queue: int, offset: int, *, births: bool, hold: bool) -> Pulled:
        if hold:
            holds.append(offset)
            monkeypatch.setattr(FakeBroker, "queues", {"x": [new + [LATER, LATER] * is_seen]})
            if is_seen and len(holds) == 1:
                raise Refused(17, "Topic [orders] not exist.")
            if offset > len(self.queues["x"][0]):
                return Pulled([], 2, 2)  # RocketMQ moves the offset to the end
        return await original(self, queue, offset, births=births, hold=hold)

    monkeypatch.setattr(FakeBroker, "pull", pull)
    found = watched(FakeEvents(ANNOUNCED), until=1)
    assert [change.topic for change in found if change.created] == ["b"]


def test_a_queue_that_no_longer_exists_is_logged_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The other tasks of its broker go on."""
    caplog.set_level(logging.INFO)
    monkeypatch.setattr(FakeBroker, "queues", {"x": [[FIRST], []]})
    monkeypatch.setattr(lite_topics, "LOOK_SECONDS", 0.01)
    routed(monkeypatch, {"x": 2})
    original = FakeBroker.pull

    async def pull(self: FakeBroker, queue: int, offset: int, *, births: bool, hold: bool) -> Pulled:
        if queue == 1 and hold:
            raise Refused(29, "queueId[1] is illegal")
        return await original(self, queue, offset, births=births, hold=hold)

    monkeypatch.setattr(FakeBroker, "pull", pull)
    work = watcher._LiteWatcher(
        cast("TopicEvents", FakeEvents()), watcher.RocketMQOptions("names:9876", "orders"), lambda _: None,
        threading.Event(),
    )  # fmt: skip
    with pytest.raises(TimeoutError):
        asyncio.run(asyncio.wait_for(work.run(), 1))
    lines = [record.message for record in caplog.records if "answer" in record.message]
    assert lines == ["broker x does not answer: code 29: queueId[1] is illegal"]


@pytest.mark.parametrize(("servers", "code"), [("127.0.0.1:1", 1), ("127.0.0.1", 2)])
def test_a_kafka_that_takes_no_connection_is_told(servers: str, code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before RocketMQ is asked for anything."""
    monkeypatch.setattr(reach, "WAIT_SECONDS", 0.1)
    words = ["watch-rocketmq", "--bootstrap-servers", servers, "--namesrv", "127.0.0.1:2", "--parent", "orders"]
    result = CliRunner().invoke(main, words)
    assert result.exit_code == code
    assert ("no Kafka broker answers at 127.0.0.1:1" if code == 1 else "must be host:port") in result.output
