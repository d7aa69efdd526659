"""Result of the demo: counts, latencies, and the comparison with the oracle."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from streaming.updates.model import Op

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from streaming.demo.follower import Coordinates, DeadLetter, ReceivedUpdate
    from streaming.demo.scenario import Step
    from streaming.oracle import Effective


@dataclass(slots=True)
class Transcript:
    """Everything sent and everything received, in order.

    Attributes:
        sent: the steps, each with its place in Kafka.
    """

    sent: list[tuple[Step, Coordinates]] = field(default_factory=list)
    updates: list[ReceivedUpdate] = field(default_factory=list)
    dead_letters: list[DeadLetter] = field(default_factory=list)

    @property
    def steps(self) -> list[Step]:
        """Steps sent so far."""
        return [step for step, _ in self.sent]

    @property
    def first_answer_ms(self) -> int | None:
        """Time of the job's first output, in milliseconds since the epoch; None before it."""
        answers = [item.seen_ms for item in self.updates] + [item.seen_ms for item in self.dead_letters]
        return min(answers, default=None)

    def is_cold(self, update: ReceivedUpdate) -> bool:
        """Tell whether the event of an update waited for the first micro-batch, in which Spark and Python warm up."""
        first = self.first_answer_ms
        return first is None or update.sent_ms <= first

    @property
    def expected_dead_letters(self) -> set[tuple[Coordinates, str]]:
        """Places of the invalid steps, each with the expected reason."""
        return {(place, step.rejected) for step, place in self.sent if step.rejected is not None}

    @property
    def found_dead_letters(self) -> set[tuple[Coordinates, str]]:
        """Places of the refused entries, each with the given reason."""
        return {(letter.source, letter.reason) for letter in self.dead_letters}


@dataclass(frozen=True, slots=True)
class Verdict:
    """The outcome of the demo.

    Attributes:
        sent: number of events, by stream.
        updates: number of updates, by op.
        dead_letters: number of dead letters, by reason.
        latencies_ms: latencies of all but the cold updates, sorted.
        cold: number of cold updates.
        held: number of (client, topic) pairs in the updates topic.
        missing: pairs of the oracle alone.
        surplus: pairs of the updates topic alone.
        dead_letters_missing: expected dead letters without a match.
        dead_letters_surplus: dead letters without an expected match.
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
        """Outcome in one sentence."""
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
        """Description of each difference."""
        return [
            *(f"missing: {_receives(pair)}" for pair in self.missing),
            *(f"surplus: {_receives(pair)}" for pair in self.surplus),
            *(f"missing: {_refused(place, reason)}" for place, reason in self.dead_letters_missing),
            *(f"surplus: {_refused(place, reason)}" for place, reason in self.dead_letters_surplus),
        ]

    def percentile_ms(self, percent: int) -> int | None:
        """Return a percentile of the latencies, by nearest rank; None without updates."""
        if not self.latencies_ms:
            return None
        return self.latencies_ms[-(-len(self.latencies_ms) * percent // 100) - 1]


def judge(transcript: Transcript, held: set[Effective], wanted: set[Effective]) -> Verdict:
    """Compare the rows of the updates topic with the wanted ones, and the dead letters with the expected ones."""
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


def _receives(pair: Effective) -> str:
    return f"{pair.client_id} ({pair.group}) receives {pair.parent}/{pair.lite_topic}"


def _refused(place: Coordinates, reason: str) -> str:
    return f"dead letter {reason} for {place.topic}[{place.partition}]@{place.offset}"
