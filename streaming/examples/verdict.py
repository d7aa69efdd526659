"""Output of the job, as the demo reads it, and its comparison with the oracle."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import orjson

from streaming.client import Relation
from streaming.kafka.reader import TopicReader
from streaming.oracle import Effective
from streaming.records.updates import Cause, Op

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from streaming.config import Settings
    from streaming.examples.scenario import Step

_LAZY = frozenset({Cause.TOPIC_CREATED, Cause.TOPIC_DELETED, Cause.TOPIC_EXPIRED, Cause.QUOTA_FREED})


class Coordinates(NamedTuple):
    """Position of a record in Kafka."""

    topic: str
    partition: int
    offset: int


@dataclass(frozen=True, slots=True)
class ReceivedUpdate:
    """An update, as read from Kafka.

    Attributes:
        sent_ms: time of the causing event's record, in milliseconds since the epoch.
        seen_ms: time when the update was read. It can be read when its transaction is committed.
    """

    op: Op
    row: Effective
    patterns: tuple[str, ...]
    cause: Cause
    sent_ms: int
    seen_ms: int

    @property
    def path(self) -> str:
        """`lazy` if a topic was matched with stored patterns; `eager` if a pattern was matched with stored topics."""
        return "lazy" if self.cause in _LAZY else "eager"

    @property
    def latency_ms(self) -> int:
        """Milliseconds from the causing event's record to the reading of the update."""
        return self.seen_ms - self.sent_ms


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A dead letter, as read from Kafka."""

    reason: str
    message: str
    source: Coordinates
    seen_ms: int


def effective_rows(relation: Relation) -> set[Effective]:
    """Convert the rows of a relation to the oracle's type."""
    return {Effective(row.parent, row.group, row.client_id, row.lite_topic, row.part or "") for row in relation.rows()}


def read_relation(settings: Settings) -> set[Effective]:
    """Return the relation in the updates topic, read from its beginning."""
    relation = Relation()
    with TopicReader(settings.bootstrap_servers, {}) as reader:
        for message in (each for block in reader.read(reader.spans([settings.updates])) for each in block):
            relation.apply(message.key(), message.value())
    return effective_rows(relation)


class Follower:
    """Reader of the output topics from their beginning, with the relation after the updates read so far."""

    def __init__(self, settings: Settings) -> None:
        self._updates = settings.updates
        self._relation = Relation()
        self._reader = TopicReader(settings.bootstrap_servers, {})
        spans = self._reader.spans([settings.updates, settings.dead_letters])
        self._reader.start({partition: span.start for partition, span in spans.items()})

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._reader.__exit__()

    @property
    def relation(self) -> set[Effective]:
        """Relation after the updates read so far."""
        return effective_rows(self._relation)

    def poll(self, seconds: float) -> Iterator[ReceivedUpdate | DeadLetter]:
        """Yield the available records, after waiting at most `seconds` for the first."""
        for message in self._reader.poll(seconds):
            value, seen_ms = message.value(), int(time.time() * 1_000)
            is_update = message.topic() == self._updates
            if is_update:
                self._relation.apply(message.key(), value)
            if value is None:
                continue
            record: dict[str, Any] = orjson.loads(value)
            source = record["source"]
            if is_update:
                row = Effective(record["parentTopic"], record["group"], record["clientId"], record["liteTopic"])
                patterns, cause = tuple(record["patterns"]), Cause(record["cause"])
                yield ReceivedUpdate(Op(record["op"]), row, patterns, cause, source["timestamp"], seen_ms)
            else:
                place = Coordinates(source["topic"], source["partition"], source["offset"])
                yield DeadLetter(record["reason"], record["message"], place, seen_ms)


@dataclass(slots=True)
class Transcript:
    """Sent steps, with their positions in Kafka, and received records, in order."""

    sent: list[tuple[Step, Coordinates]] = field(default_factory=list)
    updates: list[ReceivedUpdate] = field(default_factory=list)
    dead_letters: list[DeadLetter] = field(default_factory=list)

    @property
    def steps(self) -> list[Step]:
        """Steps sent so far."""
        return [step for step, _ in self.sent]

    def is_cold(self, update: ReceivedUpdate) -> bool:
        """Return True if an update is in the first micro-batch, in which Spark and Python warm up."""
        seen = [item.seen_ms for item in self.updates] + [item.seen_ms for item in self.dead_letters]
        return update.sent_ms <= min(seen, default=update.sent_ms)

    @property
    def expected_dead_letters(self) -> set[tuple[Coordinates, str]]:
        """Positions of the invalid steps, with the expected reasons."""
        return {(place, step.rejected) for step, place in self.sent if step.rejected is not None}

    @property
    def found_dead_letters(self) -> set[tuple[Coordinates, str]]:
        """Positions of the rejected entries, with the reasons in their dead letters."""
        return {(letter.source, letter.reason) for letter in self.dead_letters}


@dataclass(frozen=True, slots=True)
class Verdict:
    """The outcome of the demo, with the number of events by stream, of updates by op, and of dead letters by reason.

    Attributes:
        latencies_ms: sorted latencies of the warm updates.
        cold: number of updates of the first micro-batch.
        held: number of (client, topic) pairs in the updates topic.
    """

    sent: Mapping[str, int]
    updates: Mapping[str, int]
    dead_letters: Mapping[str, int]
    latencies_ms: Sequence[int]
    cold: int
    held: int
    missing: Sequence[Effective]
    surplus: Sequence[Effective]
    dead_letters_missing: Sequence[tuple[Coordinates, str]]
    dead_letters_surplus: Sequence[tuple[Coordinates, str]]

    @property
    def ok(self) -> bool:
        """True if the result equals the oracle's."""
        return not (self.missing or self.surplus or self.dead_letters_missing or self.dead_letters_surplus)

    @property
    def sentence(self) -> str:
        """Result in one sentence."""
        if self.ok:
            return (
                f"the updates topic, read from its beginning, contains the {self.held} (client, topic) pairs of the "
                "batch oracle, and all dead letters are expected"
            )
        wrong = (
            (self.missing, "missing from the updates topic"),
            (self.surplus, "surplus in the updates topic"),
            (self.dead_letters_missing, "missing dead letters"),
            (self.dead_letters_surplus, "unexpected dead letters"),
        )
        counts = ", ".join(f"{len(items)} {what}" for items, what in wrong if items)
        return f"the result differs from the batch oracle: {counts}"

    @property
    def differences(self) -> list[str]:
        """Description of each difference."""
        pairs = (("missing", self.missing), ("surplus", self.surplus))
        letters = (("missing", self.dead_letters_missing), ("surplus", self.dead_letters_surplus))
        return [
            *(
                f"{kind}: {pair.client_id} ({pair.group}) receives {pair.parent}/{pair.lite_topic}"
                for kind, items in pairs
                for pair in items
            ),
            *(
                f"{kind}: dead letter {reason} for {place.topic}[{place.partition}]@{place.offset}"
                for kind, found in letters
                for place, reason in found
            ),
        ]

    def percentile_ms(self, percent: int) -> int | None:
        """Return a percentile of the latencies, by nearest rank; None without updates."""
        if not self.latencies_ms:
            return None
        return self.latencies_ms[-(-len(self.latencies_ms) * percent // 100) - 1]


def judge(transcript: Transcript, held: set[Effective], wanted: set[Effective]) -> Verdict:
    """Compare the rows of the updates topic and the dead letters with the expected ones."""
    expected, found = transcript.expected_dead_letters, transcript.found_dead_letters
    warm = [update.latency_ms for update in transcript.updates if not transcript.is_cold(update)]
    return Verdict(
        sent=Counter(step.stream.value for step in transcript.steps),
        updates={op.value: sum(update.op is op for update in transcript.updates) for op in Op},
        dead_letters=Counter(sorted(letter.reason for letter in transcript.dead_letters)),
        latencies_ms=sorted(warm),
        cold=len(transcript.updates) - len(warm),
        held=len(held),
        missing=sorted(wanted - held),
        surplus=sorted(held - wanted),
        dead_letters_missing=sorted(expected - found),
        dead_letters_surplus=sorted(found - expected),
    )
