"""The relation that a job wrote, against the one that its inputs define."""

import json
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from confluent_kafka import Message

from streaming.oracle import Effective
from streaming.records.model import Stream
from streaming.records.routing import Routing
from tests.chaos.load import CLIENT_TIMEOUT_MS, PARENTS
from tests.support.histories import expected
from tests.support.running_job import Streams
from tests.support.simulator import Record
from tests.support.tail import Tail

ROUTING = Routing({"p": 4, "many": 3, "few": 2}, depth=0)
"""Shards of the load's parents."""

HOSTILE_KEY = "hostile-"
"""Beginning of the Kafka keys of records that concern none of the parents whose rows are compared."""

_LATER_MS = 60_000
"""Time behind the last record, in milliseconds, at which the relation is asked for: brief topics have ended by then."""

_LOOK_SECONDS = 0.5


@dataclass(frozen=True)
class Verdict:
    """Outcome of a comparison.

    Attributes:
        rows: number of rows of the right relation.
        missing: number of its rows that the updates topic lacks.
        surplus: number of rows that only the updates topic has.
        uncommitted: number of updates that repeat an `eventId`, as a reader of uncommitted records sees them.
        committed: the same for a reader of committed records; both count from the comparison before.
        seconds: time until the comparison came out right, or was given up.
        examples: some of the rows that differ.
    """

    rows: int
    missing: int
    surplus: int
    uncommitted: int
    committed: int
    seconds: float
    examples: tuple[Effective, ...] = ()

    @property
    def right(self) -> bool:
        return not (self.missing or self.surplus or self.committed)


class Updates:
    """A reader of the updates topic: the relation so far, and how often each update came."""

    def __init__(self, streams: Streams, *, committed: bool) -> None:
        self._tail = Tail(streams.bootstrap_servers, [streams.settings.updates], committed=committed)
        self._last: dict[bytes, bytes | None] = {}
        self._ids: Counter[str] = Counter()

    def close(self) -> None:
        self._tail.close()

    def catch_up(self) -> None:
        for message in self._tail.read():
            value = message.value()
            self._last[message.key() or b""] = value
            if value is not None:
                self._ids[json.loads(value)["eventId"]] += 1

    def has(self, row: Effective) -> bool:
        value = self._last.get(json.dumps(list(row[:4]), separators=(",", ":")).encode())
        return value is not None and json.loads(value)["op"] == "ADD"

    def relation(self) -> set[Effective]:
        """Return the relation: what is left when each key keeps its last record."""
        return {
            Effective(*json.loads(key))
            for key, value in self._last.items()
            if value and json.loads(value)["op"] == "ADD"
        }

    def repeated(self) -> int:
        """Return how many updates came under an `eventId` that had come before."""
        return self._ids.total() - len(self._ids)


class Judge:
    """Holds the updates topic of a job against its inputs, both read back from Kafka."""

    def __init__(self, streams: Streams) -> None:
        settings = streams.settings
        self._streams_by_topic = {
            settings.group_events: Stream.GROUPS,
            settings.subscription_events: Stream.SUBSCRIPTIONS,
            settings.topic_events: Stream.TOPICS,
        }
        self._inputs = Tail(streams.bootstrap_servers, list(self._streams_by_topic))
        self._messages: list[Message] = []
        self.committed = Updates(streams, committed=True)
        self._uncommitted = Updates(streams, committed=False)
        self._repeated = (0, 0)

    def close(self) -> None:
        self._inputs.close()
        self.committed.close()
        self._uncommitted.close()

    def compare(self, seconds: float) -> Verdict:
        """Compare until the relation is right, for some seconds at most; nothing may be written to the inputs."""
        begun = time.monotonic()
        wanted = self._wanted()
        while True:
            self.committed.catch_up()
            found = {row for row in self.committed.relation() if row.parent in PARENTS}
            spent = time.monotonic() - begun
            if found == wanted or spent > seconds:
                break
            time.sleep(_LOOK_SECONDS)
        self._uncommitted.catch_up()
        missing, surplus = wanted - found, found - wanted
        former, self._repeated = self._repeated, (self._uncommitted.repeated(), self.committed.repeated())
        uncommitted, committed = (after - before for after, before in zip(self._repeated, former, strict=True))
        examples = tuple(sorted(missing)[:5] + sorted(surplus)[:5])
        return Verdict(len(wanted), len(missing), len(surplus), uncommitted, committed, spent, examples)

    def _wanted(self) -> set[Effective]:
        own = HOSTILE_KEY.encode()
        self._messages += (each for each in self._inputs.read() if not (each.key() or b"").startswith(own))
        records = [self._record(message) for message in sorted(self._messages, key=_time_of)]
        end = max((record.timestamp for record in records), default=0) + _LATER_MS
        tick: dict[str, Any] = {"tick": end}
        records.append(Record(Stream.CLOCK, json.dumps(tick).encode(), timestamp=end))
        return {row for row in relation_of(records) if row.parent in PARENTS}

    def _record(self, message: Message) -> Record:
        stream = self._streams_by_topic[str(message.topic())]
        return Record(stream, message.value(), message.partition() or 0, message.offset() or 0, message.timestamp()[1])


def relation_of(records: Iterable[Record]) -> set[Effective]:
    """Return the relation after these records, by its definition."""
    return expected([valid(records)], ROUTING, client_timeout_ms=CLIENT_TIMEOUT_MS).relation()


def valid(records: Iterable[Record]) -> list[Record]:
    """Return the records whose values are JSON objects, each entry of which can be looked at."""
    found = []
    for record in records:
        try:
            value = json.loads(record.value or b"")
        except ValueError:
            continue
        entries = value.get("subscriptionSet", []) if isinstance(value, dict) else None
        if isinstance(entries, list):
            found.append(record)
    return found


def _time_of(message: Message) -> tuple[int, int, int]:
    """Return the order of records across partitions: that of the broker's time, as all have."""
    return message.timestamp()[1], message.partition() or 0, message.offset() or 0
