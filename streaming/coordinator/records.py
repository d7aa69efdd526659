"""Records of the coordinator and for it, all on input streams."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import orjson

from streaming.coordinator.state import PendingEnd
from streaming.events.model import Action, Place, SubscriptionRequest
from streaming.subscription.subscribers import ClientKey
from streaming.updates.records import KafkaRecord


def alarm(parent: str, shard: int, time: int) -> KafkaRecord:
    """Return the clock record with which a shard asks to be woken at a time."""
    return _record(parent, {"alarm": time, "parentTopic": parent, "shard": shard})


def wake(parent: str, shard: int, time: int) -> KafkaRecord:
    """Return the clock record that wakes a shard and tells it the time."""
    return _record(parent, {"wake": time, "parentTopic": parent, "shard": shard})


def group_end(group: str, parent: str, superseded_by: Place, bound_to: str | None = None) -> KafkaRecord:
    """Return the group event that ends a group on one parent.

    Args:
        group: the group.
        parent: the parent that it is not, or no longer, bound to.
        superseded_by: the place of the event that bound the group elsewhere, or deleted it.
        bound_to: the parent that the group is bound to; None for a deleted group.
    """
    event = {"group": group, "attributes": {}, "parentTopic": parent, "supersededBy": list(superseded_by[:3])}
    if bound_to is not None:
        event["boundTo"] = bound_to
    return _record(group, event)


def client_end(key: ClientKey, parent: str, pending: PendingEnd) -> Iterator[KafkaRecord]:
    """Yield the requests that unsubscribe a client from one parent: several if one would be too long.

    Args:
        key: the client.
        parent: the parent.
        pending: the end.
    """
    end: dict[str, Any] = {
        "action": Action.COMPLETE_REMOVE,
        "clientId": key.client_id,
        "group": key.group,
        "topic": parent,
        "asOf": list(pending.as_of),
        "through": list(pending.through),
    }
    if pending.expired:
        end["expired"] = True
    ends = {
        str(mode): _without_none({**each._asdict(), "place": list(each.place), "forgets": each.forgets or None})
        for mode, each in pending.ends.items()
    }
    first = {**end, "ends": ends}
    for later in _pieces(_request_fields(place, request) for place, request in pending.later):
        first["laterCount"] = first.get("laterCount", 0) + len(later)
        yield _record(key.group, {**first, "later": later} if later else first)
        first = {**first, "continues": True}


MAX_LATER_BYTES = 262_144
"""Size in bytes of the requests in one record of an end, above which the next request goes into another record."""


def _pieces(requests: Iterable[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    """Yield lists of requests that are short enough for a record; one empty list if there are none."""
    piece: list[dict[str, Any]] = []
    size = 0
    for request in requests:
        length = len(orjson.dumps(request))
        if piece and size + length > MAX_LATER_BYTES:
            yield piece
            piece, size = [], 0
        piece.append(request)
        size += length
    yield piece


def _request_fields(place: Place, request: SubscriptionRequest) -> dict[str, Any]:
    """Return what a shard needs of a request to apply it once more."""
    dialect, policy, per_subscription = request.notation
    return _without_none({
        "action": request.action,
        "liteTopicSet": request.entries,
        "version": request.version,
        "offsetOption": request.offset_option,
        "selector": request.selector and {"type": request.selector.kind, "expression": request.selector.text},
        "dialect": dialect,
        "policy": policy,
        "delivery": "per-subscription" if per_subscription else "per-client",
        "expired": request.expired or None,
        "forgets": request.forgets or None,
        "place": list(place),
    })  # fmt: skip


def _without_none(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


def _record(key: str, value: dict[str, Any]) -> KafkaRecord:
    return KafkaRecord(key.encode(), orjson.dumps(value))
