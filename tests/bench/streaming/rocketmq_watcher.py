"""The watcher of RocketMQ over many lite topics: starts, memory, CPU when idle, births, ends, and an end of all.

Kafka, RocketMQ and the watcher share the cores of this machine. A start is measured from the launch of the process;
births and ends from before the request until a consumer of Kafka has the event.

make bench SUITE=rocketmq-watcher BENCH="[--topics 100000] [--idle 60] [--births 50] [--ends 5]"
"""

import asyncio
import json
import random
import subprocess
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Self

from confluent_kafka import Consumer

from streaming.rocketmq import admin
from streaming.rocketmq.brokers import ParentBroker
from streaming.rocketmq.remoting import Refused, RocketMQAccess
from streaming.rocketmq.server import RocketMQ
from tests.bench.command import broker_and_folder, parsed, quantiles, show
from tests.bench.streaming.cpu import cpu_seconds
from tests.support.processes import eventually, resident_bytes
from tests.support.rocketmq import send
from tests.support.rocketmq_watcher import watch_command
from tests.support.running_job import Streams
from tests.support.scene import repeated

WAIT_SECONDS = 600
SENT_AT_ONCE = 200
_BUSY = 2
"""Code of a broker that has no time now."""

EVENTS = "bench-topics"
SETTINGS = {
    "maxLmqConsumeQueueNum": "2000000",
    "waitTimeMillsInSendQueue": "5000",
    "minLiteTTl": "20000",
    "liteTtlCheckInterval": "5000",
}
"""Settings of the broker: room for the topics, patience on a busy machine, and ends soon after their time."""


def main() -> None:
    options = parsed(
        __doc__,
        topics=(100_000, "lite topics that are there at the first start"),
        idle=(60.0, "seconds for which CPU is measured"),
        births=(50, "new topics, one after the other"),
        ends=(5, "topics that are deleted, one after the other"),
    )
    java = ["-Xmx768m"]
    with broker_and_folder() as (broker, folder), RocketMQ(folder / "mq", settings=SETTINGS, java_options=java) as mq:
        admin.create(mq.broker, ["orders"], {})
        streams = Streams(broker.bootstrap_servers, folder / "checkpoint", EVENTS.removesuffix("-topics")).create(1)
        with Announced(streams).read() as announced:
            bench = WatcherBench(mq, streams, announced, folder / "watcher.log")
            bench.fill(options.topics)
            bench.first_start()
            bench.second_start(options.idle)
            bench.births(options.births)
            bench.ends(options.ends)
            bench.end_of_all()
    show({name: {"measured": figure} for name, figure in bench.figures.items()}, "watcher", as_json=options.json)


class Announced:
    """Announced events as a consumer reads them, with the time of the last event of each topic."""

    def __init__(self, streams: Streams) -> None:
        self.alive: set[str] = set()
        self.events = 0
        self.at: dict[str, float] = {}
        options = {"group.id": "bench", "auto.offset.reset": "earliest", "enable.auto.commit": False}
        self._consumer = Consumer({"bootstrap.servers": streams.bootstrap_servers, "fetch.wait.max.ms": 10, **options})
        self._consumer.subscribe([streams.settings.topic_events])

    @contextmanager
    def read(self) -> Iterator[Self]:
        with repeated(lambda _: self._poll(), 0):
            yield self
        self._consumer.close()

    def _poll(self) -> None:
        message = self._consumer.poll(0.1)
        if message is not None and message.error() is None:
            event = json.loads(message.value() or b"")
            self.at[event["liteTopic"]] = time.monotonic()
            (self.alive.add if event["event"] == "CREATED" else self.alive.discard)(event["liteTopic"])
            self.events += 1


class WatcherBench:
    """Measurements on one installation, in this order."""

    def __init__(self, rocketmq: RocketMQ, streams: Streams, announced: Announced, log: Path) -> None:
        self.figures: dict[str, float] = {}
        self._rocketmq, self._streams, self._announced, self._log = rocketmq, streams, announced, log
        self._watcher: subprocess.Popen[bytes]

    def fill(self, count: int) -> None:
        """Create the topics: one message each."""

        async def fill(broker: ParentBroker) -> None:
            for start in range(0, count, SENT_AT_ONCE):
                some = range(start, min(start + SENT_AT_ONCE, count))
                await asyncio.gather(*(self._fill_one(broker, number) for number in some))

        self.figures["topics"] = count
        self.figures["creating them, s"] = self._does(fill)

    async def _fill_one(self, broker: ParentBroker, number: int) -> None:
        while True:
            try:
                return await send(broker, "orders", f"topic__{number:07}", tags="t", queue=number % 4)
            except Refused as error:
                if error.code != _BUSY:
                    raise
                await asyncio.sleep(0.2)

    def first_start(self) -> None:
        """Everything is announced, by a watcher that is killed then."""
        self.figures["first start, s"] = self._start()
        self.figures["first start: RSS, MB"] = self._megabytes()
        self._kill()

    def second_start(self, idle_seconds: float) -> None:
        """Nothing is announced; then nothing happens for a while."""
        events = self._announced.events
        self.figures["restart, s"] = self._start()
        time.sleep(2)
        broker, used, calm = cpu_seconds(self._rocketmq.pid), cpu_seconds(self._watcher.pid), time.monotonic()
        time.sleep(idle_seconds)
        calm = time.monotonic() - calm
        self.figures["idle: watcher, % of a core"] = 100 * (cpu_seconds(self._watcher.pid) - used) / calm
        self.figures["idle: RocketMQ, % of a core"] = 100 * (cpu_seconds(self._rocketmq.pid) - broker) / calm
        self.figures["idle: RSS, MB"] = self._megabytes()
        self.figures["announced twice"] = self._announced.events - events

    def births(self, count: int) -> None:
        took = []

        async def bear(broker: ParentBroker) -> None:
            for number in range(count):
                name, start = f"new__{number}", time.monotonic()
                await send(broker, "orders", name, queue=number % 4)
                took.append(await self._seen(start, name))
                await asyncio.sleep(random.uniform(0.05, 0.3))

        self._does(bear)
        self._note("birth", quantiles([1_000 * seconds for seconds in took], "ms"))

    def ends(self, count: int) -> None:
        """Deletions by an administrator, one after the other: anywhere among the topics."""
        took = []

        async def end(broker: ParentBroker) -> None:
            for name in random.sample(sorted(self._announced.alive), count):
                start = time.monotonic()
                await admin.delete_lite_topic(broker, "orders", name)
                took.append(await self._seen(start, name))

        self._does(end)
        self._note("end by an administrator", quantiles(took, "s"))

    def end_of_all(self) -> None:
        """The time of all topics is over at once, as RocketMQ hears that it is one minute."""
        start = time.monotonic()

        async def end(broker: ParentBroker) -> None:
            await admin.create_parent(broker, "orders", minutes=1)
            while (await broker.parent_info())[0]:  # noqa: ASYNC110 - as RocketMQ tells nobody
                await asyncio.sleep(0.5)

        self.figures["end of all: in RocketMQ, s"] = self._does(end)
        assert eventually(lambda: not self._announced.alive, WAIT_SECONDS), len(self._announced.alive)
        self.figures["end of all: announced, s"] = time.monotonic() - start
        self.figures["end of all: RSS, MB"] = self._megabytes()
        self._kill()

    async def _seen(self, start: float, name: str) -> float:
        """Return the seconds from a time to the announcement of a topic."""
        while self._announced.at.get(name, 0) < start:
            assert time.monotonic() - start < WAIT_SECONDS, name
            await asyncio.sleep(0.002)
        return self._announced.at[name] - start

    def _does(self, act: Callable[[ParentBroker], Coroutine[None, None, None]]) -> float:
        """Let somebody do something on the broker; return the seconds that it took."""

        async def run() -> float:
            start = time.monotonic()
            async with ParentBroker(self._rocketmq.broker, "orders", RocketMQAccess()) as broker:
                await act(broker)
                return time.monotonic() - start

        return asyncio.run(run())

    def _start(self) -> float:
        """Start the watcher; return the seconds until it is ready."""
        command = watch_command(self._rocketmq.name_server, self._streams)
        start = time.monotonic()
        with self._log.open("wb") as log:
            self._watcher = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=log)
        ready = eventually(lambda: b"ready: " in self._log.read_bytes(), WAIT_SECONDS)
        took = time.monotonic() - start
        assert ready, self._log.read_text()
        assert eventually(lambda: len(self._announced.alive) == self.figures["topics"], 60), len(self._announced.alive)
        return took

    def _kill(self) -> None:
        self._watcher.kill()
        self._watcher.wait()

    def _megabytes(self) -> float:
        return resident_bytes(self._watcher.pid) / 1e6

    def _note(self, name: str, figures: dict[str, float]) -> None:
        self.figures |= {f"{name}: {figure}": value for figure, value in figures.items()}
