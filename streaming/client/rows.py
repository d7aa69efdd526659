"""Rows of the relation, as the records of the updates topic write them."""

from __future__ import annotations

from enum import StrEnum
from typing import Any, NamedTuple

import orjson

from streaming.errors import Malformed

SHARE = "share:"
"""What the part of a shared subscription begins with."""

_KNOWN = frozenset(
    {
        *("op", "parentTopic", "group", "clientId", "liteTopic", "lmqName", "patterns", "cause", "version"),
        *("eventId", "source"),
    }
)


class Op(StrEnum):
    """What an update does to its row."""

    ADD = "ADD"
    REMOVE = "REMOVE"


class Subscriber(NamedTuple):
    """Who receives topics.

    Attributes:
        part: which of the client's subscriptions this is, where each one counts by itself (`share:<name>`,
            `wamp:prefix:com.app`); None for the client as a whole.
    """

    parent: str
    group: str
    client_id: str
    part: str | None = None


class Row(NamedTuple):
    """One element of the relation: a subscriber receives a lite topic.

    Attributes:
        patterns: the subscriber's entries that match the topic; none when it receives everything.
        cause: why it came to be, such as `TOPIC_CREATED` or `SUBSCRIBED`.
        version: of the client's last applied request.
        event_id: of the update that it comes from; a repeated update has the same.
        further_json: what else the update says, such as an `offsetOption`, as JSON; mostly nothing.
    """

    subscriber: Subscriber
    lite_topic: str
    patterns: tuple[str, ...]
    cause: str
    version: int | None
    event_id: str
    further_json: bytes = b""

    @property
    def parent(self) -> str:
        """The parent topic."""
        return self.subscriber.parent

    @property
    def group(self) -> str:
        """The client's group."""
        return self.subscriber.group

    @property
    def client_id(self) -> str:
        """The client."""
        return self.subscriber.client_id

    @property
    def part(self) -> str | None:
        """Which of the client's subscriptions; None for the client as a whole."""
        return self.subscriber.part

    @property
    def share(self) -> str | None:
        """The name of the shared subscription that this is a part of."""
        part = self.subscriber.part
        return part.removeprefix(SHARE) if part is not None and part.startswith(SHARE) else None

    @property
    def lmq_name(self) -> str:
        """RocketMQ's name of the lite topic."""
        return f"%LMQ%${self.parent}${self.lite_topic}"

    @property
    def further(self) -> dict[str, Any]:
        """What else the update says, such as an `offsetOption`."""
        return orjson.loads(self.further_json) if self.further_json else {}


class Update(NamedTuple):
    """What the value of a record says about its row."""

    op: Op
    patterns: tuple[str, ...]
    cause: str
    version: int | None
    event_id: str
    further_json: bytes
    source: dict[str, Any]


def read_key(key: bytes | None) -> tuple[Subscriber, str]:
    """The row that a record is about: its subscriber and its lite topic.

    Raises:
        Malformed: it is not an array of four or five texts.
    """
    try:
        names = orjson.loads(key or b"")
    except orjson.JSONDecodeError as error:
        raise Malformed(f"the key is not JSON: {error}") from None
    if type(names) is not list or len(names) not in {4, 5} or set(map(type, names)) != {str}:
        raise Malformed("the key is not an array of four or five texts")
    parent, group, client_id, lite_topic, *part = names
    return Subscriber(parent, group, client_id, *part), lite_topic


def read_value(value: bytes) -> Update:
    """What a record says.

    Raises:
        Malformed: it is no update.
    """
    try:
        record = orjson.loads(value)
    except orjson.JSONDecodeError as error:
        raise Malformed(f"the value is not JSON: {error}") from None
    try:
        patterns, cause, version, event_id = (record[name] for name in ("patterns", "cause", "version", "eventId"))
        op = _OPS[record["op"]]
        source = record.get("source", {})
    except (KeyError, TypeError) as error:
        raise Malformed(f"the value is no update: {error!r}") from None
    texts = type(patterns) is list and set(map(type, (cause, event_id, *patterns))) == {str}
    if not texts or not (version is None or type(version) is int) or type(source) is not dict:
        raise Malformed("a field of the update has another type")
    further = record.keys() - _KNOWN
    more = orjson.dumps({name: record[name] for name in sorted(further)}) if further else b""
    return Update(op, tuple(patterns), cause, version, event_id, more, source)


_OPS = {op.value: op for op in Op}
