"""Sources of the console: the records that it shows, and protocols of those that have them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from streaming.client.rows import Subscriber
    from streaming.console.live import LiveRelation


class BatchTiming(NamedTuple):
    """Timing of one micro-batch.

    Attributes:
        number: number of the micro-batch.
        started_ms: its start, in milliseconds since the epoch.
        seconds: its duration.
        records: number of input records.
        updates: number of updates.
        phases: duration of its phases in seconds, by name, in their order.
    """

    number: int
    started_ms: int
    seconds: float
    records: int
    updates: int
    phases: Mapping[str, float]


class Timings(Protocol):
    """Timings of the last micro-batches, which only the job itself has."""

    def recent(self) -> Sequence[BatchTiming]:
        """Return the last micro-batches, the oldest first, 500 at most."""


class Check(NamedTuple):
    """One condition that a pair of client and topic meets, or does not meet.

    Attributes:
        name: name of the condition, such as `pattern` or `quota`.
        met: True, False, or None where it is not known.
        detail: one sentence.
        steps: the pattern beside the topic, segment by segment, as the fields of `matcher.explain.Step`.
    """

    name: str
    met: bool | None
    detail: str
    steps: Sequence[Mapping[str, Any]] = ()


class Explained(NamedTuple):
    """Reason for which a client does or does not receive a topic.

    Attributes:
        receives: True if it does.
        headline: one sentence.
        basis: what the answer was read from.
        checks: the conditions, in the order in which they decide.
        history: updates of the pair, the newest first, with the fields of `streaming.console.changes.SeenChange`.
    """

    receives: bool
    headline: str
    basis: str
    checks: Sequence[Check]
    history: Sequence[Mapping[str, Any]] = ()


class Explainer(Protocol):
    """Source of explanations; safe in any number of threads."""

    def explain(self, subscriber: Subscriber, lite_topic: str) -> Explained:
        """Explain one pair; a subscriber without a part stands for the client with all of its parts."""


class LetterPage(NamedTuple):
    """A part of the dead letters.

    Attributes:
        letters: id, reason, message, the beginning of the entry (`original`), its size, and time of each.
        total: number of dead letters that are kept and fit the question.
        counts: number of kept dead letters by reason.
        cut: number of older dead letters that are not kept.
        error: reason for which they cannot be read now; empty otherwise.
    """

    letters: Sequence[Mapping[str, Any]]
    total: int
    counts: Mapping[str, int]
    cut: int
    error: str = ""


class Letters(Protocol):
    """Source of dead letters; safe in any number of threads."""

    def page(self, reason: str, start: int, size: int) -> LetterPage:
        """Return dead letters of a reason (all, where it is empty), the newest first."""


@dataclass(frozen=True, slots=True)
class ConsoleSources:
    """Everything that one console shows.

    Attributes:
        relation: the relation, and the last changes.
        explainer: source of explanations.
        letters: dead letters; None where nobody reads them.
        timings: timings of the job's micro-batches; None beside a job.
        about: texts for the head of the page, such as the broker's address, by name.
    """

    relation: LiveRelation
    explainer: Explainer
    letters: Letters | None = None
    timings: Timings | None = None
    about: Mapping[str, str] = field(default_factory=dict)
