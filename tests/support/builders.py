"""Short builders of events, and of a shard that applies them."""

import json
from typing import Any

from streaming.records.model import (
    BIND_TOPIC,
    LITE,
    MODEL,
    QUOTA,
    WILDCARD,
    Action,
    End,
    GroupEvent,
    Notation,
    Place,
    SelectorSpec,
    SubscriptionRequest,
    TopicEvent,
    Wake,
)
from tests.support import values

MQTT = Notation("mqtt")
NATS = Notation("nats")
WAMP = Notation("wamp", None, per_subscription=True)


def bound(
    group: str = "g", *, wildcard: bool = True, exclusive: bool = False, quota: int | None = None, resets: str = ""
) -> GroupEvent:
    """Build the attributes of a group of parent `p`; `resets` is `exclusive` or `unsubscribe`."""
    attributes = {BIND_TOPIC: "p"}
    if wildcard:
        attributes[WILDCARD] = "true"
    if exclusive:
        attributes[MODEL] = "Exclusive"
    if quota is not None:
        attributes[QUOTA] = str(quota)
    if resets:
        attributes[f"lite.sub.reset.offset.{resets}"] = "true"
    return GroupEvent(group, attributes, "p")


WILD = bound()
LITERAL = bound(wildcard=False)
DELETED = GroupEvent("g", {}, "p")
EXCLUSIVE = bound(exclusive=True)


def topic_value(**changes: Any) -> dict[str, Any]:
    """Return a valid topic event of parent `p`, with changes; `...` leaves a field out."""
    return values.created("t", **changes)


def request_value(**changes: Any) -> dict[str, Any]:
    """Return a valid subscription entry on parent `p`, with changes; `...` leaves a field out."""
    return values.replace("t", **changes)


def topic_json(**changes: Any) -> bytes:
    return json.dumps(topic_value(**changes)).encode()


def request_json(**changes: Any) -> bytes:
    return json.dumps(request_value(**changes)).encode()


def group_json(**changes: Any) -> bytes:
    """Return a valid group event as bytes, with changes; `...` leaves a field out."""
    return json.dumps(_changed({"group": "g", "attributes": {BIND_TOPIC: "p", WILDCARD: "true"}}, changes)).encode()


def tick_json(**changes: Any) -> bytes:
    """Return a tick as bytes, with changes; `...` leaves a field out."""
    return json.dumps(_changed({"tick": 5_000}, changes)).encode()


def created(lite_topic: str, tags: str | None = None, ttl_ms: int | None = None, **properties: str) -> TopicEvent:
    return TopicEvent("p", lite_topic, True, tags, properties or None, None, ttl_ms)


def deleted(lite_topic: str) -> TopicEvent:
    return TopicEvent("p", lite_topic, created=False)


def request(
    action: Action,
    *entries: str,
    client: str = "c",
    group: str = "g",
    version: int | None = None,
    option: dict[str, Any] | None = None,
    notation: Notation = LITE,
    tag: str | None = None,
    sql: str | None = None,
) -> SubscriptionRequest:
    """Build a request of a client on parent `p`, optionally with a selector."""
    selector = SelectorSpec("TAG", tag) if tag is not None else SelectorSpec("SQL92", sql) if sql is not None else None
    return SubscriptionRequest("p", group, client, action, entries, version, option, notation, selector)


def replace(*entries: str, **fields: Any) -> SubscriptionRequest:
    return request(Action.COMPLETE_ADD, *entries, **fields)


def add(*entries: str, **fields: Any) -> SubscriptionRequest:
    return request(Action.PARTIAL_ADD, *entries, **fields)


def drop(*entries: str, **fields: Any) -> SubscriptionRequest:
    return request(Action.PARTIAL_REMOVE, *entries, **fields)


def leave(**fields: Any) -> SubscriptionRequest:
    return request(Action.COMPLETE_REMOVE, **fields)


def ended(
    offset: int,
    *,
    client: str = "c",
    version: int | None = None,
    expired: bool = False,
    partition: int = 0,
    entry: int = 0,
) -> SubscriptionRequest:
    """Build the coordinator's end of a client whose last request or leave is at that offset."""
    request_ = leave(client=client, version=version)
    return request_._replace(as_of=Place(partition, offset, 1_000 + offset, entry), expired=expired)


def told(
    offset: int, *later: tuple[int, SubscriptionRequest], client: str = "c", version: int | None = None
) -> SubscriptionRequest:
    """Build the coordinator's end of a client at that offset, with its later requests by offset."""
    place = Place(0, offset, 1_000 + offset)
    since = tuple((Place(0, at, 1_000 + at), request_) for at, request_ in later)
    ends = {mode: End(place, version) for mode in ("literal", "wildcard")}
    return leave(client=client, version=version)._replace(
        as_of=place, ends=ends, later=since, through=since[-1][0] if since else place
    )


def wake(time: int) -> Wake:
    return Wake("p", 0, time)


def _changed(base: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in {**base, **changes}.items() if value is not ...}
