"""Records of the coordinator and for it, all on input streams."""

from typing import Any

import orjson

from streaming.events.model import Action, Place
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


def client_end(
    key: ClientKey, parent: str, as_of: Place, *, version: int | None = None, expired: bool = False
) -> KafkaRecord:
    """Return the request that unsubscribes a client from one parent.

    Args:
        key: the client.
        parent: the parent.
        as_of: the place of the request that ended the client, or of its last one before its lease expired.
        version: of the request that ended it.
        expired: its lease has expired.
    """
    entry: dict[str, Any] = {
        "action": Action.COMPLETE_REMOVE,
        "clientId": key.client_id,
        "group": key.group,
        "topic": parent,
        "asOf": list(as_of),
    }
    if version is not None:
        entry["version"] = version
    if expired:
        entry["expired"] = True
    return _record(key.group, entry)


def _record(key: str, value: dict[str, Any]) -> KafkaRecord:
    return KafkaRecord(key.encode(), orjson.dumps(value))
