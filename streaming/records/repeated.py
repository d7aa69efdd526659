"""Requests that the job repeats in the records of ends, as fields of JSON."""

from collections.abc import Mapping
from typing import Any

import orjson

from streaming.records.model import End, Place, SubscriptionRequest


def repeated_fields(place: Place, request: SubscriptionRequest) -> dict[str, Any]:
    """Return the fields of a request that a shard needs to apply it again.

    Args:
        place: of the request.
        request: the request.
    """
    ends = None if request.ends is None else ends_fields(request.ends)
    return without_none({
        **_own_fields(request), "ends": ends, "expired": request.expired or None, "forgets": request.forgets or None,
        "place": list(place),
    })  # fmt: skip


def entry_of(request: SubscriptionRequest) -> bytes:
    """Return a request as the entry of a subscription record."""
    names = {"clientId": request.client_id, "group": request.group, "topic": request.parent}
    return orjson.dumps(without_none({**names, **_own_fields(request)}))


def ends_fields(ends: Mapping[str, End]) -> dict[str, Any]:
    """Return the fields of an end under each mode."""
    return {
        str(mode): without_none({**end._asdict(), "place": list(end.place), "forgets": end.forgets or None})
        for mode, end in ends.items()
    }


def without_none(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields that have a value."""
    return {name: value for name, value in fields.items() if value is not None}


def _own_fields(request: SubscriptionRequest) -> dict[str, Any]:
    dialect, policy, per_subscription = request.notation
    return {
        "action": request.action,
        "liteTopicSet": request.entries,
        "version": request.version,
        "offsetOption": request.offset_option,
        "selector": request.selector and {"type": request.selector.kind, "expression": request.selector.text},
        "dialect": dialect,
        "policy": policy,
        "delivery": "per-subscription" if per_subscription else "per-client",
    }
