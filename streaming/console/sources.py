"""Data sources of the console: their records and protocols."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from streaming.monitor.batch import TOTAL
from streaming.records.op import Op

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from streaming.client.rows import Subscriber
    from streaming.console.live import LiveRelation
    from streaming.monitor.batch import BatchReport

_BATCHES: Final = 500
"""Maximum number of micro-batches with records in the timings."""

_UPDATES: Final = tuple(f"{op.lower()}:" for op in Op)


class BatchTiming(NamedTuple):
    """Timing of a micro-batch.

    Attributes:
        number: number of the micro-batch.
        started_ms: start, in milliseconds since the epoch.
        seconds: duration.
        records: number of input records.
        updates: number of updates.
        phases: duration of each phase in seconds, by name, in order.
    """

    number: int
    started_ms: int
    seconds: float
    records: int
    updates: int
    phases: Mapping[str, float]


class Timings(Protocol):
    """Timings of the last micro-batches, which only the job has."""

    def recent(self) -> Sequence[BatchTiming]:
        """Return the last micro-batches, at most 500, oldest first."""


class RecentBatches:
    """The last micro-batches. One thread may add them while others read."""

    def __init__(self) -> None:
        self._kept: deque[BatchTiming] = deque(maxlen=_BATCHES)

    def follow(self, batch: BatchReport) -> None:
        """Add a committed micro-batch."""
        if not batch.records:
            return
        phases = dict(batch.phases)
        seconds = phases.pop(TOTAL, 0.0)
        updates = sum(count for kind, count in batch.counts.items() if kind.startswith(_UPDATES))
        began = int((batch.ended - seconds) * 1_000)
        self._kept.append(BatchTiming(batch.number, began, seconds, batch.records, updates, phases))

    def recent(self) -> list[BatchTiming]:
        """Return the last micro-batches, oldest first."""
        return list(self._kept)


class Check(NamedTuple):
    """A condition for a pair of client and topic.

    Attributes:
        name: name of the condition, such as `entry` or `quota`.
        met: True or False; None if unknown.
        detail: a sentence.
        steps: comparison of pattern and topic by segment, with the fields of `matcher.explain.Step`.
    """

    name: str
    met: bool | None
    detail: str
    steps: Sequence[Mapping[str, Any]] = ()


class Explained(NamedTuple):
    """Reason why a client does or does not receive a topic.

    Attributes:
        receives: True if it does.
        headline: a sentence.
        basis: source of the explanation.
        checks: the conditions, in the order in which they decide.
        history: updates of the pair, newest first, with the fields of `streaming.console.changes.SeenChange`.
    """

    receives: bool
    headline: str
    basis: str
    checks: Sequence[Check]
    history: Sequence[Mapping[str, Any]] = ()


class Explainer(Protocol):
    """Thread-safe source of explanations."""

    def explain(self, subscriber: Subscriber, lite_topic: str) -> Explained:
        """Explain a pair. A subscriber without a part is the client with all its parts."""


class LetterPage(NamedTuple):
    """A page of dead letters.

    Attributes:
        letters: id, reason, message, beginning of the entry (`original`), size and time of each dead letter.
        total: number of kept dead letters that match the request.
        counts: number of kept dead letters by reason.
        cut: number of older dead letters that are not kept.
        error: reason why they cannot be read now; empty otherwise.
    """

    letters: Sequence[Mapping[str, Any]]
    total: int
    counts: Mapping[str, int]
    cut: int
    error: str = ""


class Letters(Protocol):
    """Thread-safe source of dead letters."""

    def page(self, reason: str, start: int, size: int) -> LetterPage:
        """Return dead letters with a reason, or all if it is empty, newest first."""


@dataclass(frozen=True, slots=True)
class ConsoleSources:
    """Data sources of a console.

    Attributes:
        relation: the relation, and its last changes.
        explainer: source of explanations.
        letters: dead letters; None if they are not read.
        timings: timings of the job's micro-batches; None for a standalone console.
        about: labels in the header of the page, such as the broker's address, by name.
    """

    relation: LiveRelation
    explainer: Explainer
    letters: Letters | None = None
    timings: Timings | None = None
    about: Mapping[str, str] = field(default_factory=dict)
