"""Records of the coordinator and for it, all on input streams."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson

from streaming.coordinator.state import PendingEnd
from streaming.records.model import Action, End, Place, SubscriptionRequest, ends_fields, repeated_fields, without_none
from streaming.records.record import KafkaRecord
from streaming.records.subscribers import ClientKey


def alarm(parent: str, shard: int, time: int) -> KafkaRecord:
    """Return the clock record with which a shard asks to be woken at a time."""
    return _record(parent, {"alarm": time, "parentTopic": parent, "shard": shard})


def wake(parent: str, shard: int, time: int) -> KafkaRecord:
    """Return the clock record that wakes a shard, with the time."""
    return _record(parent, {"wake": time, "parentTopic": parent, "shard": shard})


def group_end(group: str, parent: str, superseded_by: Place, bound_to: str | None = None) -> KafkaRecord:
    """Return the group event that ends a group on one parent.

    The event at `superseded_by` bound the group to `bound_to`, or deleted it.
    """
    event = {"group": group, "attributes": {}, "parentTopic": parent, "supersededBy": list(superseded_by[:3])}
    if bound_to is not None:
        event["boundTo"] = bound_to
    return _record(group, event)


MAX_LATER_BYTES = 262_144
"""Size in bytes of the requests in one record of an end, above which the next request goes into another record."""

_CHARACTER_BYTES = 4
"""Maximum number of bytes of a character of a JSON text in another JSON text."""


@dataclass(slots=True)
class EndNews:
    """Additions of a micro-batch to the end of a client on a parent.

    Attributes:
        former: the end as it was written before; None if it begins.
        ends: its beginning under each mode; None if it continues.
    """

    former: PendingEnd | None
    ends: Mapping[str, End] | None
    later: list[tuple[Place, SubscriptionRequest]] = field(default_factory=list)


def client_end(
    key: ClientKey, parent: str, pending: PendingEnd, news: EndNews, max_bytes: int
) -> Iterator[KafkaRecord]:
    """Yield the requests that end a client on one parent, or continue its end.

    A request beyond `max_bytes` is split, because Kafka limits the size of a record.
    """
    name = without_none({
        "action": Action.COMPLETE_REMOVE,
        "clientId": key.client_id,
        "group": key.group,
        "topic": parent,
        "asOf": list(pending.as_of),
        "expired": pending.expired or None,
        "forgets": pending.forgets or None,
    })  # fmt: skip
    begins: dict[str, Any] = {"continues": True} if news.ends is None else {"ends": ends_fields(news.ends)}
    former = news.former
    count, through = (0, pending.as_of) if former is None else (former.later_count, former.through)
    for places, part in _parts(news.later, max_bytes):
        if not (places or part or "ends" in begins):
            continue
        count, through = count + len(places), places[-1] if places else through
        end = {"through": list(through), **begins, "laterCount": count}
        yield _record(key.group, {**name, **end, **part})
        begins = {"continues": True}


def _parts(
    later: Iterable[tuple[Place, SubscriptionRequest]], max_bytes: int
) -> Iterator[tuple[list[Place], dict[str, Any]]]:
    """Yield the content of each record: the places of the requests that end with it, and its fields."""
    places: list[Place] = []
    part: list[dict[str, Any]] = []
    size = 0
    for place, request in later:
        fields = repeated_fields(place, request)
        text = orjson.dumps(fields)
        if places and size + len(text) > max_bytes:
            yield places, {"later": part}
            places, part, size = [], [], 0
        if len(text) <= max_bytes:
            places.append(place)
            part.append(fields)
            size += len(text)
            continue
        yield [], {}
        whole, length = text.decode(), max(1, max_bytes // _CHARACTER_BYTES)
        pieces = [whole[start : start + length] for start in range(0, len(whole), length)]
        for number, piece in enumerate(pieces, 1):
            yield [place] if number == len(pieces) else [], {"piece": [number - 1, piece]}
    yield places, {"later": part} if part else {}


def _record(key: str, value: dict[str, Any]) -> KafkaRecord:
    return KafkaRecord(key.encode(), orjson.dumps(value))
