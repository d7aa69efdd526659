"""Run of the demo on RocketMQ: servers, job, watcher, tenants, consumers of patterns, and the check of messages."""

from __future__ import annotations

import json
import signal
import statistics
import subprocess
import sys
import threading
import time
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from rich.console import Console
from rich.text import Text

from streaming.adapters.rocketmq import admin
from streaming.config import Settings
from streaming.consumers.rocketmq import WildcardLiteConsumer, official_client
from streaming.demo.lite_scenario import BEFORE, SCENES, USERS, receivers
from streaming.demo.process import Job
from streaming.demo.runner import demo_folder
from streaming.demo.scenario import ORDERS
from streaming.errors import DemoFailed
from streaming.kafka import specs as topics
from streaming.kafka.topics import create_topics
from streaming.local import jars
from streaming.local.broker import Broker
from streaming.local.guardian import guarded
from streaming.local.rocketmq import RocketMQ
from streaming.printable import printable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from streaming.demo.lite_scenario import LiteScene, PatternUser

_READY_SECONDS = 120.0
_SETTLE_SECONDS = 60.0
_PACE_SECONDS = 0.4
_CALM_SECONDS = 1.0
"""Wait in seconds for messages that must not come."""

_POLL_SECONDS = 0.02
_STOP_SECONDS = 20.0
_INTERRUPTED, _TERMINATED = 130, 143


def run(home: Path, *, as_json: bool) -> int:
    """Play the demo in `home`, and return its exit code: 0 if each consumer received what the oracle says.

    Raises:
        ReexpandError: a server or the job does not start, or the official client of RocketMQ is not installed.
    """
    official_client()
    former = signal.signal(signal.SIGTERM, lambda *_: sys.exit(_TERMINATED))
    try:
        with demo_folder(home) as folder:
            return _run(folder, LiteScreen(as_json=as_json))
    except KeyboardInterrupt:
        return _INTERRUPTED
    finally:
        signal.signal(signal.SIGTERM, former)


class Arrival(NamedTuple):
    """A message at a consumer."""

    user: str
    topic: str
    body: str


class LiteScreen:
    """Lines for people, or one JSON object a line."""

    def __init__(self, *, as_json: bool) -> None:
        self._console = None if as_json else Console(highlight=False, emoji=False)
        self._started = time.monotonic()
        self._lock = threading.Lock()

    def say(self, kind: str, text: str, style: str = "", **fields: Any) -> None:
        """Print a line."""
        at = time.monotonic() - self._started
        with self._lock:
            if self._console is None:
                sys.stdout.write(json.dumps({"type": kind, "at": round(at, 3), "says": text, **fields}) + "\n")
                sys.stdout.flush()
            else:
                self._console.print(Text.assemble((f"{at:5.1f} s  ", "dim"), (printable(text), style)), soft_wrap=True)


class LitePlay:
    """Messages that were sent, and those that came."""

    def __init__(self, screen: LiteScreen) -> None:
        self.screen = screen
        self.sent: dict[tuple[str, str], float] = {}
        self.deleted: set[str] = set()
        self.arrived: dict[Arrival, float] = {}
        self.repeated = 0
        self._lock = threading.Lock()

    def send(self, producer: Any, topic: str) -> None:
        """Send a message to a lite topic."""
        number = sum(name == topic for name, _ in self.sent) + 1
        self.screen.say("sent", f"> message {number} to {topic}", "cyan", liteTopic=topic, number=number)
        self.sent[topic, str(number)] = time.monotonic()
        producer.send(topic, str(number).encode())

    def listener(self, user: PatternUser) -> Callable[[Any], None]:
        """Return what a consumer calls with a message."""

        def consume(message: Any) -> None:
            arrival, now = Arrival(user.name, message.lite_topic, message.body.decode()), time.monotonic()
            with self._lock:
                if arrival in self.arrived:
                    self.repeated += 1
                    return
                self.arrived[arrival] = now
            took = now - self.sent.get(arrival[1:], now)
            self.screen.say(
                "received",
                f"  + {user.name:15} {message.lite_topic:28} message {arrival.body}  by {user.pattern:16} {took:.3f} s",
                "green", client=user.name, liteTopic=message.lite_topic, number=int(arrival.body), seconds=took,
            )  # fmt: skip

        return consume

    def expected(self) -> set[Arrival]:
        """Return what must have come: all messages of all topics that a consumer receives or received."""
        ever = receivers(list(dict.fromkeys(topic for topic, _ in self.sent)), set())
        return {Arrival(user, *message) for user, names in ever.items() for message in self.sent if message[0] in names}

    def held(self) -> dict[str, set[str]]:
        """Return the lite topics that each consumer must have now."""
        return receivers(list(dict.fromkeys(topic for topic, _ in self.sent)), self.deleted)


def _run(folder: Path, screen: LiteScreen) -> int:
    jars.fetch()
    screen.say("phase", "starting Kafka and RocketMQ; its jars (106 MB) are downloaded when they are first asked for")
    with ExitStack() as stack:
        broker = stack.enter_context(Broker(folder / "kafka"))
        rocketmq = stack.enter_context(RocketMQ(folder / "rocketmq"))
        admin.create(rocketmq.broker, [ORDERS], {user.name: ORDERS for user in USERS})
        settings = Settings.model_construct(
            bootstrap_servers=broker.bootstrap_servers, checkpoint=str(folder / "checkpoint"), master=None
        )
        create_topics(broker.bootstrap_servers, topics.specs(settings))
        screen.say(
            "phase", f"Kafka {broker.bootstrap_servers}, RocketMQ {rocketmq.endpoints}; starting job and watcher"
        )
        stack.enter_context(_watcher(settings, rocketmq, folder))
        jobs = stack.enter_context(ExitStack())
        job = _job(jobs, settings, folder, 1)
        play = LitePlay(screen)
        producer = stack.enter_context(official_client().LiteProducer(rocketmq.endpoints, ORDERS))
        _title(screen, BEFORE)
        for topic in BEFORE.topics:
            play.send(producer, topic)
        _wait(screen, lambda: job.is_ready, _READY_SECONDS, "the job is not ready")
        consumers = []
        for user in USERS:
            consumer = WildcardLiteConsumer(
                rocketmq.endpoints, user.name, ORDERS, settings.bootstrap_servers,
                listener=play.listener(user), attributes={}, threads=4,
            )  # fmt: skip
            consumers.append(stack.enter_context(consumer))
            consumer.subscribe(user.pattern)
            screen.say("subscribed", f"> {user.name} subscribes to {user.pattern}", "cyan")
        _settle(play)
        for scene in SCENES:
            _title(screen, scene)
            if scene.deleted is not None:
                play.deleted.add(scene.deleted)
                admin.delete(rocketmq.broker, ORDERS, scene.deleted)
                screen.say("deleted", f"> {scene.deleted} is deleted", "red", liteTopic=scene.deleted)
            if scene.is_without_job:
                job.kill()
                screen.say("phase", "the job is killed with SIGKILL")
            for topic in scene.topics:
                play.send(producer, topic)
                time.sleep(_PACE_SECONDS)
            if scene.is_without_job:
                screen.say("phase", "the job starts again on its checkpoint")
                job = _job(jobs, settings, folder, 2)
                _wait(screen, lambda: job.is_ready, _READY_SECONDS, "the job is not ready")  # noqa: B023 - of now
            _settle(play)
        return _judge(play, {user.name: consumer.lite_topics for user, consumer in zip(USERS, consumers, strict=True)})


def _title(screen: LiteScreen, scene: LiteScene) -> None:
    screen.say("scene", scene.title, "bold")


def _job(jobs: ExitStack, settings: Settings, folder: Path, number: int) -> Job:
    return jobs.enter_context(Job(settings, folder / f"job-{number}.log", folder / "spark"))


@contextmanager
def _watcher(settings: Settings, rocketmq: RocketMQ, folder: Path) -> Iterator[None]:
    """Run `reexpand watch-rocketmq`; it ends with this process in any case."""
    start = "import sys; from streaming.cli import main; sys.exit(main(prog_name='reexpand'))"
    command = [sys.executable, "-P", "-c", start, "watch-rocketmq", "--parent", ORDERS]
    command += ["--namesrv", rocketmq.name_server, "--bootstrap-servers", settings.bootstrap_servers]
    with (folder / "watcher.log").open("wb") as log:
        process = subprocess.Popen(
            guarded(command), stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=log, start_new_session=True
        )
    try:
        yield
    finally:
        process.communicate()  # the end of its standard input ends it


def _wait(screen: LiteScreen, until: Callable[[], bool], seconds: float, otherwise: str) -> None:
    deadline = time.monotonic() + seconds
    while not until():
        if time.monotonic() > deadline:
            raise DemoFailed(f"After {seconds:.0f} s {otherwise}.")
        time.sleep(_POLL_SECONDS)
    screen.say("phase", "ready")


def _settle(play: LitePlay) -> None:
    """Wait until all has come that must; the judgement says what has not."""
    deadline = time.monotonic() + _SETTLE_SECONDS
    while not play.expected() <= play.arrived.keys() and time.monotonic() < deadline:
        time.sleep(_POLL_SECONDS)


def _judge(play: LitePlay, found: dict[str, frozenset[str]]) -> int:
    """Compare what was received with the oracle, say the result, and return the exit code."""
    time.sleep(_CALM_SECONDS)
    expected, arrived = play.expected(), set(play.arrived)
    missing, surplus = sorted(expected - arrived), sorted(arrived - expected)
    held = {name: set(names) for name, names in found.items()} == play.held()
    for what, wrong in (("missing", missing), ("surplus", surplus)):
        for each in wrong:
            play.screen.say(what, f"{what}: {each.user} {each.topic} message {each.body}", "red", **each._asdict())
    took = sorted(play.arrived[each] - play.sent[each[1:]] for each in expected & arrived if each.body != "1")
    later = f"{statistics.median(took) * 1_000:.0f} ms" if took else "not measured"
    is_right = held and not missing and not surplus
    text = (
        f"{'passed' if is_right else 'FAILED'}: of {len(expected)} deliveries of the oracle {len(missing)} are missing,"
        f" {len(surplus)} are surplus, {play.repeated} came twice; subscriptions in RocketMQ are "
        f"{'those' if held else 'NOT those'} of the oracle; later messages took {later} at the median"
    )
    play.screen.say(
        "summary", text, "green" if is_right else "bold red", ok=is_right, expected=len(expected),
        missing=len(missing), surplus=len(surplus), repeated=play.repeated,
    )  # fmt: skip
    return 0 if is_right else 1
