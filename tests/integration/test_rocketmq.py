"""A real RocketMQ beside Kafka: lite topics that are born and die, as the job learns of them."""

import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from streaming.rocketmq import admin
from streaming.rocketmq.remoting import Link
from streaming.rocketmq.server import RocketMQ
from tests.support.processes import eventually
from tests.support.rocketmq import does, send
from tests.support.rocketmq_watcher import announced, watch_command, watching
from tests.support.running_job import Streams

SEEN_SECONDS = 30
"""Some fifteen times as long as a death takes to be seen: the machine may be busy."""


@pytest.fixture(scope="module")
def rocketmq(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RocketMQ]:
    with RocketMQ(tmp_path_factory.mktemp("rocketmq")) as server:
        admin.create(server.broker, ["orders"], {"billing": "orders"})
        yield server


def test_births_and_deaths_are_announced(rocketmq: RocketMQ, streams: Streams) -> None:
    """Each once, births with tag and properties; SIGKILL of the watcher loses none, and announces none again."""

    async def at_first(broker: Link) -> None:
        for number, topic in enumerate(("eu__old", "eu__gone")):
            await send(broker, "orders", topic, tags="paid", properties={"region": "eu"}, queue=number)
            await send(broker, "orders", topic, queue=number)

    does(rocketmq.broker, at_first)
    described = {"tags": "paid", "properties": {"region": "eu"}}
    expected: list[dict[str, Any]] = [
        {"event": "CREATED", "liteTopic": topic, **described} for topic in ("eu__gone", "eu__old")
    ]
    with watching(rocketmq, streams):
        assert eventually(lambda: announced(streams) == expected, SEEN_SECONDS, 0.1), announced(streams)
        does(rocketmq.broker, lambda broker: send(broker, "orders", "us__new", queue=2))
        expected.append({"event": "CREATED", "liteTopic": "us__new"})
        assert eventually(lambda: announced(streams) == expected, SEEN_SECONDS, 0.1), announced(streams)
        does(rocketmq.broker, lambda broker: admin.delete_lite_topic(broker, "orders", "eu__gone"))
        expected.append({"event": "DELETED", "liteTopic": "eu__gone"})
        assert eventually(lambda: announced(streams) == expected, SEEN_SECONDS, 0.1), announced(streams)
    does(rocketmq.broker, lambda broker: send(broker, "orders", "us__late"))
    expected.append({"event": "CREATED", "liteTopic": "us__late"})
    for _ in range(2):  # the second one has nothing to announce
        with watching(rocketmq, streams, "--once") as process:
            assert process.wait(SEEN_SECONDS) == 0
        assert announced(streams) == expected
    with watching(rocketmq, streams) as process:
        process.terminate()
        assert process.wait(SEEN_SECONDS) in {0, -15}  # before or after its signals are set


def by_topic(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return events in order within each topic: those of several may be written in any order."""
    return sorted(events, key=lambda event: str(event["liteTopic"]))


@pytest.mark.long
def test_what_happens_in_its_absence_is_announced_by_the_next_start(rocketmq: RocketMQ, streams: Streams) -> None:
    """Ends once all brokers must have registered."""

    async def at_first(broker: Link) -> None:
        for topic in ("old", "gone"):
            await send(broker, "payments", topic)

    async def meanwhile(broker: Link) -> None:
        await admin.delete_lite_topic(broker, "payments", "old")
        await admin.delete_lite_topic(broker, "payments", "gone")
        await send(broker, "payments", "old", tags="again", queue=3)
        await send(broker, "payments", "late")

    admin.create(rocketmq.broker, ["payments"], {})
    does(rocketmq.broker, at_first)
    with watching(rocketmq, streams, "--once", parent="payments") as process:
        assert process.wait(SEEN_SECONDS) == 0
    expected: list[dict[str, Any]] = [{"event": "CREATED", "liteTopic": topic} for topic in ("gone", "old")]
    assert announced(streams) == expected
    does(rocketmq.broker, meanwhile)
    expected += [
        {"event": "DELETED", "liteTopic": "old"},
        {"event": "CREATED", "liteTopic": "late"},
        {"event": "CREATED", "liteTopic": "old", "tags": "again"},
        {"event": "DELETED", "liteTopic": "gone"},
    ]
    for _ in range(2):  # the second one has nothing to announce
        with watching(rocketmq, streams, "--once", parent="payments") as process:
            assert process.wait(3 * SEEN_SECONDS) == 0
        assert by_topic(announced(streams)) == by_topic(expected)


def test_a_parent_that_does_not_exist_is_told(rocketmq: RocketMQ, streams: Streams) -> None:
    command = watch_command(rocketmq.name_server, streams, parent="nothing")
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 1
    assert "The parent 'nothing' at" in ended.stderr
    assert "cannot be watched: code 17" in ended.stderr
    assert "Traceback" not in ended.stderr
