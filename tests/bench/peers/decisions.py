"""The common part of the operators in Python: their decisions, whatever keeps the state, and their start."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from matcher import PatternIndex
from streaming.records.model import BIND_TOPIC, WILDCARD, Source
from streaming.records.record import KafkaRecord
from streaming.records.subscribers import SubscriberKey
from streaming.records.updates import Cause, Op, Update
from streaming.records.writing import UpdateWriter

if TYPE_CHECKING:
    from collections.abc import Iterator

Entry = dict[str, Any]
Client = tuple[str, str, int | None]
"""Group, client and the version of its last request."""
Request = tuple[int | None, list[str]]
"""Version and patterns."""


class State(Protocol):
    """The topics and the subscriptions of one parent, as a framework keeps them.

    The subscriptions are `{"wildcard": groups, "clients": {group: {client: [version, patterns]}}}`.
    """

    def add(self, topic: str) -> bool:
        """Add a topic; False when it is there already."""

    def remove(self, topic: str) -> bool:
        """Remove a topic; False when it is not there."""

    def topics(self) -> Iterator[str]:
        """All topics."""

    def subscriptions(self) -> Entry | None:
        """The subscriptions; None when there were none yet."""

    def subscribe(self, subscriptions: Entry) -> None:
        """Keep the subscriptions, and count this as a change of them."""

    def changes(self) -> int:
        """How often the subscriptions have changed; what is made of them is kept as long as this stays the same."""


class Event(NamedTuple):
    """A value with where it belongs and came from, and the state of its parent."""

    value: Entry
    parent: str
    source: Source
    state: State


class Receivers:
    """The clients of one parent by pattern."""

    def __init__(self) -> None:
        self._index: PatternIndex[Client] = PatternIndex()
        self._everything: list[Client] = []

    def add(self, client: Client, patterns: list[str]) -> None:
        """Add a client; one without patterns receives everything."""
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


class Operator:
    """Keeps the topics and the subscriptions of each parent, and says each change of who receives what."""

    def __init__(self) -> None:
        # By parent, with the number of changes that is in it.
        self._known: dict[str, tuple[int, Receivers]] = {}
        self._writers: dict[str, UpdateWriter] = {}

    def __call__(self, event: Event) -> Iterator[KafkaRecord]:
        """The updates that an event causes."""
        if "event" in event.value:
            yield from self._topic(event)
            return
        kept = event.state.subscriptions() or {"wildcard": [], "clients": {}}
        yield from (self._group if "attributes" in event.value else self._request)(event, kept)
        event.state.subscribe(kept)

    def _topic(self, event: Event) -> Iterator[KafkaRecord]:
        """Lazy: a topic comes or goes, and the patterns that are there decide."""
        state, topic = event.state, event.value["liteTopic"]
        created = event.value["event"] == "CREATED"
        if state.add(topic) if created else state.remove(topic):
            op, cause = (Op.ADD, Cause.TOPIC_CREATED) if created else (Op.REMOVE, Cause.TOPIC_DELETED)
            yield from self._updates(event, op, cause, topic, self._receivers(event).of(topic))

    def _group(self, event: Event, kept: Entry) -> Iterator[KafkaRecord]:
        group, wildcard = event.value["group"], WILDCARD in event.value["attributes"]
        if wildcard is (group in kept["wildcard"]):
            return
        (kept["wildcard"].append if wildcard else kept["wildcard"].remove)(group)
        for client, request in kept["clients"].get(group, {}).items():
            before, after = (None, request) if wildcard else (request, None)
            yield from self._compare(event, (group, client), before, after, Cause.GROUP_CHANGED)

    def _request(self, event: Event, kept: Entry) -> Iterator[KafkaRecord]:
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
    ) -> Iterator[KafkaRecord]:
        """Eager: a client asks for other topics than before, and the topics that are there decide."""
        was, now = Receivers(), Receivers()
        for receivers, request in ((was, before), (now, after)):
            if request:
                receivers.add((*client, request[0]), request[1])
        for topic in event.state.topics():
            lost, won = was.of(topic), now.of(topic)
            if not (lost and won):
                yield from self._updates(event, Op.REMOVE, cause, topic, lost)
                yield from self._updates(event, Op.ADD, cause, topic, won)

    def _receivers(self, event: Event) -> Receivers:
        known, changes = self._known.get(event.parent), event.state.changes()
        if known is None or known[0] != changes:
            known = self._known[event.parent] = (changes, Receivers())
            kept = event.state.subscriptions() or {"wildcard": [], "clients": {}}
            for group in kept["wildcard"]:
                for client, (version, patterns) in kept["clients"].get(group, {}).items():
                    known[1].add((group, client, version), patterns)
        return known[1]

    def _updates(
        self, event: Event, op: Op, cause: Cause, topic: str, receivers: dict[Client, list[str]]
    ) -> Iterator[KafkaRecord]:
        if event.parent not in self._writers:
            self._writers[event.parent] = UpdateWriter(event.parent)
        writer = self._writers[event.parent]
        for (group, client, version), patterns in receivers.items():
            shown = tuple(sorted(patterns))
            record = writer.record(Update(op, SubscriberKey(group, client), topic, shown, cause, version, event.source))
            yield record
            if op is Op.REMOVE:
                yield KafkaRecord(record.key, None)


def placed(value: Entry) -> Iterator[tuple[str, int, Entry]]:
    """The entries of a group event or a request, each with its parent and its number."""
    for number, entry in enumerate(value.get("subscriptionSet", [value])):
        parent = entry["attributes"].get(BIND_TOPIC) if "attributes" in entry else entry.get("topic")
        if parent:
            yield parent, number, entry


def setting(name: str) -> str:
    """Return a setting of the job from the environment."""
    return os.environ[f"REEXPAND_{name}"]


def say_ready() -> None:
    """Print that events are read from now on."""
    sys.stderr.write("ready: reading\n")
    sys.stderr.flush()
