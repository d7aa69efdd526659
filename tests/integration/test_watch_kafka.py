"""`reexpand watch-kafka` on a real broker: what it announces, and what that is worth to who waits for a new topic."""

import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import closing
from functools import partial
from itertools import islice
from pathlib import Path
from statistics import median
from typing import Self
from uuid import uuid4

import pytest
from kafka import KafkaConsumer

from streaming.client import SubscriptionClient
from streaming.local.broker import Broker
from tests.support.brokers import SharedBroker
from tests.support.processes import eventually
from tests.support.running_job import SETTLE_SECONDS, Streams, running
from tests.support.scene import Scene
from tests.support.watched_kafka import WATCHED_SECONDS, Topics, Watcher

NEW_TOPICS = 7
PLAIN_SECONDS = 5


class PlainConsumer(threading.Thread):
    """A consumer that subscribes to a pattern, with the settings that it has by default."""

    def __init__(self, bootstrap_servers: str, pattern: str) -> None:
        super().__init__(daemon=True)
        self.received: list[tuple[str, bytes]] = []
        self._ended = threading.Event()
        self._consumer = KafkaConsumer(
            bootstrap_servers=bootstrap_servers, group_id=uuid4().hex, auto_offset_reset="earliest"
        )
        self._consumer.subscribe(pattern=pattern)

    def run(self) -> None:
        while not self._ended.is_set():
            for records in self._consumer.poll(100).values():
                self.received += [(record.topic, record.value) for record in records]
        self._consumer.close()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self.join(60)


def wildcard_group(streams: Streams, group: str, parent: str, pattern: str) -> None:
    """A client `c` of the group subscribes to the pattern."""
    scene = Scene(streams)
    scene.group(group, parent)
    scene.asks("c", group, parent, pattern)
    scene.sent()


@pytest.mark.long
def test_a_wildcard_subscriber_hears_of_a_new_topic_long_before_a_consumer_of_a_pattern(
    streams: Streams, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    """The figures in streaming/adapters/README.md are those of this test."""
    topics = Topics(streams.bootstrap_servers)
    family = f"w{streams.prefix}__eu"
    old = f"{family}__old"
    topics.create(old)
    topics.write(old, b"first")
    wildcard_group(streams, "watched", "kafka", f"{family}__*")
    wildcard_group(streams, "registered", "orders", "*__created")
    watching = Watcher(
        streams.bootstrap_servers,
        streams.settings.topic_events,
        tmp_path,
        *("--dialect", "lite", "--include", f"{family}__**"),
    )
    with (
        running(streams, tmp_path / "job.log"),
        watching as watcher,
        PlainConsumer(streams.bootstrap_servers, f"^{family}__.*") as plain,
        SubscriptionClient(streams.bootstrap_servers, streams.settings.updates) as client,
    ):

        def has(name: str, parent: str = "kafka", group: str = "watched") -> bool:
            return name in client.topics(parent, group, "c")

        assert eventually(lambda: has(old), SETTLE_SECONDS)
        assert eventually(lambda: plain.received == [(old, b"first")], 60)

        seconds = []
        first_born = time.monotonic()
        for number in range(NEW_TOPICS):
            name = f"{family}__new{number}"
            born = time.monotonic()
            topics.create(name)
            assert eventually(partial(has, name), WATCHED_SECONDS), watcher.said()
            seconds.append(time.monotonic() - born)
            topics.write(name, b"new")
        time.sleep(max(0, first_born + PLAIN_SECONDS - time.monotonic()))
        topics.write(old, b"last")
        assert eventually(lambda: (old, b"last") in plain.received)
        assert {topic for topic, _ in plain.received} == {old}

        topics.delete(old)
        assert eventually(lambda: not has(old), WATCHED_SECONDS)
        example = [sys.executable, "-m", "streaming.examples.on_register", "--parent", "orders", "eu__created"]
        example += ["--bootstrap-servers", streams.bootstrap_servers, "--topic-events", streams.settings.topic_events]
        subprocess.run(example, check=True, timeout=30, cwd=Path(__file__).parents[2])
        assert eventually(partial(has, "eu__created", "orders", "registered"), WATCHED_SECONDS)

        assert watcher.stop(signal.SIGTERM) == 0
    assert streams.dead_letters() == []
    record_property("seconds to ADD", [round(each, 2) for each in seconds])
    print(f"creation to ADD: median {median(seconds):.2f} s, {min(seconds):.2f} to {max(seconds):.2f} s")  # noqa: T201
    assert median(seconds) < PLAIN_SECONDS


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_what_happened_while_it_was_down_is_announced_at_the_next_start(
    broker: SharedBroker, tmp_path: Path, number: signal.Signals
) -> None:
    """A topic that was made anew as well, and nothing twice."""
    prefix, topics = f"w{uuid4().hex[:8]}", Topics(broker.bootstrap_servers)

    def watcher(*options: str) -> Watcher:
        return Watcher(
            broker.bootstrap_servers,
            f"{prefix}-events",
            tmp_path,
            *("--include", f"{prefix}.>", "--interval", "0.1"),
            *options,
        )

    topics.create(f"{prefix}.a", f"{prefix}.b", f"{prefix}.c", f"other-{prefix}.x")
    with watcher() as first:
        assert first.announces(("CREATED", "a"), ("CREATED", "b"), ("CREATED", "c"))
        code = first.stop(number)
        assert code == (0 if number is not signal.SIGKILL else -number)
    topics.delete(f"{prefix}.b", f"{prefix}.c")
    topics.create(f"{prefix}.c", f"{prefix}.d")
    difference = (("CREATED", "d"), ("DELETED", "b"), ("DELETED", "c"), ("CREATED", "c"))
    with watcher("--once") as second:
        assert second.process.wait(60) == 0
        assert second.announced() == list(difference)
    with watcher("--once") as third:
        assert third.process.wait(60) == 0
        assert third.announced() == []
    options = {"bootstrap_servers": broker.bootstrap_servers, "auto_offset_reset": "earliest"}
    with closing(KafkaConsumer(f"{prefix}-events", **options)) as other:
        events = [json.loads(record.value) for record in islice(other, 3 + len(difference))]
    assert [(event["event"], event["liteTopic"][-1]) for event in events[3:]] == list(difference)


def test_every_legal_name_is_announced_and_internal_topics_are_not(broker: SharedBroker, tmp_path: Path) -> None:
    """Kafka says which topics are internal; a name that begins with `__` is not enough."""
    prefix, topics = f"w{uuid4().hex[:8]}", Topics(broker.bootstrap_servers)
    names = [f"{prefix}..created", f"{prefix}.", f"__{prefix}-heartbeat"]
    topics.create(*names)
    consumer = KafkaConsumer(names[1], bootstrap_servers=broker.bootstrap_servers, group_id=prefix)
    consumer.poll(5_000)  # so that Kafka has its topic of offsets
    consumer.close()
    patterns = [word for each in (f"{prefix}*", f"__{prefix}*", "__consumer*") for word in ("--include", each)]
    options = ("--once", "--dialect", "wamp", *patterns)
    with Watcher(broker.bootstrap_servers, f"{prefix}-events", tmp_path, *options) as watcher:
        assert watcher.process.wait(60) == 0
        assert sorted(event["liteTopic"] for event in watcher.events()) == sorted(names)


@pytest.mark.long
def test_a_broker_that_freezes_or_crashes_deletes_nothing(own_broker: Callable[..., Broker], tmp_path: Path) -> None:
    """And what is created afterwards is announced."""
    broker = own_broker()
    topics = Topics(broker.bootstrap_servers)
    topics.create("t.a", "t.b")
    with Watcher(broker.bootstrap_servers, "lite-topic-events", tmp_path, "--interval", "0.1") as watcher:
        announced = [("CREATED", "a"), ("CREATED", "b")]
        assert watcher.announces(*announced)
        for interrupt, go_on, name in ((broker.pause, broker.resume, "c"), (broker.kill, broker.start, "d")):
            interrupt()
            assert eventually(
                lambda: watcher.said().count("does not answer:") > watcher.said().count("answers again"), 20
            )
            go_on()
            assert eventually(
                lambda: watcher.said().count("does not answer:") == watcher.said().count("answers again"), 30
            )
            topics.create(f"t.{name}")
            announced.append(("CREATED", name))
            assert watcher.announces(*announced, seconds=20)
        topics.delete("t.a")
        assert watcher.announces(*announced, ("DELETED", "a"))
        assert watcher.stop(signal.SIGINT) == 0
