"""Kills of RocketMQ, watcher, job and consumer under load: every message of a matching topic comes, none of another.

`REEXPAND_ROCKETMQ_KILLS` is the number of kills of each, `REEXPAND_ROCKETMQ_FAULTS` names what is killed, separated by
commas. Printed with `-s`, of each kill: seconds until it has been started again, seconds until all messages sent until
then and shortly after have come, and their number.
"""

import asyncio
import os
import subprocess
import threading
import time
from collections.abc import Iterable
from pathlib import Path

import pytest

from streaming.rocketmq.remoting import Link, Refused, Unreachable
from tests.support.brokers import SharedBroker
from tests.support.lite_world import LiteWorld, consume_command, lite_world
from tests.support.processes import eventually
from tests.support.rocketmq import send
from tests.support.split_rocketmq import SplitRocketMQ

pytestmark = [pytest.mark.long, pytest.mark.timeout(3_600)]

KILLS = int(os.environ.get("REEXPAND_ROCKETMQ_KILLS", "1"))
ALL_FAULTS = "proxy,broker,name server,watcher,job,consumer,consumer and proxy"
FAULTS = os.environ.get("REEXPAND_ROCKETMQ_FAULTS", ALL_FAULTS).split(",")
RIGHT_SECONDS = float(os.environ.get("REEXPAND_ROCKETMQ_RIGHT_SECONDS", "240"))
"""RocketMQ looks for clients that ended without a word every two minutes, and waits for three."""

SETTLE_SECONDS = 2

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
        number = 0
        async with Link(self._address) as link:
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


class PatternClient:
    """The consumer's process, and all that it and its successors have printed."""

    def __init__(self, world: LiteWorld, folder: Path) -> None:
        self._world, self._output = world, folder / "received.txt"
        self.start()

    def start(self) -> None:
        command = consume_command(self._world.rocketmq.endpoints, self._world.streams, "*__acme__**")
        with self._output.open("ab") as output:
            self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=output)

    def kill(self) -> None:
        self._process.kill()
        self._process.communicate()

    def received(self) -> set[tuple[str, str]]:
        """Return all messages that came to any of them; the last line of a killed one may be cut off."""
        lines = self._output.read_text(encoding="utf-8").splitlines()
        return {(topic, body) for topic, _, body in (line.partition(" ") for line in lines) if body}


def test_every_message_comes_whatever_is_killed(broker: SharedBroker, tmp_path: Path) -> None:
    options = ("--client-timeout-ms", "20000")
    with lite_world(broker.bootstrap_servers, tmp_path, ["billing"], options, SplitRocketMQ) as world:
        client = PatternClient(world, tmp_path)
        try:
            with Load(world.rocketmq.broker) as sent:
                assert eventually(lambda: len(sent) > 50 and not missing(sent[:50], client), RIGHT_SECONDS, 0.2)
                for fault in FAULTS * KILLS:
                    time.sleep(SETTLE_SECONDS)
                    _strike(fault, world, client, sent)
            assert eventually(lambda: not missing(sent, client), RIGHT_SECONDS, 0.2), missing(sent, client)[:10]
            assert {topic for topic, _ in client.received() if "__acme__" not in topic} == set()
        finally:
            client.kill()


def missing(messages: Iterable[tuple[str, str]], client: PatternClient) -> list[tuple[str, str]]:
    received = client.received()
    return [message for message in messages if "__acme__" in message[0] and message not in received]


def _traced(messages: Iterable[tuple[str, str]], world: LiteWorld, client: PatternClient) -> dict[str, list[str]]:
    """Return what Kafka has of the topics whose messages are missing: how far each of them came."""
    lost, settings = missing(messages, client), world.streams.settings
    records = [message for name in (settings.topic_events, settings.updates) for message in world.streams.read(name)]
    return {
        topic: [
            *(body for name, body in lost if name == topic),
            *(text for record in records if f'"{topic}"' in (text := (record.value() or b"").decode())),
        ]
        for topic in {topic for topic, _ in lost}
    }


def _strike(fault: str, world: LiteWorld, client: PatternClient, sent: list[tuple[str, str]]) -> None:
    assert isinstance(world.rocketmq, SplitRocketMQ)
    rocketmq = world.rocketmq
    before, start = len(sent), time.monotonic()
    if "consumer" in fault:
        client.kill()
    if fault == "watcher":
        world.kill_watcher()
        world.start_watcher()
    if fault == "job":
        world.job.close()
        world.start_job()
    for name, part in rocketmq.parts.items():
        if name in fault:
            part.kill()
            part.start()
    if "consumer" in fault:
        client.start()
    back = time.monotonic() - start
    assert eventually(lambda: len(sent) > before + 20, RIGHT_SECONDS, 0.2), f"nobody takes messages after {fault}"
    until = sent[:]
    assert eventually(lambda: not missing(until, client), RIGHT_SECONDS, 0.2), (fault, _traced(until, world, client))
    took = time.monotonic() - start
    print(f"FAULT {fault} back {back:.1f} right {took:.1f} sent {len(until) - before}", flush=True)  # noqa: T201
