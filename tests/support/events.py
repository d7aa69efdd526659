"""Input events: as JSON values, as bytes, and parsed.

Events are of parent `p`, group `g` and client `c` by default. Keywords set or add fields. A field with the value `...`
is omitted. Requests also take a selector as `tag` or `sql`, and dialect, policy and delivery as `notation`.
"""

import json
from functools import partial
from typing import Any

from streaming.records.json_fields import read_subscription
from streaming.records.model import (
    BIND_TOPIC,
    MODEL,
    QUOTA,
    RESET_EXCLUSIVE,
    RESET_UNSUBSCRIBE,
    WILDCARD,
    Notation,
    SingleEvent,
    Stream,
    SubscriptionRequest,
)
from streaming.records.parsing import PARSERS

Event = dict[str, Any]

MQTT = Notation("mqtt")
NATS = Notation("nats")
WAMP = Notation("wamp", None, per_subscription=True)

_STREAMS = {
    "event": Stream.TOPICS,
    "action": Stream.SUBSCRIPTIONS,
    "attributes": Stream.GROUPS,
    "tick": Stream.CLOCK,
    "wake": Stream.CLOCK,
    "alarm": Stream.CLOCK,
}
"""Streams by a field that is unique to their events."""

_ATTRIBUTES = {"model": MODEL, "quota": QUOTA, "reset": RESET_EXCLUSIVE, "reset_unsubscribed": RESET_UNSUBSCRIBE}
"""Attributes of groups by their short names."""


def stream_of(event: Event) -> Stream:
    (stream,) = (stream for field, stream in _STREAMS.items() if field in event)
    return stream


def encoded(event: Event | bytes) -> bytes:
    return event if isinstance(event, bytes) else json.dumps(event).encode()


def parsed(event: Event) -> SingleEvent:
    return PARSERS[stream_of(event)](encoded(event))


def request(event: Event) -> SubscriptionRequest:
    return read_subscription(event)


def _made(fields: Event) -> Event:
    return {name: value for name, value in fields.items() if value is not ...}


def created(topic: Any = "t", /, parent: Any = "p", **fields: Any) -> Event:
    return _made({"event": "CREATED", "parentTopic": parent, "liteTopic": topic, **fields})


def deleted(topic: Any = "t", /, parent: Any = "p", **fields: Any) -> Event:
    return created(topic, parent, event="DELETED", **fields)


def _request(
    action: str,
    /,
    *entries: Any,
    client: Any = "c",
    parent: Any = "p",
    group: Any = "g",
    notation: Any = None,
    tag: Any = None,
    sql: Any = None,
    **fields: Any,
) -> Event:
    base: Event = {"action": action, "clientId": client, "group": group, "topic": parent, "liteTopicSet": list(entries)}
    if notation is not None:
        delivery = "per-subscription" if notation.per_subscription else "per-client"
        base |= {"dialect": notation.dialect, "policy": notation.policy, "delivery": delivery}
    for kind, expression in (("TAG", tag), ("SQL92", sql)):
        if expression is not None:
            base["selector"] = {"type": kind, "expression": expression}
    return _made({**base, **fields})


replace, add, drop, leave = (
    partial(_request, action) for action in ("COMPLETE_ADD", "PARTIAL_ADD", "PARTIAL_REMOVE", "COMPLETE_REMOVE")
)


def ended(offset: int, /, *, partition: int = 0, entry: int = 0, **fields: Any) -> Event:
    """Return the coordinator's end of a client whose last request or leave is at that offset."""
    return leave(asOf=[partition, offset, 1_000 + offset, entry], **fields)


def told(offset: int, /, *later: tuple[int, Event], version: int | None = None, **fields: Any) -> Event:
    """Return the coordinator's end of a client at that offset, with its later requests by offset."""
    place, *since = ([0, at, 1_000 + at] for at in (offset, *(at for at, _ in later)))
    ends = {mode: {"place": place, "version": version} for mode in ("literal", "wildcard")}
    requests = [{"place": at, **event} for at, (_, event) in zip(since, later, strict=True)]
    through = [place, *since][-1]
    return leave(asOf=place, version=version, ends=ends, later=requests, through=through, **fields)


def with_attributes(attributes: Any, /, group: Any = "g", **fields: Any) -> Event:
    """Return a group event with exactly these attributes."""
    return _made({"group": group, "attributes": attributes, **fields})


def attributes(*flags: str, group: Any = "g", parent: str = "p", **values: Any) -> Event:
    """Return the attributes of a group; keywords: `model`, `quota`, `reset`, `reset_unsubscribed`."""
    named = _made({_ATTRIBUTES[keyword]: value for keyword, value in values.items()})
    return with_attributes({BIND_TOPIC: parent, **dict.fromkeys(flags, "true"), **named}, group)


wildcard = partial(attributes, WILDCARD)
exclusive = partial(wildcard, model="Exclusive")
LITERAL = attributes()
WILD = wildcard()
EXCLUSIVE = exclusive()
UNBOUND = with_attributes({})
DELETED = with_attributes({}, parentTopic="p")
"""Deletion of a group's attributes on parent `p`, as the coordinator writes it."""


def superseded(offset: int, bound_to: Any = ..., *, partition: int = 0) -> Event:
    """Return the coordinator's deletion of attributes, as a consequence of the group event at that offset."""
    return _made({**DELETED, "supersededBy": [partition, offset, 999], "boundTo": bound_to})


def quota(number: int, *flags: str, **values: Any) -> Event:
    return wildcard(*flags, quota=str(number), **values)


def tick(time: Any = 0) -> Event:
    return {"tick": time}


def wake(time: Any, parent: str = "p", shard: Any = 0) -> Event:
    return {"wake": time, "parentTopic": parent, "shard": shard}
