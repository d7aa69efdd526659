"""The demo on RocketMQ: tenants send orders to lite topics, and consumers with patterns receive them.

It runs Kafka, RocketMQ, the job and the watcher, and compares the received messages with the oracle.
"""

from __future__ import annotations

import statistics
import threading
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, NamedTuple

import orjson
from rich.text import Text

from streaming import oracle
from streaming.errors import DemoFailed
from streaming.examples.demo import play_in
from streaming.examples.job import START, Job, prepared
from streaming.examples.scenario import ORDERS
from streaming.examples.screen import Screen
from streaming.local import jars
from streaming.local.broker import Broker
from streaming.local.process import Child
from streaming.printable import printable
from streaming.records.model import BIND_TOPIC, WILDCARD, Action
from streaming.rocketmq import admin
from streaming.rocketmq.consumer import WildcardLiteConsumer, official_client
from streaming.rocketmq.server import RocketMQ

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

_READY_SECONDS = 120.0
_SETTLE_SECONDS = 60.0
_PACE_SECONDS = 0.4
_CALM_SECONDS = 1.0
"""Time in seconds to wait for unexpected messages."""

_POLL_SECONDS = 0.02


class PatternUser(NamedTuple):
    """A consumer: its name, which is also its group, and its pattern."""

    name: str
    pattern: str


class LiteScene(NamedTuple):
    """Messages under a common title.

    Attributes:
        topics: lite topics that receive one message each.
        deleted: a lite topic that an administrator deletes before.
        is_without_job: the job is killed before and restarted after.
    """

    title: str
    topics: tuple[str, ...]
    deleted: str | None = None
    is_without_job: bool = False


USERS = (
    PatternUser("acme-billing", "*__acme__**"),
    PatternUser("globex-billing", "*__globex__**"),
    PatternUser("eu-warehouse", "eu__*__order__*"),
    PatternUser("auditor", "**"),
)

BEFORE = LiteScene(
    "Tenants send their first orders, before any client has subscribed",
    ("eu__acme__order__created", "us__globex__invoice__issued"),
)
SCENES = (
    LiteScene(
        "Topics are born while the consumers run",
        ("eu__globex__order__created", "us__acme__order__created", "eu__initech__order__shipped"),
    ),
    LiteScene(
        "More messages of existing topics arrive at RocketMQ's own speed",
        ("eu__acme__order__created", "us__globex__invoice__issued", "eu__globex__order__created"),
    ),
    LiteScene(
        "An administrator deletes a topic; the others continue",
        ("eu__acme__order__created",),
        deleted="us__acme__order__created",
    ),
    LiteScene(
        "The job is killed: existing topics continue, and a new topic waits for the job",
        ("eu__acme__order__created", "eu__acme__invoice__issued"),
        is_without_job=True,
    ),
    LiteScene(
        "The job runs again",
        ("eu__acme__invoice__issued", "us__initech__order__created", "us__globex__invoice__issued"),
    ),
)


def receivers(topics: list[str], deleted: set[str]) -> dict[str, set[str]]:
    """Return the lite topics of each consumer according to the oracle, after these births and deletions."""
    groups = [_json(group=user.name, attributes={BIND_TOPIC: ORDERS, WILDCARD: "true"}) for user in USERS]
    requests = [
        _json(
            action=Action.COMPLETE_ADD, clientId=user.name, group=user.name, topic=ORDERS, liteTopicSet=[user.pattern]
        )
        for user in USERS
    ]
    events = [_json(event="CREATED", parentTopic=ORDERS, liteTopic=topic) for topic in topics]
    events += [_json(event="DELETED", parentTopic=ORDERS, liteTopic=topic) for topic in deleted]
    relation = oracle.replay(events, requests, groups)
    return {user.name: {row.lite_topic for row in relation if row.client_id == user.name} for user in USERS}


def _json(**fields: object) -> bytes:
    return orjson.dumps(fields)


def run(home: Path, *, as_json: bool) -> int:
    """Run the demo in `home`, and return its exit code: 0 if the received messages equal the oracle's.

    Raises:
        ReexpandError: a server or the job does not start, or RocketMQ's official client is not installed.
    """
    official_client()
    return play_in(home, lambda folder: _run(folder, LitePlay(as_json=as_json)))


class Arrival(NamedTuple):
    """A message at a consumer."""

    user: str
    topic: str
    body: str


class LitePlay:
    """Sent and received messages, printed as text or as one JSON object per line."""

    def __init__(self, *, as_json: bool) -> None:
        self.sent: dict[tuple[str, str], float] = {}
        self.deleted: set[str] = set()
        self.arrived: dict[Arrival, float] = {}
        self.repeated = 0
        self._screen = Screen(as_json=as_json)
        self._lock = threading.Lock()

    def show(self, kind: str, text: str, style: str = "", **fields: Any) -> None:
        """Print a line."""
        with self._lock:
            if not self._screen.write(kind, says=text, **fields):
                self._screen.line(Text(printable(text), style))

    def send(self, producer: Any, topic: str) -> None:
        """Send a message to a lite topic."""
        number = sum(name == topic for name, _ in self.sent) + 1
        self.show("sent", f"> message {number} to {topic}", "cyan", liteTopic=topic, number=number)
        self.sent[topic, str(number)] = time.monotonic()
        producer.send(topic, str(number).encode())

    def listener(self, user: PatternUser) -> Callable[[Any], None]:
        """Return the listener of a consumer."""

        def consume(message: Any) -> None:
            arrival, now = Arrival(user.name, message.lite_topic, message.body.decode()), time.monotonic()
            with self._lock:
                if arrival in self.arrived:
                    self.repeated += 1
                    return
                self.arrived[arrival] = now
            took = now - self.sent.get(arrival[1:], now)
            self.show(
                "received",
                f"  + {user.name:15} {message.lite_topic:28} message {arrival.body}  by {user.pattern:16} {took:.3f} s",
                "green", client=user.name, liteTopic=message.lite_topic, number=int(arrival.body), seconds=took,
            )  # fmt: skip

        return consume

    def expected(self) -> set[Arrival]:
        """Return the expected messages: all messages of the topics that a consumer receives or received."""
        ever = receivers(list(dict.fromkeys(topic for topic, _ in self.sent)), set())
        return {Arrival(user, *message) for user, names in ever.items() for message in self.sent if message[0] in names}

    def held(self) -> dict[str, set[str]]:
        """Return the expected lite topics of each consumer."""
        return receivers(list(dict.fromkeys(topic for topic, _ in self.sent)), self.deleted)


def _run(folder: Path, play: LitePlay) -> int:
    jars.fetch()
    play.show("phase", "starting Kafka and RocketMQ; RocketMQ's jars (106 MB) are downloaded on first use")
    with ExitStack() as stack:
        broker = stack.enter_context(Broker(folder / "kafka"))
        rocketmq = stack.enter_context(RocketMQ(folder / "rocketmq"))
        admin.create(rocketmq.broker, [ORDERS], {user.name: ORDERS for user in USERS})
        settings = prepared(broker, folder)
        play.show("phase", f"Kafka {broker.bootstrap_servers}, RocketMQ {rocketmq.endpoints}; starting job and watcher")
        command = [*START, "watch-rocketmq", "--parent", ORDERS, "--namesrv", rocketmq.name_server]
        command += ["--bootstrap-servers", settings.bootstrap_servers]
        stack.callback(Child(command, folder / "watcher.log").kill)
        jobs = stack.enter_context(ExitStack())
        job = jobs.enter_context(Job(settings, folder / "job-1.log", folder / "spark"))
        producer = stack.enter_context(official_client().LiteProducer(rocketmq.endpoints, ORDERS))
        play.show("scene", BEFORE.title, "bold")
        for topic in BEFORE.topics:
            play.send(producer, topic)
        _wait(play, job)
        consumers = []
        for user in USERS:
            consumer = WildcardLiteConsumer(
                rocketmq.endpoints, user.name, ORDERS, settings.bootstrap_servers,
                listener=play.listener(user), attributes={}, threads=4,
            )  # fmt: skip
            consumers.append(stack.enter_context(consumer))
            consumer.subscribe(user.pattern)
            play.show("subscribed", f"> {user.name} subscribes to {user.pattern}", "cyan")
        _settle(play)
        for scene in SCENES:
            play.show("scene", scene.title, "bold")
            if scene.deleted is not None:
                play.deleted.add(scene.deleted)
                admin.delete(rocketmq.broker, ORDERS, scene.deleted)
                play.show("deleted", f"> delete {scene.deleted}", "red", liteTopic=scene.deleted)
            if scene.is_without_job:
                job.kill()
                play.show("phase", "the job is killed with SIGKILL")
            for topic in scene.topics:
                play.send(producer, topic)
                time.sleep(_PACE_SECONDS)
            if scene.is_without_job:
                play.show("phase", "restarting the job from its checkpoint")
                job = jobs.enter_context(Job(settings, folder / "job-2.log", folder / "spark"))
                _wait(play, job)
            _settle(play)
        return _judge(play, {user.name: consumer.lite_topics for user, consumer in zip(USERS, consumers, strict=True)})


def _wait(play: LitePlay, job: Job) -> None:
    deadline = time.monotonic() + _READY_SECONDS
    while not job.is_ready:
        if time.monotonic() > deadline:
            raise DemoFailed(f"The job is not ready after {_READY_SECONDS:.0f} s.")
        time.sleep(_POLL_SECONDS)
    play.show("phase", "ready")


def _settle(play: LitePlay) -> None:
    """Wait for all expected messages. `_judge` reports missing ones after a timeout."""
    deadline = time.monotonic() + _SETTLE_SECONDS
    while not play.expected() <= play.arrived.keys() and time.monotonic() < deadline:
        time.sleep(_POLL_SECONDS)


def _judge(play: LitePlay, found: dict[str, frozenset[str]]) -> int:
    """Compare the received messages with the oracle, print the result, and return the exit code."""
    time.sleep(_CALM_SECONDS)
    expected, arrived = play.expected(), set(play.arrived)
    missing, surplus = sorted(expected - arrived), sorted(arrived - expected)
    held = {name: set(names) for name, names in found.items()} == play.held()
    for kind, wrong in (("missing", missing), ("surplus", surplus)):
        for each in wrong:
            play.show(kind, f"{kind}: {each.user} {each.topic} message {each.body}", "red", **each._asdict())
    took = sorted(play.arrived[each] - play.sent[each[1:]] for each in expected & arrived if each.body != "1")
    later = f"{statistics.median(took) * 1_000:.0f} ms" if took else "not measured"
    is_right = held and not missing and not surplus
    text = (
        f"{'passed' if is_right else 'FAILED'}: {len(missing)} of {len(expected)} expected deliveries are missing, "
        f"{len(surplus)} are surplus, {play.repeated} were repeated; the subscriptions in RocketMQ "
        f"{'equal' if held else 'DIFFER FROM'} the oracle's; latency of later messages: {later} (median)"
    )
    play.show(
        "summary", text, "green" if is_right else "bold red", ok=is_right, expected=len(expected),
        missing=len(missing), surplus=len(surplus), repeated=play.repeated,
    )  # fmt: skip
    return 0 if is_right else 1
