"""Patterns over lite topics of a real RocketMQ: the watcher, the job, and the official client with patterns."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
import time
from collections import defaultdict
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from streaming.adapters.rocketmq import admin
from streaming.adapters.rocketmq.remoting import Link
from streaming.consumers.rocketmq import Topics, WildcardLiteConsumer
from streaming.local.rocketmq import RocketMQ
from tests.support.processes import eventually
from tests.support.rocketmq import send
from tests.support.running_job import Streams, running

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.support.brokers import SharedBroker

pytestmark = pytest.mark.long

DELIVERED_SECONDS = 40
"""Well above what a sync of the client and a busy machine take."""


class Received:
    """Messages of one consumer: bodies by lite topic, and the time of each."""

    def __init__(self) -> None:
        self.bodies: dict[str, list[str]] = defaultdict(list)
        self.times: dict[tuple[str, str], float] = {}
        self._lock = threading.Lock()

    def __call__(self, message: Any) -> None:
        """Keep a message."""
        with self._lock:
            body = message.body.decode()
            self.bodies[message.lite_topic].append(body)
            self.times.setdefault((message.lite_topic, body), time.monotonic())

    def topics(self) -> set[str]:
        """The lite topics of which messages came."""
        return set(self.bodies)


class World:
    """RocketMQ, Kafka, the watcher and the job."""

    def __init__(self, rocketmq: RocketMQ, streams: Streams) -> None:
        self.rocketmq, self.streams = rocketmq, streams
        settings = streams.settings
        self._topics = Topics(settings.subscription_events, settings.group_events, settings.updates)

    def consumer(self, group: str, **options: Any) -> WildcardLiteConsumer:
        """A consumer of a group, which it declares."""
        return WildcardLiteConsumer(
            self.rocketmq.endpoints, group, "orders", self.streams.bootstrap_servers, topics=self._topics,
            **{"attributes": {}, **options},
        )  # fmt: skip

    def does(self, act: Callable[[Link], Any]) -> None:
        """Let somebody do something on the broker."""

        async def run() -> None:
            link = Link(self.rocketmq.broker)
            try:
                await act(link)
            finally:
                await link.close()

        asyncio.run(run())

    def send(self, *topics: str, body: str = "first") -> None:
        """Send a message to each of these lite topics."""

        async def all_of_them(broker: Link) -> None:
            for topic in topics:
                await send(broker, "orders", topic, body.encode())

        self.does(all_of_them)


@pytest.fixture(scope="module")
def world(broker: SharedBroker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("rocketmq")
    streams = Streams(broker.bootstrap_servers, folder / "checkpoint").create(1)
    groups = dict.fromkeys(("billing", "audit", "alone", "offsets", "loops", "many", "quick"), "orders")
    with ExitStack() as stack:
        rocketmq = stack.enter_context(RocketMQ(folder / "rocketmq"))
        admin.create(rocketmq.broker, ["orders"], groups)
        stack.enter_context(running(streams, folder / "job.log"))
        command = [str(Path(sys.executable).with_name("reexpand")), "watch-rocketmq", "--parent", "orders"]
        command += ["--bootstrap-servers", streams.bootstrap_servers, "--topic-events", streams.settings.topic_events]
        watcher = subprocess.Popen([*command, "--namesrv", rocketmq.name_server], stdout=subprocess.DEVNULL)
        stack.callback(watcher.wait)
        stack.callback(watcher.kill)
        yield World(rocketmq, streams)


def test_messages_of_all_matching_topics_and_of_no_other_are_delivered(world: World) -> None:
    """Those born before and after; by a second pattern, and no longer without it."""
    world.send("eu__acme__1", "us__acme__1", "eu__globex__1")
    received = Received()
    with world.consumer("billing", listener=received) as consumer:
        consumer.subscribe("*__acme__**")
        assert eventually(lambda: received.topics() == {"eu__acme__1", "us__acme__1"}, DELIVERED_SECONDS)
        world.send("eu__acme__2", "eu__globex__2")
        assert eventually(lambda: "eu__acme__2" in received.topics(), DELIVERED_SECONDS)
        consumer.subscribe("eu__globex__2")
        assert eventually(lambda: "eu__globex__2" in received.topics(), DELIVERED_SECONDS)
        consumer.unsubscribe("*__acme__**")
        assert eventually(lambda: consumer.lite_topics == {"eu__globex__2"}, DELIVERED_SECONDS)
        time.sleep(1)
        world.send("eu__acme__1", body="later")
        world.send("eu__globex__2", body="later")
        assert eventually(lambda: received.bodies["eu__globex__2"] == ["first", "later"], DELIVERED_SECONDS)
    assert received.bodies == {
        **{topic: ["first"] for topic in ("eu__acme__1", "us__acme__1", "eu__acme__2")},
        "eu__globex__2": ["first", "later"],
    }
