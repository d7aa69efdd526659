"""Lite topics of a real RocketMQ at consumers of patterns: the first message of a new topic, later ones, and a burst.

The job's own latency is that of the same topics in the same run: from the record of their birth to the update at the
consumer. Later messages go to the official client as well, which subscribes to the same topics by name in a group of
its own.

make bench SUITE=rocketmq BENCH="[--topics 60] [--later 200] [--burst 500]"
"""

import asyncio
import logging
import random
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from rocketmq import ClientConfiguration, ConsumeResult, Credentials, LitePushConsumer, MessageListener

from streaming.client import Change, SubscriptionClient
from streaming.rocketmq import admin
from streaming.rocketmq.remoting import Link
from tests.bench.command import broker_and_folder, parsed, quantiles, show
from tests.support.lite_world import LiteWorld, Received, lite_world
from tests.support.processes import eventually
from tests.support.rocketmq import send

WAIT_SECONDS = 60
_JOB = "job: birth to update"
_BY_NAME = "later messages, official client by name"
BURST_ATTRIBUTE = {"lite.sub.client.max.event.cnt": "10000"}


def main() -> None:
    options = parsed(
        __doc__,
        topics=(60, "new topics, one after the other"),
        later=(200, "further messages of topics that are there"),
        burst=(500, "new topics at once"),
    )
    logging.basicConfig(level=logging.WARNING)
    with (
        broker_and_folder() as (broker, folder),
        lite_world(broker.bootstrap_servers, folder, ["lone", "plain"]) as world,
    ):
        group = {"lite.bind.topic": "orders", **BURST_ATTRIBUTE}
        world.does(lambda link: admin.create_group(link, "burst", group))
        bench = LiteBench(world)
        bench.lone(options.topics, options.later)
        bench.burst(options.burst)
    rows = {name: {**quantiles(values, "ms"), "number": len(values)} for name, values in bench.figures.items()}
    for name, reference, shown in (
        ("first message at the listener", _JOB, "first message, as a multiple of the job's own"),
        ("later messages", _BY_NAME, "later messages, as a multiple of the official client's"),
    ):
        rows[shown] = {"p50 ms": rows[name]["p50 ms"] / rows[reference]["p50 ms"]}
    show(rows, "milliseconds", as_json=options.json)


def _took(received: Received, sent: Mapping[tuple[str, str], float]) -> dict[tuple[str, str], float]:
    """Return the milliseconds that each message took; `sent` has times since the epoch."""
    offset = time.time() - time.monotonic()
    return {message: (at + offset - sent[message]) * 1_000 for message, at in received.times.items()}


class LiteBench:
    """Measurements on one installation, in milliseconds by name."""

    def __init__(self, world: LiteWorld) -> None:
        self.figures: dict[str, list[float]] = {}
        self._world = world
        self._jobs: dict[str, float] = {}
        self._births: dict[str, float] = {}

    def lone(self, topics: int, later: int) -> None:
        """New topics one after the other, and further messages of them."""
        received, sent, now = Received(), dict[tuple[str, str], float](), time.time
        updates = SubscriptionClient(
            self._world.streams.bootstrap_servers, self._world.topics.updates, on_change=self._on_change
        )
        with updates, self._world.consumer("lone", listener=received) as consumer:
            consumer.subscribe("lone__*")
            names = [f"lone__{number}" for number in range(-10, topics)]  # the first ones warm everything up
            for name in names:
                sent[name, "first"] = now()
                self._world.send(name)
                eventually(lambda: (name, "first") in received.times, WAIT_SECONDS, 0.002)  # noqa: B023 - of now
                time.sleep(random.uniform(0.3, 0.6))
            with self._by_name(names) as plain:
                asyncio.run(self._later(names, later, sent))
                eventually(lambda: len(received.times) == len(plain.times) == len(sent), WAIT_SECONDS)
        took, official = _took(received, sent), _took(plain, sent)
        measured = names[10:]
        self.figures["birth at the watcher"] = [(self._births[name] - sent[name, "first"]) * 1_000 for name in measured]
        self.figures[_JOB] = [self._jobs[name] * 1_000 for name in measured]
        self.figures["first message at the listener"] = [took[name, "first"] for name in measured]
        self.figures["later messages"] = [ms for (_, body), ms in took.items() if body != "first"]
        self.figures[_BY_NAME] = [ms for (_, body), ms in official.items() if body != "first"]

    @contextmanager
    def _by_name(self, names: list[str]) -> Iterator[Received]:
        """Let the official client alone receive these topics; its first sync, after 30 s, would lose their names."""
        received = Received()

        class Listener(MessageListener):  # type: ignore[misc] # untyped
            def consume(self, message: Any) -> Any:
                received(message)
                return ConsumeResult.SUCCESS

        configuration = ClientConfiguration(self._world.rocketmq.endpoints, Credentials())
        consumer = LitePushConsumer(configuration, "plain", "orders", Listener())
        consumer.startup()
        try:
            for name in names:
                consumer.subscribe_lite(name)
            eventually(lambda: received.topics() == set(names), WAIT_SECONDS)
            yield received
        finally:
            consumer.shutdown()

    async def _later(self, names: list[str], count: int, sent: dict[tuple[str, str], float]) -> None:
        async with Link(self._world.rocketmq.broker) as link:
            for number in range(count):
                message = random.choice(names), str(number)
                sent[message] = time.time()
                await send(link, "orders", message[0], message[1].encode())
                await asyncio.sleep(0.02)

    def burst(self, count: int) -> None:
        received = Received()
        with self._world.consumer("burst", listener=received) as consumer:
            consumer.subscribe("burst__*")
            self._world.send("burst__warm")
            eventually(lambda: "burst__warm" in received.topics(), WAIT_SECONDS)
            start = time.monotonic()
            asyncio.run(self._all_at_once(count))
            sending = time.monotonic() - start
            eventually(lambda: len(received.topics()) == count + 1, WAIT_SECONDS)
        took = [(at - start) * 1_000 for (name, _), at in received.times.items() if name != "burst__warm"]
        self.figures[f"{count} new topics at once: sending"] = [sending * 1_000]
        self.figures[f"{count} new topics at once: each delivered"] = took

    async def _all_at_once(self, count: int) -> None:
        async with Link(self._world.rocketmq.broker) as link:
            await asyncio.gather(*(send(link, "orders", f"burst__{number}", b"first") for number in range(count)))

    def _on_change(self, change: Change) -> None:
        born = change.source["timestamp"] / 1_000
        self._births[change.row.lite_topic] = born
        self._jobs[change.row.lite_topic] = time.time() - born
