"""The keeper of subscriptions and the whole consumer, with a fake official client."""

from __future__ import annotations

import logging
import re
import threading
from importlib.metadata import version
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import orjson
import pytest
from rocketmq.grpc_protocol import TelemetryCommand

from streaming.client import UPDATES, Op
from streaming.errors import ConsumerClosed, LiteSubscriptionRefused, NotWritten
from streaming.kafka.reader import TopicReader
from streaming.records.model import Action
from streaming.records.updates import Cause
from streaming.rocketmq import consumer as consumers
from streaming.rocketmq.consumer import WildcardLiteConsumer
from streaming.rocketmq.official import OfficialConsumer, refusal
from streaming.rocketmq.requests import LiteRequest
from streaming.rocketmq.subscriptions import Keeper, OwnLiteTopics
from tests.support.processes import eventually
from tests.support.simulated import Simulated
from tests.support.update_records import add, remove
from tests.unit.rocketmq.test_consumer import change

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class Played:
    """A RocketMQ with the official client: takes requests as 5.5.0 does, or fails."""

    def __init__(self, quota: int = 2_000) -> None:
        self.client_id, self.quota, self.max_name_bytes = "me", quota, 64
        self.names: set[str] = set()
        self.told: tuple[str, ...] = ()
        self.requests: list[LiteRequest] = []
        self.failure: Exception | None = None
        self.is_stopped = False
        self.looks = 0

    def send(self, request: LiteRequest, names: tuple[str, ...]) -> None:
        if self.failure is not None:
            raise self.failure
        self.requests.append(request)
        self.told = names
        new = set(request.names)
        if request.action is Action.COMPLETE_ADD:
            self.names = new
        else:
            self.names = self.names | new if request.action is Action.PARTIAL_ADD else self.names - new

    def renew(self) -> None:
        self.looks += 1

    def start(self) -> None:
        """Do nothing."""

    def stop(self) -> None:
        self.is_stopped = True


def kept(official: Any, topics: OwnLiteTopics, sync_seconds: float = 3_600) -> Keeper:
    return Keeper(official, topics, lambda: None, sync_seconds)


def test_what_gathers_during_a_request_goes_in_the_next_one() -> None:
    official, topics, has_begun, may_go = Played(), OwnLiteTopics(), threading.Event(), threading.Event()
    original = official.send

    def slowly(request: LiteRequest, names: tuple[str, ...]) -> None:
        if request.names:
            has_begun.set()
            may_go.wait(60)
        original(request, names)

    official.send = slowly  # type: ignore[method-assign]
    keeper = kept(official, topics)
    keeper.start()
    topics.apply(change(Op.ADD, "a"))
    assert has_begun.wait(60)
    for number in range(100):
        topics.apply(change(Op.ADD, f"t{number}"))
    may_go.set()
    assert eventually(lambda: len(official.names) == 101)
    assert [len(request.names) for request in official.requests] == [0, 1, 100]
    keeper.stop()
    assert official.names == set()


def test_after_a_failure_all_names_are_sent(caplog: pytest.LogCaptureFixture) -> None:
    """RocketMQ may have lost them. Failure and recovery are logged once, and the streams are renewed all the time."""
    caplog.set_level(logging.INFO)
    official, topics = Played(), OwnLiteTopics()
    keeper = kept(official, topics)
    keeper.start()
    topics.apply(change(Op.ADD, "a"))
    assert eventually(lambda: official.names == {"a"})
    official.failure = OSError("away")
    topics.apply(change(Op.ADD, "b"))
    topics.apply(change(Op.REMOVE, "a", Cause.TOPIC_DELETED))
    assert eventually(lambda: "away" in caplog.text)
    looks = official.looks
    assert eventually(lambda: official.looks > looks + 1)
    official.names, official.failure = {"lost"}, None
    assert eventually(lambda: official.names == {"b"})
    assert official.told == ("b",)
    assert LiteRequest(Action.PARTIAL_ADD, ("b",)) in official.requests  # as it may have an offset option
    assert eventually(lambda: "again" in caplog.text)
    # The official client's own thread logs as well, when this test is the first to start it.
    assert len([record for record in caplog.records if record.name.startswith("reexpand")]) == 2
    keeper.stop()


def test_all_names_are_repeated_from_time_to_time() -> None:
    """A broker that restarts, and a topic that ends and is born again, lose them."""
    official, topics = Played(), OwnLiteTopics()
    keeper = kept(official, topics, 0.1)
    keeper.start()
    topics.apply(change(Op.ADD, "a"))
    assert eventually(lambda: official.names == {"a"})
    official.names = set()
    assert eventually(lambda: official.names == {"a"})
    keeper.stop()


def test_what_is_beyond_the_quota_is_told(caplog: pytest.LogCaptureFixture) -> None:
    official, topics = Played(quota=1), OwnLiteTopics()
    topics.limit(1, 64)
    for name in ("a", "b", "c"):
        topics.apply(change(Op.ADD, name))
    keeper = kept(official, topics)
    keeper.start()
    assert eventually(lambda: "does not receive 'b', and 1 more: beyond the quota of 1 lite topics" in caplog.text)
    assert official.names == {"a"}
    official.quota = 3
    assert eventually(lambda: official.names == {"a", "b", "c"})
    keeper.stop()


def test_a_refusal_at_the_start_is_an_error() -> None:
    official = Played()
    for failure in (LiteSubscriptionRefused("no"), OSError("away")):
        official.failure = failure
        with pytest.raises(LiteSubscriptionRefused, match=r"no|away"):
            kept(official, OwnLiteTopics()).start()


def test_removals_are_sent_although_additions_are_refused() -> None:
    """Of a RocketMQ that holds as many subscriptions as it may; the removals make room."""
    official, topics = Played(), OwnLiteTopics()
    original = official.send

    def limited(request: LiteRequest, names: tuple[str, ...]) -> None:
        if request.action is Action.PARTIAL_ADD and len(official.names | set(request.names)) > 1:
            raise LiteSubscriptionRefused("no room")
        original(request, names)

    official.send = limited  # type: ignore[method-assign]
    keeper = kept(official, topics)
    keeper.start()
    topics.apply(change(Op.ADD, "a"))
    assert eventually(lambda: official.names == {"a"})
    topics.apply(change(Op.ADD, "b"))
    topics.apply(change(Op.REMOVE, "a", Cause.EVICTED))
    assert eventually(lambda: official.names == {"b"})
    keeper.stop()


# The whole consumer.


class Kafka(Simulated):
    """The broker that librdkafka simulates, with the topics of the job."""

    def write(self, *records: Any, topic: str = UPDATES, **options: Any) -> None:
        super().write(*records, topic=topic, **options)

    def requests(self, topic: str = "lite-subscription-events") -> list[dict[str, Any]]:
        with TopicReader(self.address, {}) as reader:
            messages = [message for block in reader.read(reader.spans([topic])) for message in block]
        return [orjson.loads(message.value() or b"") for message in messages]


@pytest.fixture
def played(monkeypatch: pytest.MonkeyPatch) -> Iterator[Played]:
    """The official client of the consumers that are made; `deliver` of it passes a message on."""
    found = Played()

    def make(*arguments: Any, **named: Any) -> Played:
        assert named["client_suffix"] == consumers.PATTERN_CLIENT
        found.deliver = arguments[3]  # type: ignore[attr-defined]
        return found

    module = SimpleNamespace(OfficialConsumer=make, SUCCESS="success", FAILURE="failure")
    monkeypatch.setattr(consumers, "official_client", lambda: module)
    yield found
    assert found.is_stopped


def own(name: str, make: Callable[..., Any] = add, **changes: Any) -> tuple[bytes, bytes | None]:
    record: tuple[bytes, bytes | None] = make(name, parent="orders", group="billing", client="me", changes=changes)
    return record


def test_patterns_go_to_the_job_and_names_to_rocketmq(played: Played) -> None:
    kafka = Kafka()
    messages: list[str] = []
    with WildcardLiteConsumer(
        "proxy:1", "billing", "orders", kafka.address,
        listener=lambda message: messages.append(message.body), attributes={"lite.sub.model": "Exclusive"},
        repeat_seconds=0.5,
    ) as consumer:  # fmt: skip
        consumer.subscribe("a__*")
        kafka.write(own("a__1"), own("a__2"), add("a__3", parent="orders", group="billing", client="other"))
        assert eventually(lambda: played.names == {"a__1", "a__2"})
        deliver = played.deliver  # type: ignore[attr-defined]
        assert deliver(SimpleNamespace(lite_topic="a__1", body="one")) == "success"
        kafka.write(own("a__1", remove, cause="EVICTED"))
        assert eventually(lambda: played.names == {"a__2"})
        assert deliver(SimpleNamespace(lite_topic="a__1", body="two")) == "failure"
        assert messages == ["one"]
        assert consumer.lite_topics == {"a__2"}
        assert eventually(lambda: len(kafka.requests()) > 1)  # repeated
    actions = [request["action"] for request in kafka.requests()]
    assert actions[0] == "COMPLETE_ADD"
    assert set(actions[1:-1]) == {"COMPLETE_ADD"}
    assert actions[-1] == "COMPLETE_REMOVE"
    (group,) = kafka.requests("lite-group-events")
    assert group["attributes"]["lite.sub.model"] == "Exclusive"


def test_a_loop_acknowledges_each_message_with_the_next_one(played: Played) -> None:
    kafka, results = Kafka(), dict[str, str]()  # the threads end in any order

    def deliver(body: str) -> None:
        message = SimpleNamespace(lite_topic="a", body=body)
        results[body] = played.deliver(message)  # type: ignore[attr-defined]

    with WildcardLiteConsumer("proxy:1", "billing", "orders", kafka.address) as consumer:
        threads = [threading.Thread(target=deliver, args=[body]) for body in ("one", "two", "three")]
        loop = iter(consumer)
        for thread, body in zip(threads, ("one", "two", "three"), strict=True):
            thread.start()
            assert next(loop).body == body
        assert eventually(lambda: results == {"one": "success", "two": "success"})
        loop.close()  # type: ignore[attr-defined] # as a `break` does
        threads[2].join(60)
        assert results["three"] == "failure"
        assert list(consumer.messages(timeout=0.1)) == []
    assert list(consumer) == []


def test_a_consumer_may_be_closed_in_its_own_loop(played: Played) -> None:
    """The official client waits for messages under way when it ends, and this one cannot be acknowledged before."""
    kafka, results = Kafka(), list[str]()
    message = SimpleNamespace(lite_topic="a", body="one")
    consumer = WildcardLiteConsumer("proxy:1", "billing", "orders", kafka.address)
    thread = threading.Thread(target=lambda: results.append(played.deliver(message)))  # type: ignore[attr-defined]
    ended = played.stop
    played.stop = lambda: (thread.join(60), ended())[-1]  # type: ignore[method-assign,func-returns-value]
    consumer.start()
    thread.start()
    for _ in consumer:
        consumer.close()
        assert results == ["failure"]


@pytest.mark.usefixtures("played")
def test_a_request_that_kafka_rejects_is_not_repeated() -> None:
    """Each repetition would fail as well, so the lease of all patterns would end."""
    kafka, many = Kafka(), [f"{number}__{'x' * 60}" for number in range(20_000)]
    with WildcardLiteConsumer("proxy:1", "billing", "orders", kafka.address, repeat_seconds=3_600) as consumer:
        consumer.subscribe("a__*")
        for _ in range(2):  # also the second time
            with pytest.raises(NotWritten, match="too large"):
                consumer.subscribe(*many)
        consumer._repeat_at = 0
        consumer._attend()
    sets = [request["liteTopicSet"] for request in kafka.requests()]
    assert sets == [["a__*"], ["a__*"], []]


@pytest.mark.usefixtures("played")
@pytest.mark.parametrize("late", ["repetition", "subscribe"])
def test_nothing_is_sent_to_the_job_after_the_end(late: str) -> None:
    """It would start the client again, without anybody who ends it. Here Kafka takes a while to accept the end."""
    kafka, has_begun, may_go = Kafka(), threading.Event(), threading.Event()
    consumer = WildcardLiteConsumer("proxy:1", "billing", "orders", kafka.address, repeat_seconds=3_600).start()
    consumer.subscribe("a__*")
    original = consumer._writer.flush

    def slowly(seconds: float) -> Any:
        has_begun.set()
        may_go.wait(60)
        return original(seconds)

    consumer._writer.flush = slowly  # type: ignore[method-assign]
    closing = threading.Thread(target=consumer.close)
    closing.start()
    assert has_begun.wait(60)
    refused = list[Exception]()

    def ask() -> None:
        try:
            consumer.subscribe("b__*")
        except ConsumerClosed as error:
            refused.append(error)

    consumer._repeat_at = 0 if late == "repetition" else consumer._repeat_at
    asking = threading.Thread(target=ask if late == "subscribe" else consumer._attend)
    asking.start()
    asking.join(0.2)
    may_go.set()
    closing.join(60)
    asking.join(60)
    assert len(refused) == (late == "subscribe")
    assert [request["action"] for request in kafka.requests()] == ["COMPLETE_ADD", "COMPLETE_REMOVE"]


@pytest.mark.parametrize(
    ("code", "message", "what_to_do"),
    [
        ("INTERNAL_SERVER_ERROR", "java.lang.NullPointerException", "in cluster mode (-pm cluster)"),
        ("LITE_SUBSCRIPTION_QUOTA_EXCEEDED", "quota", "Raise lite.sub.client.quota of the group"),
        ("TOPIC_NOT_FOUND", "no route", "Brokers register at a restarted name server"),
        (
            "INTERNAL_SERVER_ERROR",
            "connect to b:1 failed. org.apache.rocketmq.remoting.netty.NettyRemotingClient.invoke",
            "The proxy at p:1 does not reach the broker",
        ),
        ("ILLEGAL_CONSUMER_GROUP", "wrong", "needs lite.bind.topic=orders"),
    ],
)
def test_a_refusal_says_what_to_do(code: str, message: str, what_to_do: str) -> None:
    """With code and message of RocketMQ."""
    text = refusal(code, message, "the proxy at p:1", "billing", "orders")
    assert f"'billing' on 'orders': {code}, '{message}'" in text
    assert what_to_do in text


def test_the_official_client_is_the_one_that_is_known() -> None:
    """Its private parts are there, its version is the pinned one, and its stream survives a server with settings."""
    assert version("rocketmq-python-client") == "5.1.2"
    consumer = OfficialConsumer(
        "127.0.0.1:1", "billing", "orders", print, credentials=("", ""), namespace="", tls=False, threads=1,
        client_suffix="@reexpand",
    )  # fmt: skip
    assert consumer.quota == 0
    assert consumer.max_name_bytes == 64
    assert re.fullmatch(r".+@reexpand", consumer.client_id)
    metadata = dict(consumer._consumer.sign())
    assert metadata["x-mq-client-id"] == consumer.client_id
    consumer._consumer.reset_metric(TelemetryCommand().settings.metric)
    consumer.stop()
