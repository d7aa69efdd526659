"""Questions, as fields of records of the clock topic.

The record is a wake of a shard, or a tick for all buckets of the coordinator, with the time 0. A release without
questions ignores the field, and the time 0 changes nothing.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

import orjson

from streaming.errors import Rejected
from streaming.records.model import MAX_NAME_BYTES, Reason
from streaming.records.record import KafkaRecord

ANSWERABLE_MS: Final = 120_000
"""Maximum age of a question in ms. Older ones are dropped: a replay of the clock answers none."""

MAX_ITEMS: Final = 10_000
"""Maximum number of items of a list in one answer."""


class Ask(StrEnum):
    """Kind of a question."""

    EXPLAIN = "explain"
    TOPICS = "topics"
    SUBSCRIPTIONS = "subscriptions"
    CLIENTS = "clients"
    GROUPS = "groups"
    TOPIC = "topic"
    PLAN = "plan"


@dataclass(frozen=True, slots=True)
class Question:
    """A question to one key, or to all buckets of the coordinator.

    Attributes:
        id: chosen by the sender; the answer repeats it.
        pattern: only items whose names it matches; None for all.
        cursor: place from which a list continues, from a former answer.
        limit: maximum number of items of a list.
    """

    id: str
    ask: Ask
    client: str | None = None
    group: str | None = None
    topic: str | None = None
    pattern: str | None = None
    dialect: str = "lite"
    cursor: int = 0
    limit: int = 1_000
    stream: str | None = None
    record: Mapping[str, Any] = field(default_factory=dict)

    def for_shard(self, parent: str, number: int) -> KafkaRecord:
        """Return the clock record with this question to a shard."""
        value = {"wake": 0, "parentTopic": parent, "shard": number, "inquiry": self._fields()}
        return KafkaRecord(parent.encode(), orjson.dumps(value))

    def for_coordinator(self) -> KafkaRecord:
        """Return the clock record with this question to the coordinator."""
        return KafkaRecord(b"", orjson.dumps({"tick": 0, "inquiry": self._fields()}))

    def _fields(self) -> dict[str, Any]:
        fields = {name: getattr(self, name) for name in self.__slots__}
        return {name: value for name, value in fields.items() if value is not None}


def parse_question(fields: Mapping[str, Any]) -> Question:
    """Return a question of a clock record; raise `Rejected`."""
    kinds: dict[str, type] = {
        **dict.fromkeys(("id", "ask", "client", "group", "topic", "pattern", "dialect", "stream"), str),
        **dict.fromkeys(("cursor", "limit"), int),
        "record": dict,
    }
    for name, value in fields.items():
        if name not in kinds or not isinstance(value, kinds[name]):
            raise Rejected(Reason.WRONG_TYPE, f"a question has no such field: {name}={str(value)[:150]!r}"[:200])
        if isinstance(value, str) and len(value) > MAX_NAME_BYTES:
            raise Rejected(Reason.NAME_TOO_LONG, f"{name} of a question is longer than {MAX_NAME_BYTES:,} characters")
    try:
        question = Question(**{**fields, "ask": Ask(fields["ask"])})
    except (KeyError, TypeError, ValueError) as error:
        raise Rejected(Reason.MISSING_FIELD, f"a question needs an id, and a kind that is known: {error}") from None
    if not (0 < question.limit <= MAX_ITEMS and question.cursor >= 0):
        raise Rejected(Reason.OUT_OF_RANGE, f"limit must be 1 to {MAX_ITEMS:,}, and cursor at least 0")
    return question
