"""What came of the demo: counts, latencies, and whether it is what the oracle says."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from streaming.updates.model import Op

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from streaming.demo.follower import Coordinates, DeadLetter, Update
    from streaming.demo.scenario import Step
    from streaming.oracle import Effective


@dataclass(slots=True)
class Record:
    """Everything that was sent, and everything that came back, in order.

    Attributes:
        sent: the steps, each with where it stands in Kafka.
    """

    sent: list[tuple[Step, Coordinates]] = field(default_factory=list)
    updates: list[Update] = field(default_factory=list)
    dead_letters: list[DeadLetter] = field(default_factory=list)

    @property
    def steps(self) -> list[Step]:
        """The steps that were sent."""
        return [step for step, _ in self.sent]

    @property
    def first_answer_ms(self) -> int | None:
        """When the job wrote its first output; None while it has not."""
        answers = [item.written_ms for item in self.updates] + [item.written_ms for item in self.dead_letters]
        return min(answers, default=None)

    def is_cold(self, update: Update) -> bool:
        """Whether its event waited for the first micro-batch, in which Spark and Python warm up."""
        first = self.first_answer_ms
        return first is None or update.sent_ms <= first

    @property
    def expected_dead_letters(self) -> set[tuple[Coordinates, str]]:
        """Where the steps that must be refused stand, and the reason that must be given."""
        return {(place, step.rejected) for step, place in self.sent if step.rejected is not None}

    @property
    def found_dead_letters(self) -> set[tuple[Coordinates, str]]:
        """Where the entries that were refused stand, and the reason that was given."""
        return {(letter.source, letter.reason) for letter in self.dead_letters}


@dataclass(frozen=True, slots=True)
class Verdict:
    """The outcome of the demo.

    Attributes:
        sent: how many events, by stream.
        updates: how many, by op.
        dead_letters: how many, by reason.
        latencies_ms: of the updates that were not cold, sorted.
        cold: how many updates were.
        held: how many (client, topic) pairs the updates topic holds.
        missing: pairs of the oracle that it lacks.
        surplus: pairs that it has and the oracle has not.
        dead_letters_missing: of those that must have come.
        dead_letters_surplus: that must not.
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
        """Whether everything is as it must be."""
        return not (self.missing or self.surplus or self.dead_letters_missing or self.dead_letters_surplus)

    @property
    def sentence(self) -> str:
        """The outcome in one sentence."""
        if self.ok:
            return (
                f"the updates topic, read back from its beginning, holds the {self.held} (client, topic) pairs of the "
                "batch oracle, and every dead letter is an expected one"
            )
        wrong = (
            (self.missing, "missing from the updates topic"),
            (self.surplus, "in the updates topic without reason"),
            (self.dead_letters_missing, "not written as dead letters"),
            (self.dead_letters_surplus, "written as dead letters without reason"),
        )
        counts = ", ".join(f"{len(items)} {what}" for items, what in wrong if items)
        return f"the result differs from the batch oracle: {counts}"

    @property
    def differences(self) -> list[str]:
        """Each thing that is wrong, in words."""
        return [
            *(f"missing: {_receives(pair)}" for pair in self.missing),
            *(f"surplus: {_receives(pair)}" for pair in self.surplus),
            *(f"missing: {_refused(place, reason)}" for place, reason in self.dead_letters_missing),
            *(f"surplus: {_refused(place, reason)}" for place, reason in self.dead_letters_surplus),
        ]

    def percentile_ms(self, percent: int) -> int | None:
        """The smallest latency that so many percent of the updates do not exceed; None without updates."""
        if not self.latencies_ms:
            return None
        return self.latencies_ms[-(-len(self.latencies_ms) * percent // 100) - 1]


def judge(record: Record, held: set[Effective], wanted: set[Effective]) -> Verdict:
    """Compares what the updates topic holds with what it should, and the dead letters with the expected ones."""
    expected, found = record.expected_dead_letters, record.found_dead_letters
    warm = [update.latency_ms for update in record.updates if not record.is_cold(update)]
    return Verdict(
        sent=Counter(step.stream.value for step in record.steps),
        updates={op.value: sum(update.op is op for update in record.updates) for op in Op},
        dead_letters=Counter(sorted(letter.reason for letter in record.dead_letters)),
        latencies_ms=sorted(warm),
        cold=len(record.updates) - len(warm),
        held=len(held),
        missing=sorted(wanted - held),
        surplus=sorted(held - wanted),
        dead_letters_missing=sorted(expected - found),
        dead_letters_surplus=sorted(found - expected),
    )


def _receives(pair: Effective) -> str:
    return f"{pair.client_id} ({pair.group}) receives {pair.parent}/{pair.lite_topic}"


def _refused(place: Coordinates, reason: str) -> str:
    return f"dead letter {reason} for {place.topic}[{place.partition}]@{place.offset}"
