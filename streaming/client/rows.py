"""Rows of the relation, parsed from records of the updates topic."""

from __future__ import annotations

from typing import Any, NamedTuple

import orjson

from streaming.errors import Malformed
from streaming.records.op import Op
from streaming.records.subscribers import SHARE

_KNOWN_FIELDS = frozenset(
    {
        *("op", "parentTopic", "group", "clientId", "liteTopic", "lmqName", "patterns", "cause", "version"),
        *("eventId", "source"),
    }
)


class Subscriber(NamedTuple):
    """Receiver of topics: a client as a whole, or one of its subscriptions.

    Attributes:
        part: the subscription, if it has its own rows (`share:<name>/<filter>`, `wamp:prefix:com.app`); None for the
            client as a whole.
    """

    parent: str
    group: str
    client_id: str
    part: str | None = None


class Row(NamedTuple):
    """One element of the relation: a subscriber receives a lite topic.

    Attributes:
        patterns: the subscriber's entries that match the topic; none if it receives every topic.
        cause: reason of the update, such as `TOPIC_CREATED` or `SUBSCRIBED`.
        version: version of the client's last applied request.
        event_id: id of the update; repetitions have the same id.
        further_json: further fields of the update, such as an `offsetOption`, as JSON; mostly empty.
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
        """Name of the parent topic."""
        return self.subscriber.parent

    @property
    def group(self) -> str:
        """Name of the client's group."""
        return self.subscriber.group

    @property
    def client_id(self) -> str:
        """Id of the client."""
        return self.subscriber.client_id

    @property
    def part(self) -> str | None:
        """One subscription of the client; None for the client as a whole."""
        return self.subscriber.part

    @property
    def share(self) -> str | None:
        """Name of the shared subscription; None for any other row.

        Subscriptions with the same name and different filters are different: the members of one have the same `part`.
        """
        part = self.subscriber.part
        return part.removeprefix(SHARE).partition("/")[0] if part is not None and part.startswith(SHARE) else None

    @property
    def lmq_name(self) -> str:
        """Name of the lite topic's queue in RocketMQ."""
        return f"%LMQ%${self.parent}${self.lite_topic}"

    @property
    def further(self) -> dict[str, Any]:
        """Further fields of the update, such as an `offsetOption`."""
        return orjson.loads(self.further_json) if self.further_json else {}


class UpdateValue(NamedTuple):
    """Value of a record of the updates topic: the fields of the row that are not in its key."""

    op: Op
    patterns: tuple[str, ...]
    cause: str
    version: int | None
    event_id: str
    further_json: bytes
    source: dict[str, Any]


def read_key(key: bytes | None) -> tuple[Subscriber, str]:
    """Parse the key of a record: the subscriber and the lite topic of its row.

    Raises:
        Malformed: the key is not an array of four or five texts.
    """
    try:
        names = orjson.loads(key or b"")
    except orjson.JSONDecodeError as error:
        raise Malformed(f"the key is not JSON: {error}") from None
    if type(names) is not list or len(names) not in {4, 5} or set(map(type, names)) != {str}:
        raise Malformed("the key is not an array of four or five texts")
    parent, group, client_id, lite_topic, *part = names
    return Subscriber(parent, group, client_id, *part), lite_topic


def read_value(value: bytes) -> UpdateValue:
    """Parse the value of a record.

    Raises:
        Malformed: the value is not an update.
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
    further = record.keys() - _KNOWN_FIELDS
    try:
        further_json = orjson.dumps({name: record[name] for name in sorted(further)}) if further else b""
    except TypeError:
        raise Malformed("a further field of the update nests too deep") from None
    return UpdateValue(op, tuple(patterns), cause, version, event_id, further_json, source)


_OPS = {op.value: op for op in Op}
