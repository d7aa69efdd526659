"""Input events as JSON values: of parent `p`, group `g` and client `c` by default.

Keywords set or add fields. A field with the value `...` is omitted.
"""

from functools import partial
from typing import Any

from streaming.records.model import BIND_TOPIC, MODEL, QUOTA, RESET_EXCLUSIVE, RESET_UNSUBSCRIBE, WILDCARD, Stream

Event = dict[str, Any]

_STREAMS = {
    "event": Stream.TOPICS,
    "action": Stream.SUBSCRIPTIONS,
    "attributes": Stream.GROUPS,
    "tick": Stream.CLOCK,
}
"""Streams by a field that is unique to their events."""

_ATTRIBUTES = {"model": MODEL, "quota": QUOTA, "reset": RESET_EXCLUSIVE, "reset_unsubscribed": RESET_UNSUBSCRIBE}
"""Attributes of groups by their short names."""


def stream_of(event: Event) -> Stream:
    (stream,) = (stream for field, stream in _STREAMS.items() if field in event)
    return stream


def created(topic: Any, /, parent: str = "p", **fields: Any) -> Event:
    return _made({"event": "CREATED", "parentTopic": parent, "liteTopic": topic, **fields})


def deleted(topic: str, /, parent: str = "p") -> Event:
    return {"event": "DELETED", "parentTopic": parent, "liteTopic": topic}


def _request(
    action: str, /, *entries: str, client: str = "c", parent: str | None = "p", group: str = "g", **fields: Any
) -> Event:
    base = {"action": action, "clientId": client, "group": group, "topic": parent, "liteTopicSet": list(entries)}
    return _made({**base, **fields})


replace, add, drop, leave = (
    partial(_request, action) for action in ("COMPLETE_ADD", "PARTIAL_ADD", "PARTIAL_REMOVE", "COMPLETE_REMOVE")
)


def attributes(*flags: str, group: str = "g", parent: str = "p", **values: Any) -> Event:
    """Return the attributes of a group; keywords: `model`, `quota`, `reset`, `reset_unsubscribed`."""
    named = {_ATTRIBUTES[keyword]: value for keyword, value in values.items()}
    return {"group": group, "attributes": {BIND_TOPIC: parent, **dict.fromkeys(flags, "true"), **named}}


wildcard = partial(attributes, WILDCARD)
LITERAL = attributes()
WILD = wildcard()
EXCLUSIVE = wildcard(model="Exclusive")
UNBOUND: Event = {"group": "g", "attributes": {}}


def quota(number: int, *flags: str, **values: Any) -> Event:
    return wildcard(*flags, quota=str(number), **values)


def tick(time: int = 0) -> Event:
    return {"tick": time}


def tag(text: str) -> Event:
    return {"type": "TAG", "expression": text}


def sql(text: str) -> Event:
    return {"type": "SQL92", "expression": text}


def _made(fields: Event) -> Event:
    return {name: value for name, value in fields.items() if value is not ...}
