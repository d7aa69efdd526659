"""Steady events on the inputs of a job, of all rules whose outcome does not depend on where micro-batches are cut."""

import json
import threading
import time
from collections.abc import Iterator, Sequence
from random import Random
from typing import Any

from streaming.records.model import BIND_TOPIC, MODEL, QUOTA, WILDCARD, Stream
from tests.support.events import created, replace
from tests.support.histories import Profile, history
from tests.support.running_job import Feed, Streams, key_of
from tests.support.simulator import Record

RATE = 150
"""Events a second."""

PROFILE = Profile(dialects=True, selectors=True, exclusive=True, bound=True)
CANARIES = "canary"
"""Parent of topics that tell whether the job works."""

HOT = "hot"
"""Parent of all events of a fault that strikes one key."""

PARENTS = frozenset({"p", "q", "many", "few", "short", CANARIES, HOT})
"""Parents whose rows are compared; damaged records may speak of others."""

OPTIONS: Sequence[str] = (
    *("--shards", "p=4", "--shards", "many=3", "--shards", "few=2", "--route-depth", "0"),
    *("--shuffle-partitions", "2", "--tick-interval-ms", "1000", "--client-timeout-ms", "86400000"),
)
"""Options of the job under this load: several shards on several state partitions; leases outlast every run."""

STORED = 3_000
"""Topics that stand from the beginning: enough for a part of the state to lie in files."""

CLIENT_TIMEOUT_MS = 86_400_000
_CHUNK = 300
_STEP_SECONDS = 0.1
_GROUPS: dict[str, tuple[str, dict[str, str], dict[str, list[str]]]] = {
    "all": ("many", {QUOTA: "-1"}, {"a": ["**"], "b": ["even__*"], "c": ["*__1", "even__2"]}),
    "one": ("many", {QUOTA: "-1", MODEL: "Exclusive"}, {"d": ["**"], "e": ["even__**"]}),
    "capped": ("few", {QUOTA: "7"}, {"f": ["**"], "g": ["even__*"]}),
    "brief": ("short", {QUOTA: "-1"}, {"h": ["**"]}),
    "heated": (HOT, {QUOTA: "-1"}, {"i": ["**"]}),
    "watch": (CANARIES, {QUOTA: "-1"}, {"w": ["**"]}),
}
"""Groups that stand from the beginning: parent, attributes, patterns by client.

A quota decides by the order of topics alone, since their requests come before any topic.
"""


def beginning() -> Iterator[Record]:
    """Yield the groups and subscriptions that the later topics meet."""
    for group, (parent, others, clients) in _GROUPS.items():
        attributes = {BIND_TOPIC: parent, WILDCARD: "true", **others}
        yield _record(Stream.GROUPS, {"group": group, "attributes": attributes})
        for client, patterns in clients.items():
            request = replace(*patterns, parent=parent, group=group, client=client)
            yield _record(Stream.SUBSCRIPTIONS, request)
    for number in range(STORED):
        yield topic(HOT, f"stored__{number:05}__{'x' * 20}")


def topic(parent: str, name: str, **fields: Any) -> Record:
    return _record(Stream.TOPICS, created(name, parent=parent, **fields))


def events(random: Random) -> Iterator[Record]:
    """Yield events without end: a random history, and topics that come and go."""
    while True:
        for record in history(random, _CHUNK, PROFILE):
            yield record
            if random.random() < 0.5:
                yield _coming_or_going(random)


def _coming_or_going(random: Random) -> Record:
    parent = random.choice(["many", "many", "many", "few", "short"])
    name = f"{random.choice(['even', 'odd'])}__{random.randrange(12 if parent == 'few' else 500)}"
    if parent == "short":
        return topic(parent, name, ttlMs=random.choice([500, 1_000, 2_000, 3_600_000]))
    event = created(name, parent=parent)
    return _record(Stream.TOPICS, event | {"event": random.choice(["CREATED", "CREATED", "DELETED"])})


def _record(stream: Stream, value: dict[str, Any]) -> Record:
    return Record(stream, json.dumps(value).encode())


class Load:
    """Thread that sends random events to a job's inputs. It can be held and resumed."""

    def __init__(self, streams: Streams, random: Random, rate: int = RATE) -> None:
        self.feed: Feed = streams.producer()
        self._events = events(random)
        self._rate = rate
        self._wanted = threading.Event()
        self._resting = threading.Event()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="load", daemon=True)
        self._resting.set()
        self._thread.start()

    def send(self, records: Iterator[Record] | Sequence[Record]) -> None:
        """Send records beside the load, and wait until they are in Kafka."""
        for record in records:
            self.feed.send(record.stream, record.value, key_of(record))
        self.feed.flush()

    def go(self) -> None:
        self._resting.clear()
        self._wanted.set()

    def hold(self) -> None:
        """Send nothing more, and wait until all that was sent is in Kafka."""
        self._wanted.clear()
        assert self._resting.wait(60), "the load does not end"
        self.feed.flush()

    def close(self) -> None:
        self._ended.set()
        self._wanted.clear()
        self._thread.join(60)

    def _run(self) -> None:
        while not self._ended.is_set():
            if not self._wanted.wait(_STEP_SECONDS):
                self._resting.set()
                continue
            for _ in range(int(self._rate * _STEP_SECONDS)):
                record = next(self._events)
                self.feed.send(record.stream, record.value, key_of(record))
            time.sleep(_STEP_SECONDS)
