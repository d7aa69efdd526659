"""Short methods for the events of a test."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any

from streaming.oracle import Effective
from streaming.records.model import Stream
from tests.support import events
from tests.support.processes import eventually
from tests.support.running_job import POLL_SECONDS, SETTLE_SECONDS, Feed, Job, Streams

LEASE_MS = 1_800_000
"""Lease of the clients in `limits_and_times`, in milliseconds."""


class Scene:
    """Sender of a test's events to the job's inputs, at the current time unless `timestamp` is set."""

    def __init__(self, streams: Streams) -> None:
        self.timestamp = 0
        self._streams = streams
        self._feed: Feed = streams.producer()

    def group(self, name: str, parent: str, **attributes: str) -> None:
        """Send the attributes of a wildcard group."""
        self.send(Stream.GROUPS, events.wildcard(group=name, parent=parent, **attributes), name)

    def asks(self, client: str, group: str, parent: str, *entries: str, **fields: Any) -> None:
        """Send a request, by default COMPLETE_ADD."""
        request = events.replace(*entries, client=client, group=group, parent=parent, **fields)
        self.send(Stream.SUBSCRIPTIONS, request, group)

    def born(self, parent: str, *topics: str, **fields: Any) -> None:
        for topic in topics:
            self.send(Stream.TOPICS, events.created(topic, parent, **fields), parent)

    def gone(self, parent: str, *topics: str) -> None:
        for topic in topics:
            self.send(Stream.TOPICS, events.deleted(topic, parent), parent)

    def tick(self, time: int) -> None:
        """Send a tick with this time, in milliseconds."""
        self.send(Stream.CLOCK, events.tick(time), "tick")

    def send(self, stream: Stream, value: bytes | dict[str, Any], key: str) -> None:
        self._feed.send(stream, value, key, timestamp=self.timestamp)

    def sent(self) -> None:
        self._feed.flush()

    def settles(self, job: Job) -> None:
        """Wait until the job has read all records, and the records that it wrote to itself as a result."""
        self.sent()
        # The first success decides: the next tick makes the inputs longer again.
        looks = [False]

        def is_over() -> bool:
            looks.append(self._streams.are_read())
            return looks[-1] or job.process.poll() is not None

        eventually(is_over, SETTLE_SECONDS, POLL_SECONDS)
        assert looks[-1], job.said()

    def leads_to(self, wanted: set[Effective], parents: set[str]) -> None:
        self.sent()
        self._streams.becomes(wanted, parents)


def ask_in_every_dialect(scene: Scene, parent: str) -> None:
    """Send a request of one client per dialect, in the group `g`."""
    scene.asks("lite", "g", parent, "orders__*__created")
    scene.asks("mqtt", "g", parent, "sensors/+/temp", "$share/workers/sensors/#", dialect="mqtt")
    scene.asks("nats", "g", parent, "fleet.>", dialect="nats")
    scene.asks("wamp", "g", parent, "com.app", dialect="wamp", policy="prefix")
    scene.asks("wamp", "g", parent, "com..x", dialect="wamp", policy="wildcard", action="PARTIAL_ADD")


def ask_with_selectors(scene: Scene) -> None:
    """Send two topics of the parent `s`, and two groups with a client whose selector accepts one of the topics."""
    scene.group("tagged", "s")
    scene.group("priced", "s")
    scene.born("s", "red__1", tags="red", properties={"price": "5"})
    scene.born("s", "blue__1", tags="blue", properties={"price": "50"})
    scene.asks("c", "tagged", "s", "*__*", selector={"type": "TAG", "expression": "red || green"})
    scene.asks("c", "priced", "s", "**", selector={"type": "SQL92", "expression": "price > 10"})


def limits_and_times(scene: Scene) -> set[Effective]:
    """Send events of an exclusive group, a quota, a TTL and an expired lease; return the rows that hold afterwards."""
    scene.group("only-g", "only", model="Exclusive", reset="true")
    scene.group("few", "limited", quota="2")
    scene.born("only", "a__1", "b__1", "b__2")
    scene.born("limited", "1", "2", "3")
    scene.asks("first", "only-g", "only", "**")
    scene.asks("second", "only-g", "only", "b__*")
    scene.asks("some", "few", "limited", "1", "2", "9")
    scene.gone("limited", "1")
    scene.born("limited", "9")
    scene.group("timed", "leased")
    scene.born("leased", "stays")
    scene.born("leased", "passes", ttlMs=1_000)
    scene.asks("keeps", "timed", "leased", "**")
    scene.timestamp = int(time.time() * 1_000) - 2 * LEASE_MS
    scene.asks("silent", "timed", "leased", "**")
    scene.timestamp = 0
    scene.sent()
    return {
        Effective("only", "only-g", "first", "a__1"),
        Effective("only", "only-g", "second", "b__1"),
        Effective("only", "only-g", "second", "b__2"),
        Effective("limited", "few", "some", "2"),
        Effective("limited", "few", "some", "9"),
        Effective("leased", "timed", "keeps", "stays"),
    }


@contextmanager
def coming_and_going(scene: Scene) -> Iterator[None]:
    """Create and delete topics continuously, in a thread."""

    def step(number: int) -> None:
        scene.born("busy", f"t__{number}")
        scene.gone("busy", f"t__{number - 5}")
        scene.asks(f"c{number % 7}", "hurried", "busy", *(["t__*"] if number % 2 else ["nothing"]))

    scene.group("hurried", "busy")
    with repeated(step, 0.05):
        yield
    scene.sent()


@contextmanager
def repeated(step: Callable[[int], None], seconds: float) -> Iterator[None]:
    """Repeat a step in a thread, with its number from 1, each after a pause."""
    stop = threading.Event()

    def run() -> None:
        for number in count(1):
            if stop.wait(seconds):
                return
            step(number)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
