"""Patterns over lite topics of a real RocketMQ: the watcher, the job, and the official client with patterns."""

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from streaming.errors import LiteSubscriptionRefused
from streaming.rocketmq import admin
from streaming.rocketmq.consumer import OffsetOption, WildcardLiteConsumer
from tests.support.brokers import SharedBroker
from tests.support.lite_world import LiteWorld, Received, lite_world
from tests.support.processes import eventually

pytestmark = pytest.mark.long

DELIVERED_SECONDS = 120
"""Well above what a sync of the client and a busy machine take."""


@pytest.fixture(scope="module")
def world(broker: SharedBroker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiteWorld]:
    """All of it, with a group for each test."""
    groups = ("billing", "audit", "alone", "offsets", "loops", "closers")
    with lite_world(broker.bootstrap_servers, tmp_path_factory.mktemp("rocketmq"), groups) as found:
        yield found


@pytest.mark.main
def test_messages_of_all_matching_topics_and_of_no_other_are_delivered(world: LiteWorld) -> None:
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


def test_a_topic_of_an_exclusive_group_goes_to_the_newest_client_only(world: LiteWorld) -> None:
    """The evicted one really stops; when the newest one leaves, the other has the topic again."""
    attributes = {"lite.sub.model": "Exclusive"}
    first, second = Received(), Received()
    world.send("solo__1", body="one")
    with world.consumer("alone", listener=first, attributes=attributes) as holder:
        holder.subscribe("solo__*")
        assert eventually(lambda: first.bodies["solo__1"] == ["one"], DELIVERED_SECONDS)
        with world.consumer("alone", listener=second, attributes=attributes, sync_seconds=2) as newest:
            newest.subscribe("solo__*")
            assert eventually(lambda: newest.lite_topics == {"solo__1"}, DELIVERED_SECONDS)
            assert eventually(lambda: holder.lite_topics == set(), DELIVERED_SECONDS)
            for number in range(24):  # for longer than the sync of the official client
                world.send("solo__1", body=f"two {number}")
                time.sleep(0.5)
            expected = {f"two {number}" for number in range(24)}
            assert eventually(lambda: set(second.bodies["solo__1"]) == expected, DELIVERED_SECONDS)
            assert holder.lite_topics == set()
        assert eventually(lambda: holder.lite_topics == {"solo__1"}, DELIVERED_SECONDS)
        world.send("solo__1", body="three")
        assert eventually(lambda: first.bodies["solo__1"] == ["one", "three"], DELIVERED_SECONDS)


def test_offset_options_say_where_to_begin(world: LiteWorld) -> None:
    """In topics that are there; a later one is read from its first message."""
    world.send("offset__old", body="old")
    received = Received()
    with world.consumer("offsets", listener=received) as consumer:
        time.sleep(1)  # the watcher and the job have seen it
        consumer.subscribe("offset__*", offset=OffsetOption.max())
        assert eventually(lambda: consumer.lite_topics == {"offset__old"}, DELIVERED_SECONDS)
        time.sleep(2)
        world.send("offset__old", "offset__new", body="new")
        assert eventually(lambda: received.topics() == {"offset__old", "offset__new"}, DELIVERED_SECONDS)
        assert received.bodies == {"offset__old": ["new"], "offset__new": ["new"]}


def test_messages_come_by_iteration_and_again_where_the_loop_fails(world: LiteWorld) -> None:
    world.send("loop__1", "loop__2", "loop__3")
    with world.consumer("loops") as consumer:
        consumer.subscribe("loop__*")
        failed = []

        def work() -> None:
            for message in consumer:
                failed.append(message.lite_topic)
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            work()
        found = [message.lite_topic for message in consumer.messages(timeout=DELIVERED_SECONDS / 2)]
    assert sorted(found) == ["loop__1", "loop__2", "loop__3"]
    assert failed[0] in found


def test_a_message_in_whose_turn_its_consumer_is_closed_comes_again(world: LiteWorld) -> None:
    """The official client waits for it when it ends, and the loop has it in hand until then."""
    world.send("closed__1")
    found = []
    for _ in range(2):
        with world.consumer("closers") as consumer:
            consumer.subscribe("closed__*")
            for message in consumer:
                found.append(message.lite_topic)
                consumer.close()
    assert found == ["closed__1", "closed__1"]


def test_a_topic_that_ends_and_is_born_again_is_received_again(world: LiteWorld) -> None:
    """RocketMQ drops the subscriptions of a dead topic without a word."""
    received = Received()
    with world.consumer("audit", listener=received) as consumer:
        consumer.subscribe("again__*")
        world.send("again__1", body="one")
        assert eventually(lambda: received.bodies["again__1"] == ["one"], DELIVERED_SECONDS)
        # A later acknowledgement would outlast the topic, and RocketMQ would skip the first message of the next one.
        assert eventually(lambda: world.acknowledged("audit", "again__1") == 1, DELIVERED_SECONDS)
        world.does(lambda broker: admin.delete_lite_topic(broker, "orders", "again__1"))
        assert eventually(lambda: consumer.lite_topics == set(), DELIVERED_SECONDS)
        world.send("again__1", body="two")
        assert eventually(lambda: received.bodies["again__1"] == ["one", "two"], DELIVERED_SECONDS)


def test_what_does_not_fit_is_told(world: LiteWorld) -> None:
    """A group without its parent, and a proxy that is not there, at the start."""
    consumer = world.consumer("stranger")
    with pytest.raises(LiteSubscriptionRefused, match=r"'stranger' on 'orders'.*lite\.bind\.topic=orders"):
        consumer.start()
    consumer.close()
    absent = WildcardLiteConsumer("127.0.0.1:1", "billing", "orders", world.streams.bootstrap_servers)
    with pytest.raises(LiteSubscriptionRefused, match=r"Check that the proxy at 127\.0\.0\.1:1 answers"):
        absent.start()
    absent.close()


def test_the_demo_on_rocketmq(tmp_path: Path) -> None:
    """A passed check, exit code 0, and nothing but logs in its folder."""
    command = [str(Path(sys.executable).with_name("reexpand")), "demo", "--rocketmq", "--json", "--home", str(tmp_path)]
    demo = subprocess.run(command, capture_output=True, text=True, timeout=500, check=False)
    assert demo.returncode == 0, demo.stdout + demo.stderr
    said = [json.loads(line) for line in demo.stdout.splitlines()]
    assert said[-1]["type"] == "summary"
    assert said[-1]["ok"]
    assert said[-1]["expected"] == sum(line["type"] == "received" for line in said)
    logs = {"broker.log", "rocketmq.log", "watcher.log", "job-1.log", "job-2.log"}
    assert {path.name for path in (tmp_path / "demo").rglob("*")} == logs
