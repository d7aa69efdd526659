"""The playground: one pattern tried on topics, with the verdict on each segment."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import matcher
from streaming.console.budget import MAX_SEGMENTS, STEPS, Budget, cost, shown_steps, widest_run

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from matcher.dialects import Dialect
    from matcher.pattern import Pattern
    from streaming.console.live import LiveRelation

SCANNED = 20_000
"""Greatest number of topics of a parent on which a pattern is tried at once."""

SHOWN = 100
"""Greatest number of topics that match, and of those that do not, in one answer."""

_SAMPLE = 400
"""Number of topics of a parent among which those are searched that nearly match."""

_STEPS_A_SEGMENT: Final = 10
"""Steps for a segment that is shown: it costs more than one that is compared."""

_PAGE = 1_000
MAX_OWN = 1_000
"""Greatest number of topics that may be given by hand."""

MAX_CHARACTERS = 16_384
"""Greatest length of a pattern, and of a topic."""


class Trial(NamedTuple):
    """A pattern, and the topics on which it is tried.

    Attributes:
        pattern: text of the pattern.
        dialect: dialect of both.
        policy: match policy, in dialect `wamp`.
        allow_inner_multi: in dialect `lite`, admit `**` before the end.
        topics: topics given by hand.
        parent: parent whose topics are taken instead.
    """

    pattern: str
    dialect: str
    policy: str | None
    allow_inner_multi: bool
    topics: Sequence[str]
    parent: str | None


def attempt(trial: Trial, relation: LiveRelation) -> dict[str, Any]:
    """Try a pattern, and return what the page shows.

    The work is bounded, and `cut` is a sentence if that left out something.

    Raises:
        matcher.UnknownDialect: no dialect has this name.
        matcher.UnsupportedOption: the dialect does not know an option.
    """
    syntax: dict[str, Any] = {"policy": trial.policy, "allow_inner_multi": trial.allow_inner_multi}
    dialect = matcher.get_dialect(trial.dialect)
    try:
        parsed = dialect.parse(trial.pattern, **syntax)
    except matcher.InvalidPattern as flaw:
        place = {"segment": flaw.segment, "position": flaw.position}
        return {"valid": False, **place, "reason": flaw.reason, "hint": flaw.hint}
    attempt = _Attempt(trial, dialect, parsed)
    if trial.parent is None:
        return attempt.on(trial.topics, trial.topics, len(trial.topics), len(trial.topics))
    beginning = _beginning(parsed, dialect.separator)
    _, candidates = relation.topics(trial.parent, beginning, "", 0)
    total = relation.topics(trial.parent, "", "", 0)[1]
    near = relation.sample(trial.parent, _SAMPLE)
    return attempt.on(_topics(relation, trial.parent, beginning), near, candidates, total)


class _Attempt:
    """One pattern, and the work that is left for trying it and for showing the result."""

    def __init__(self, trial: Trial, dialect: Dialect, parsed: Pattern) -> None:
        self._trial = trial
        self._dialect = dialect
        self._parsed = parsed
        self._width = widest_run(parsed)
        self._trying = Budget()
        self._showing = Budget(STEPS // 4)

    def on(self, topics: Iterable[str], near: Sequence[str], candidates: int, total: int) -> dict[str, Any]:
        """Return the result.

        Args:
            topics: topics that may match.
            near: topics among which those are shown that do not match.
            candidates: number of `topics`.
            total: number of topics, with those that cannot match.
        """
        matching, checked = [], 0
        for topic in topics:
            fits = self._matches(topic)
            if fits is None:
                break
            checked += 1
            if fits:
                matching.append(topic)
        others = [topic for topic in near if self._matches(topic) is False]
        shown = self._explained(matching[:SHOWN], matched=True)
        if self._trial.parent is None:
            misfits = self._explained(others[:SHOWN], matched=False)
        else:
            misfits = sorted(self._explained(others, matched=False), key=_misfit)[:SHOWN]
        return {
            "valid": True,
            "matched": len(matching),
            "checked": checked,
            "candidates": candidates,
            "total": total,
            "matching": shown,
            "others": misfits,
            "cut": self._cut(),
        }

    def _matches(self, topic: str) -> bool | None:
        """Tell whether the pattern matches a topic; None if no work is left."""
        if not self._trying.takes(self._cost(topic)):
            return None
        return self._dialect.matches(self._parsed, topic)

    def _cost(self, topic: str) -> int:
        return cost(self._trial.pattern, topic, self._dialect.separator, self._width)

    def _explained(self, topics: Sequence[str], *, matched: bool) -> list[dict[str, Any]]:
        """Return the topics segment by segment, as far as work is left."""
        found = []
        for topic in topics:
            segments = [text.count(self._dialect.separator) + 1 for text in (self._trial.pattern, topic)]
            is_deep = max(segments) > MAX_SEGMENTS
            parts = 0 if is_deep else _STEPS_A_SEGMENT * sum(segments) + self._cost(topic)
            if not self._showing.takes(parts + len(topic) // 2):
                break
            if is_deep:
                reason = f"more than {MAX_SEGMENTS} segments are not shown one by one"
                found.append({"topic": topic, "matched": matched, "outcome": "", "reason": reason, "steps": []})
            else:
                found.append(self._explanation(topic))
        return found

    def _explanation(self, topic: str) -> dict[str, Any]:
        policy, inner = self._trial.policy, self._trial.allow_inner_multi
        found = matcher.explain(self._trial.pattern, topic, self._dialect, policy=policy, allow_inner_multi=inner)
        return {
            "topic": topic,
            "matched": found.matched,
            "outcome": found.outcome,
            "reason": found.reason,
            "steps": shown_steps(found.steps),
        }

    def _cut(self) -> str:
        """Return what was left out, and how to ask for less; empty if nothing was."""
        if self._trying.is_spent:
            return "Not all topics were compared, since that takes too long: try fewer, or shorten pattern and topics."
        if self._showing.is_spent:
            return "Not all topics are shown segment by segment: try fewer, or shorten pattern and topics."
        return ""


def _topics(relation: LiveRelation, parent: str, beginning: str) -> Iterator[str]:
    """Yield the first topics of a parent with a beginning."""
    after = ""
    for _ in range(SCANNED // _PAGE):
        page, _ = relation.topics(parent, beginning, after, _PAGE)
        yield from page
        if len(page) < _PAGE:
            return
        after = page[-1]


def _beginning(pattern: Pattern, separator: str) -> str:
    """Return the text with which all matching topics begin: the segments before the first wildcard."""
    if pattern.literal is not None:
        return pattern.literal
    leading = []
    for segment in pattern.segments:
        if not isinstance(segment, str):
            break
        leading.append(segment)
    return separator.join(leading)


def _misfit(explanation: dict[str, Any]) -> tuple[int, int]:
    """Return the order of topics that do not match: those first that nearly do."""
    steps = explanation["steps"]
    return sum(not step["fits"] for step in steps) or len(steps) + 1, -len(steps)
