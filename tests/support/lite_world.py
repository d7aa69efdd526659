"""RocketMQ, Kafka, the watcher and the job, with consumers of patterns."""

import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from streaming.rocketmq import admin
from streaming.rocketmq.consumer import Topics, WildcardLiteConsumer
from streaming.rocketmq.remoting import Link
from streaming.rocketmq.server import RocketMQ
from tests.support.rocketmq import be_patient, consumer_offset, does, send
from tests.support.rocketmq_watcher import watch_command
from tests.support.running_job import Job, Streams
from tests.support.split_rocketmq import SplitRocketMQ


class Received:
    """Messages of one consumer: bodies by lite topic, with the time of each."""

    def __init__(self) -> None:
        self.bodies: dict[str, list[str]] = defaultdict(list)
        self.times: dict[tuple[str, str], float] = {}
        self._lock = threading.Lock()

    def __call__(self, message: Any) -> None:
        with self._lock:
            body = message.body.decode()
            self.bodies[message.lite_topic].append(body)
            self.times.setdefault((message.lite_topic, body), time.monotonic())

    def topics(self) -> set[str]:
        return set(self.bodies)


def consume_command(endpoints: str, streams: Streams, pattern: str) -> list[str]:
    """Return the command of a consumer of the group `billing` (see `lite_consumer`)."""
    return [
        *(sys.executable, "-m", "tests.support.lite_consumer", endpoints, "billing", "orders"),
        *(streams.bootstrap_servers, *topics_of(streams), pattern),
    ]


def topics_of(streams: Streams) -> Topics:
    """Return the Kafka topics as an argument of consumers."""
    settings = streams.settings
    return Topics(settings.subscription_events, settings.group_events, settings.updates)


class LiteWorld:
    """RocketMQ, Kafka, the watcher and the job."""

    def __init__(
        self, rocketmq: RocketMQ | SplitRocketMQ, streams: Streams, folder: Path, job_options: Sequence[str]
    ) -> None:
        self.rocketmq, self.streams = rocketmq, streams
        self.job: Job
        self.watcher: subprocess.Popen[bytes]
        self._folder, self._job_options = folder, job_options
        self.topics = topics_of(streams)

    def consumer(self, group: str, **options: Any) -> WildcardLiteConsumer:
        return WildcardLiteConsumer(
            self.rocketmq.endpoints, group, "orders", self.streams.bootstrap_servers, topics=self.topics,
            **{"attributes": {}, **options},
        )  # fmt: skip

    def does(self, act: Callable[[Link], Any]) -> None:
        does(self.rocketmq.broker, act)

    def send(self, *topics: str, body: str = "first") -> None:
        async def all_of_them(broker: Link) -> None:
            for topic in topics:
                await send(broker, "orders", topic, body.encode())

        self.does(all_of_them)

    def acknowledged(self, group: str, topic: str) -> int:
        """Return the number of messages of a lite topic that a group has acknowledged."""
        return does(self.rocketmq.broker, lambda broker: consumer_offset(broker, group, "orders", topic))

    def start_job(self) -> None:
        self.job = Job(self.streams, self._folder / "job.log", *self._job_options).wait_ready()

    def start_watcher(self) -> None:
        command = watch_command(self.rocketmq.name_server, self.streams)
        with (self._folder / "watcher.log").open("ab") as log:
            self.watcher = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=log)

    def kill_watcher(self) -> None:
        self.watcher.kill()
        self.watcher.wait()

    def close(self) -> None:
        self.kill_watcher()
        self.job.close()


@contextmanager
def lite_world(
    bootstrap_servers: str,
    folder: Path,
    groups: Iterable[str],
    job_options: Sequence[str] = (),
    servers: Callable[[Path], AbstractContextManager[RocketMQ | SplitRocketMQ]] = RocketMQ,
) -> Iterator[LiteWorld]:
    """Start everything, with these groups of the parent `orders`."""
    with ExitStack() as stack, pytest.MonkeyPatch.context() as patch:
        be_patient(patch)
        rocketmq = stack.enter_context(servers(folder / "rocketmq"))
        admin.create(rocketmq.broker, ["orders"], dict.fromkeys(groups, "orders"))
        world = LiteWorld(rocketmq, Streams(bootstrap_servers, folder / "checkpoint").create(1), folder, job_options)
        world.start_job()
        stack.callback(world.close)
        world.start_watcher()
        yield world
