"""Whether the updates of a system are right: folded, they must be the rows that the workload wants, each said once."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

from matcher import matches
from tests.bench.streaming.workload import GROUP
from tests.support import events
from tests.support.tail import Tail

if TYPE_CHECKING:
    from tests.bench.streaming.driver import Driver

TOPICS = 640
QUIET_SECONDS = 1.0
LOOKING_SECONDS = 0.1
WAIT_SECONDS = 60
LATE, LATE_PATTERNS = "late", ["*__tenant00__*", "region00__**"]
FIELDS = {
    *("op", "parentTopic", "group", "clientId", "liteTopic", "lmqName"),
    *("patterns", "cause", "version", "eventId", "source"),
}
Row = tuple[str, str, str, str]
"""Parent, group, client and topic."""
Rows = dict[Row, tuple[str, ...]]
"""The patterns of each row."""


class Wrong(Exception):
    """The updates of a system are not what the workload wants."""


class Reader:
    """Folds an updates topic from its beginning."""

    def __init__(self, tail: Tail) -> None:
        self.rows: Rows = {}
        self._tail = tail

    def expect(self, wanted: Rows, what: str) -> None:
        """Read until the rows are the wanted ones and no update follows.

        Raises:
            Wrong: they are others after a while, or a record says what is so already.
        """
        deadline = time.monotonic() + WAIT_SECONDS
        quiet_since = time.monotonic()
        while self.rows != wanted or time.monotonic() - quiet_since < QUIET_SECONDS:
            for message in self._tail.read():
                quiet_since = time.monotonic()
                parent, group, client, lite_topic = json.loads(message.key() or b"")
                self._fold((parent, group, client, lite_topic), message.value())
            time.sleep(LOOKING_SECONDS)
            if time.monotonic() > deadline:
                missing, others = wanted.items() - self.rows.items(), self.rows.items() - wanted.items()
                raise Wrong(f"{what}: {len(missing)} rows are missing and {len(others)} are too many")

    def _fold(self, row: Row, value: bytes | None) -> None:
        if value is None:
            if row in self.rows:
                raise Wrong(f"{row} is forgotten before it is removed")
            return
        update: dict[str, Any] = json.loads(value)
        named = (update["parentTopic"], update["group"], update["clientId"], update["liteTopic"])
        if update.keys() != FIELDS or named != row:
            raise Wrong(f"the key is {row}, but the value is {update}")
        if (update["op"] == "REMOVE") is not (row in self.rows):
            raise Wrong(f"{row} is said twice, or removed although it was not there: {update}")
        if update["op"] == "ADD":
            self.rows[row] = tuple(update["patterns"])
        else:
            del self.rows[row]


def check(driver: Driver, bootstrap_servers: str) -> None:
    """Topics that come, come twice and go, and a client that comes late and goes; the driver's state is as before.

    Raises:
        Wrong: the updates are not those that all this must cause.
    """
    topics = driver.workload.topics(TOPICS)
    ended = set(topics[::4])
    with Tail(bootstrap_servers, [driver.settings.updates]) as tail:
        reader = Reader(tail)
        for event, named in (("CREATED", topics), ("CREATED", topics), ("DELETED", topics[::4])):
            for parent, topic in named:
                driver.send({**events.created(topic, parent, timestamp=0), "event": event})
        there = [topic for topic in driver.workload.made if topic not in ended]
        wanted = {
            (parent, GROUP.format(parent=parent), client, topic): tuple(sorted(patterns))
            for parent, topic in there
            for client, patterns in driver.workload.subscribers(parent, topic).items()
        }
        reader.expect(wanted, "topics that come and go")
        parent = driver.workload.parents[0]
        names = {"client": LATE, "group": GROUP.format(parent=parent), "parent": parent}
        driver.send(events.replace(*LATE_PATTERNS, **names, version=1))
        reader.expect(wanted | _late(there, parent), "a client that comes late")
        driver.send(events.leave(*LATE_PATTERNS, **names, version=2))
        reader.expect(wanted, "a client that leaves")
    driver.skip()


def _late(topics: list[tuple[str, str]], asked: str) -> Rows:
    """The rows of the client that comes late."""
    found: Rows = {}
    for parent, topic in topics:
        patterns = [pattern for pattern in LATE_PATTERNS if matches(pattern, topic)]
        if parent == asked and patterns:
            found[parent, GROUP.format(parent=parent), LATE, topic] = tuple(patterns)
    return found
