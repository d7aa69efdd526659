"""The operator in Quix Streams; runs until SIGTERM, with the job's own settings from the environment.

It needs a Python with `requirements.txt`. An application of Quix Streams is one thread of Python, so there are as many
processes in one consumer group as `REEXPAND_PROCESSES` says.
"""

import os
import signal
import sys
import time
from collections.abc import Iterator
from multiprocessing import Process
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any, NamedTuple

from confluent_kafka import ConsumerGroupState
from confluent_kafka.admin import AdminClient
from quixstreams import Application, State, message_context
from quixstreams.models import Serializer

from matcher import PatternIndex
from streaming.events import BIND_TOPIC, WILDCARD, Source
from streaming.records import Record, UpdateWriter
from streaming.relation import Receiver
from streaming.update import Cause, Op, Update

JOIN_SECONDS = 60
POLL_SECONDS = 0.01
"""Streams that are joined are read in batches that wait so long to fill; with the default, 1 s, each event does."""
STREAMS = ("GROUP_EVENTS", "SUBSCRIPTION_EVENTS")
Entry = dict[str, Any]
Client = tuple[str, str, int | None]
"""Group, client and the version of its last request."""
Request = tuple[int | None, list[str]]
"""Version and patterns."""


def setting(name: str) -> str:
    """What the environment says."""
    return os.environ[f"REEXPAND_{name}"]


class ValueOfRecord(Serializer):  # type: ignore[misc]  # checked without Quix Streams
    """Writes the value of an update that is ready to be written."""

    def __call__(self, value: Record, ctx: object) -> bytes | None:  # noqa: ARG002 - as it is called
        """The bytes; None is a tombstone."""
        return value.value


class Receivers:
    """The clients of one parent by pattern."""

    def __init__(self) -> None:
        self._index: PatternIndex[Client] = PatternIndex()
        self._everything: list[Client] = []

    def add(self, client: Client, patterns: list[str]) -> None:
        """Adds a client; one without patterns receives everything."""
        if not patterns:
            self._everything.append(client)
        for pattern in patterns:
            self._index.add(pattern, client)

    def of(self, topic: str) -> dict[Client, list[str]]:
        """The clients that receive a topic, each with those of its patterns that match."""
        found: dict[Client, list[str]] = {}
        for pattern, client in self._index.match_patterns(topic):
            found.setdefault(client, []).append(pattern)
        return found | {client: [] for client in self._everything}


class Event(NamedTuple):
    """A value with where it belongs and came from, and the state of its parent."""

    value: Entry
    parent: str
    source: Source
    state: State


class Operator:
    """Keeps the topics and the subscriptions of each parent, and says each change of who receives what.

    The state of a parent has no scan, so its topics are numbered. Its keys:

    | key | value |
    |---|---|
    | `head` | how often the subscriptions have changed, and how many topics have been numbered |
    | `subscriptions` | `{"wildcard": groups, "clients": {group: {client: [version, patterns]}}}` |
    | `t` and a topic | its number |
    | `n` and a number | its topic |
    """

    def __init__(self) -> None:
        # By parent, with the number of changes that is in it: another process may have worked on the parent since.
        self._known: dict[str, tuple[int, Receivers]] = {}
        self._writers: dict[str, UpdateWriter] = {}

    def __call__(self, value: Entry, parent: str, timestamp: int, _headers: object, state: State) -> list[Record]:
        """The updates that an event causes."""
        if "event" in value:
            return list(self._topic(Event(value, parent, source_of(0, timestamp), state)))
        event = Event(value, parent, Source(*value["source"]), state)
        changes, numbered = state.get("head", (0, 0))
        kept = state.get("subscriptions", {"wildcard": [], "clients": {}})
        updates = list((self._group if "attributes" in value else self._request)(event, kept))
        state.set("subscriptions", kept)
        state.set("head", (changes + 1, numbered))
        return updates

    def _topic(self, event: Event) -> Iterator[Record]:
        """Lazy: a topic comes or goes, and the patterns that are there decide."""
        state, topic = event.state, event.value["liteTopic"]
        number = state.get("t" + topic)
        created = event.value["event"] == "CREATED"
        if created is (number is not None):
            return
        changes, numbered = state.get("head", (0, 0))
        if created:
            state.set("t" + topic, numbered)
            state.set(f"n{numbered}", topic)
            state.set("head", (changes, numbered + 1))
        else:
            state.delete("t" + topic)
            state.delete(f"n{number}")
        op, cause = (Op.ADD, Cause.TOPIC_CREATED) if created else (Op.REMOVE, Cause.TOPIC_DELETED)
        yield from self._updates(event, op, cause, topic, self._receivers(event, changes).of(topic))

    def _group(self, event: Event, kept: Entry) -> Iterator[Record]:
        group, wildcard = event.value["group"], WILDCARD in event.value["attributes"]
        if wildcard is (group in kept["wildcard"]):
            return
        (kept["wildcard"].append if wildcard else kept["wildcard"].remove)(group)
        for client, request in kept["clients"].get(group, {}).items():
            before, after = (None, request) if wildcard else (request, None)
            yield from self._compare(event, (group, client), before, after, Cause.GROUP_CHANGED)

    def _request(self, event: Event, kept: Entry) -> Iterator[Record]:
        group, client, version = event.value["group"], event.value["clientId"], event.value.get("version")
        clients = kept["clients"].setdefault(group, {})
        before = clients.get(client)
        if before and None not in (version, before[0]) and version < before[0]:
            return  # stale
        if event.value["action"] == "COMPLETE_REMOVE":
            clients.pop(client, None)
            after, cause = None, Cause.UNSUBSCRIBED
        else:
            after, cause = (version, event.value["liteTopicSet"]), Cause.SUBSCRIBED
            clients[client] = after
        if group in kept["wildcard"]:
            yield from self._compare(event, (group, client), before, after, cause)

    def _compare(
        self, event: Event, client: tuple[str, str], before: Request | None, after: Request | None, cause: Cause
    ) -> Iterator[Record]:
        """Eager: a client asks for other topics than before, and the topics that are there decide."""
        was, now = Receivers(), Receivers()
        for receivers, request in ((was, before), (now, after)):
            if request:
                receivers.add((*client, request[0]), request[1])
        for number in range(event.state.get("head", (0, 0))[1]):
            topic = event.state.get(f"n{number}")
            if topic is None:
                continue
            lost, won = was.of(topic), now.of(topic)
            if not (lost and won):
                yield from self._updates(event, Op.REMOVE, cause, topic, lost)
                yield from self._updates(event, Op.ADD, cause, topic, won)

    def _receivers(self, event: Event, changes: int) -> Receivers:
        known = self._known.get(event.parent)
        if known is None or known[0] != changes:
            known = self._known[event.parent] = (changes, Receivers())
            kept = event.state.get("subscriptions", {"wildcard": [], "clients": {}})
            for group in kept["wildcard"]:
                for client, (version, patterns) in kept["clients"].get(group, {}).items():
                    known[1].add((group, client, version), patterns)
        return known[1]

    def _updates(
        self, event: Event, op: Op, cause: Cause, topic: str, receivers: dict[Client, list[str]]
    ) -> Iterator[Record]:
        if event.parent not in self._writers:
            self._writers[event.parent] = UpdateWriter(event.parent)
        writer = self._writers[event.parent]
        for (group, client, version), patterns in receivers.items():
            shown = tuple(sorted(patterns))
            record = writer.record(Update(op, Receiver(group, client), topic, shown, cause, version, event.source))
            yield record
            if op is Op.REMOVE:
                yield Record(record.key, None)


def source_of(entry: int, timestamp: int) -> Source:
    """Where an entry of the present record comes from."""
    place = message_context()
    return Source(place.topic, place.partition, place.offset, entry, timestamp)


def placed(event: Entry, _key: str, timestamp: int, _headers: object) -> list[Entry]:
    """The entries of a group event or a request, each with its parent and where it comes from."""
    found = []
    for number, entry in enumerate(event.get("subscriptionSet", [event])):
        parent = entry["attributes"].get(BIND_TOPIC) if "attributes" in entry else entry.get("topic")
        if parent:
            found.append({**entry, "parent": parent, "source": tuple(source_of(number, timestamp))})
    return found


def work(number: int) -> None:
    """One process."""
    app = Application(
        setting("BOOTSTRAP_SERVERS"),
        consumer_group=Path(setting("CHECKPOINT")).name,
        state_dir=Path(setting("CHECKPOINT")) / str(number),
        auto_offset_reset="earliest",
        producer_extra_config={"linger.ms": 5},
        consumer_poll_timeout=POLL_SECONDS,
        loglevel="WARNING",
    )
    frame = app.dataframe(app.topic(setting("TOPIC_EVENTS"), key_deserializer="str"))
    for name in STREAMS:
        entries = app.dataframe(app.topic(setting(name), key_deserializer="str")).apply(
            placed, expand=True, metadata=True
        )
        frame = frame.concat(entries.group_by("parent", key_serializer="str", key_deserializer="str"))
    updates = app.topic(setting("UPDATES"), key_serializer="bytes", value_serializer=ValueOfRecord())
    changes = frame.apply(Operator(), stateful=True, metadata=True, expand=True)
    changes.to_topic(updates, key=lambda record: record.key)
    app.run()


def wait_for_members(count: int) -> None:
    """Waits until so many processes share the partitions: before, some would be read twice."""
    admin = AdminClient({"bootstrap.servers": setting("BOOTSTRAP_SERVERS")})
    group = Path(setting("CHECKPOINT")).name
    deadline = time.monotonic() + JOIN_SECONDS
    while time.monotonic() < deadline:
        found = admin.describe_consumer_groups([group])[group].result()
        shared = [member for member in found.members if member.assignment.topic_partitions]
        if found.state == ConsumerGroupState.STABLE and len(shared) == count:
            return
        time.sleep(0.2)
    raise SystemExit(f"{count} processes do not share the partitions within {JOIN_SECONDS} s")


def main() -> None:
    """Starts the processes, and ends them with itself."""
    processes = [Process(target=work, args=[number]) for number in range(int(setting("PROCESSES")))]
    for process in processes:
        process.start()

    def end(*_: object) -> None:
        for process in processes:
            process.terminate()

    signal.signal(signal.SIGTERM, end)
    wait_for_members(len(processes))
    sys.stderr.write("ready: reading\n")
    sys.stderr.flush()
    wait([process.sentinel for process in processes])
    end()  # one that fails is not to be hidden by the other
    for process in processes:
        process.join()


if __name__ == "__main__":
    main()
