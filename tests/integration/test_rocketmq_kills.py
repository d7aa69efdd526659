"""Kills of RocketMQ, watcher, job and consumer under load: every message of a matching topic comes, none of another.

`REEXPAND_ROCKETMQ_KILLS` is the number of kills of each. Printed with `-s`: seconds from each kill until all messages
sent until then have come.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING

import pytest

from streaming.adapters.rocketmq.remoting import Link, Refused, Unreachable
from tests.support.lite_world import LiteWorld, lite_world
from tests.support.processes import eventually
from tests.support.rocketmq import send

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.brokers import SharedBroker

pytestmark = [pytest.mark.long, pytest.mark.timeout(3_600)]

KILLS = int(os.environ.get("REEXPAND_ROCKETMQ_KILLS", "1"))
RIGHT_SECONDS = 420
"""RocketMQ looks for clients that ended without a word every two minutes, and waits for three."""

PAUSE_SECONDS = 0.05
MESSAGES_PER_BIRTH = 20


class Load:
    """Sends messages to old and new lite topics of two tenants, each until RocketMQ has taken it."""

    def __init__(self, address: str) -> None:
        self.sent: list[tuple[str, str]] = []
        self._address = address
        self._stop = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), daemon=True)

    def __enter__(self) -> list[tuple[str, str]]:
        self._thread.start()
        return self.sent

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    async def _run(self) -> None:
        link, number = Link(self._address), 0
        while not self._stop.is_set():
            number += 1
            tenant = ("acme", "globex")[number % 2]
            age = number // MESSAGES_PER_BIRTH
            message = f"eu__{tenant}__{age if number % 3 else age // 2}", str(number)
            while not self._stop.is_set():
                try:
                    await send(link, "orders", message[0], message[1].encode())
                except (Refused, Unreachable):
                    await asyncio.sleep(0.2)
                else:
                    self.sent.append(message)
                    break
            await asyncio.sleep(PAUSE_SECONDS)
        await link.close()


class PatternClient:
    """The consumer's process, and all that it and its successors have printed."""

    def __init__(self, world: LiteWorld, folder: Path) -> None:
        self._world, self._output = world, folder / "received.txt"
        self.start()

    def start(self) -> None:
        """Start it; what is printed is added."""
        world = self._world
        command = [sys.executable, "-m", "tests.support.lite_consumer", world.rocketmq.endpoints, "billing", "orders"]
        command += [world.streams.bootstrap_servers, *world.topics, "*__acme__**"]
        with self._output.open("ab") as output:
            self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=output)

    def kill(self) -> None:
        """End it as a crash would."""
        self._process.kill()
        self._process.communicate()

    def received(self) -> set[tuple[str, str]]:
        """Return all messages that came to any of them; the last line of a killed one may be cut off."""
        lines = self._output.read_text(encoding="utf-8").splitlines()
        return {(topic, body) for topic, _, body in (line.partition(" ") for line in lines) if body}


def test_every_message_comes_whatever_is_killed(broker: SharedBroker, tmp_path: Path) -> None:
    options = ("--client-timeout-ms", "20000")
    with lite_world(broker.bootstrap_servers, tmp_path, ["billing"], options) as world:
        client = PatternClient(world, tmp_path)

        def all_of(messages: list[tuple[str, str]]) -> bool:
            return {message for message in messages if "__acme__" in message[0]} <= client.received()

        def rocketmq() -> None:
            world.rocketmq.kill()
            world.rocketmq.start()

        def watcher() -> None:
            world.kill_watcher()
            world.start_watcher()

        def job() -> None:
            world.job.close()
            world.start_job()

        def consumer() -> None:
            client.kill()
            client.start()

        try:
            with Load(world.rocketmq.broker) as sent:
                assert eventually(lambda: len(sent) > 50 and all_of(sent[:50]), RIGHT_SECONDS, 0.2)
                for strike in [rocketmq, watcher, job, consumer] * KILLS:
                    time.sleep(3)
                    before = len(sent)
                    start = time.monotonic()
                    strike()
                    time.sleep(1)
                    until = sent[:]
                    assert eventually(lambda: all_of(until), RIGHT_SECONDS, 0.2), (  # noqa: B023 - of now
                        strike.__name__,
                        [each for each in until if "__acme__" in each[0] and each not in client.received()][:10],
                    )
                    took = time.monotonic() - start
                    print(f"{strike.__name__}: {took:.1f} s, with {len(until) - before} messages meanwhile", flush=True)  # noqa: T201
            assert eventually(lambda: all_of(sent), RIGHT_SECONDS, 0.2)
            assert {topic for topic, _ in client.received() if "__acme__" not in topic} == set()
        finally:
            client.kill()
