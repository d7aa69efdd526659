"""The broker hook that copies lite subscriptions into the job's input, built as its page says, in a real RocketMQ."""

import asyncio
import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from streaming.local import jars
from streaming.records.model import Action
from streaming.rocketmq import admin
from streaming.rocketmq.consumer import PATTERN_CLIENT, official_client
from streaming.rocketmq.remoting import Link
from streaming.rocketmq.requests import LiteRequest
from streaming.rocketmq.server import RocketMQ
from tests.support.processes import eventually
from tests.support.running_job import Streams

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(shutil.which("javac") is None, reason="needs a development kit of Java"),
]

SOURCES = Path(__file__).parents[2] / "deploy" / "rocketmq"
KAFKA_CLIENT = "kafka-clients-*.jar"


def built(folder: Path, libraries: list[Path]) -> Path:
    """Build the hook by the commands of its page."""
    shutil.copytree(SOURCES, folder / "deploy" / "rocketmq")
    (folder / "lib").mkdir()
    for library in libraries:
        (folder / "lib" / library.name).symlink_to(library)
    page = (SOURCES / "README.md").read_text(encoding="utf-8")
    (commands,) = re.findall(r"^```sh\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    environment = {**os.environ, "LIB": str(folder / "lib")}
    subprocess.run(["bash", "-euc", commands], cwd=folder / "deploy" / "rocketmq", env=environment, check=True)
    return folder / "build" / "reexpand-mirror.jar"


LITE_SUBSCRIPTION_CTL = 200071


def ask(broker: str, *entries: dict[str, Any]) -> list[int]:
    """Send each entry in a request of its own, as any client might; return the codes of the answers."""

    async def run() -> list[int]:
        async with Link(broker) as link:
            bodies = [json.dumps({"subscriptionSet": [entry]}).encode() for entry in entries]
            return [(await link.ask(LITE_SUBSCRIPTION_CTL, {}, body)).code for body in bodies]

    return asyncio.run(run())


def test_subscriptions_of_an_unchanged_client_come_to_the_job(streams: Streams, tmp_path: Path) -> None:
    """In order, each under its group; refused ones do not."""
    (client,) = [jar for jar in jars.LOCAL.jars("kafka") if jar.match(KAFKA_CLIENT)]
    hook = built(tmp_path, [*jars.rocketmq(), client])
    options = {
        "bootstrap.servers": streams.bootstrap_servers,
        "topic": streams.settings.subscription_events,
        "exclude.groups": "patterns, others",
    }
    java_options = [f"-Dreexpand.mirror.{name}={value}" for name, value in options.items()]
    official = official_client()
    with RocketMQ(tmp_path / "rocketmq", plugins=[hook, client], java_options=java_options) as server:
        admin.create(server.broker, ["orders"], dict.fromkeys(["billing", "patterns"], "orders"))
        consumer = official.OfficialConsumer(
            server.endpoints, "billing", "orders", lambda _: official.SUCCESS,
            credentials=("", ""), namespace="", tls=False, threads=1,
        )  # fmt: skip
        consumer.start()
        consumer.send(LiteRequest(Action.PARTIAL_ADD, ("eu__1", "eu__2"), ("POLICY", 1)), ())
        consumer.send(LiteRequest(Action.PARTIAL_REMOVE, ("eu__1",)), ())
        consumer.send(LiteRequest(Action.COMPLETE_ADD, ("eu__2",)), ())

        def mirrored() -> list[dict[str, Any]]:
            return [json.loads(m.value() or b"") for m in streams.read(streams.settings.subscription_events)]

        assert eventually(lambda: len(mirrored()) == 3, 60, 0.2), (mirrored(), server.log_file.read_text()[-2000:])
        consumer.stop()
        entry = {"clientId": "c", "group": "billing", "topic": "orders"}
        codes = ask(
            server.broker,
            {**entry, "action": "COMPLETE_REMOVE", "topic": ""},
            {**entry, "action": "COMPLETE_REMOVE", "topic": None},
            {**entry, "action": "COMPLETE_ADD", "group": "patterns", "liteTopicSet": ["eu__1"]},
            {**entry, "action": "COMPLETE_ADD", "clientId": f"c{PATTERN_CLIENT}", "liteTopicSet": ["eu__1"]},
            {**entry, "action": "complete_add"},
            {**entry, "action": "PARTIAL_ADD", "liteTopicSet": ["eu__9"], "version": 1},
        )
        assert codes == [0] * len(codes)
        assert eventually(lambda: any("eu__9" in each["liteTopicSet"] for each in mirrored()), 60, 0.2), mirrored()
        assert [each for each in mirrored() if each["clientId"] in ("c", f"c{PATTERN_CLIENT}")] == [
            {**entry, "action": "COMPLETE_ADD", "liteTopicSet": []},
            {**entry, "action": "PARTIAL_ADD", "liteTopicSet": ["eu__9"]},
        ]
    common = {"clientId": consumer.client_id, "group": "billing", "topic": "orders"}
    found = [{**each, "liteTopicSet": sorted(each["liteTopicSet"])} for each in mirrored()[:3]]
    assert found == [
        {
            **common,
            "action": "PARTIAL_ADD",
            "liteTopicSet": ["eu__1", "eu__2"],
            "offsetOption": {"type": "POLICY", "value": 1},
        },
        {**common, "action": "PARTIAL_REMOVE", "liteTopicSet": ["eu__1"]},
        {**common, "action": "COMPLETE_ADD", "liteTopicSet": ["eu__2"]},
    ]
    keys = {message.key() for message in streams.read(streams.settings.subscription_events)}
    assert keys == {b"billing"}
