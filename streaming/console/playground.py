"""The playground: one pattern tried on topics, with the verdict on each segment."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any, NamedTuple

import matcher

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from matcher.pattern import Pattern
    from streaming.console.live import LiveRelation

SCANNED = 20_000
"""Greatest number of topics of a parent on which a pattern is tried at once."""

SHOWN = 100
"""Greatest number of topics that match, and of those that do not, in one answer."""

_SAMPLE = 400
"""Number of topics of a parent among which those are searched that nearly match."""

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

    Raises:
        matcher.UnknownDialect: no dialect has this name.
        matcher.UnsupportedOption: the dialect does not know an option.
    """
    syntax: dict[str, Any] = {"policy": trial.policy, "allow_inner_multi": trial.allow_inner_multi}
    dialect = matcher.get_dialect(trial.dialect)
    try:
        dialect.validate(trial.pattern, **syntax)
    except matcher.InvalidPattern as flaw:
        place = {"segment": flaw.segment, "position": flaw.position}
        return {"valid": False, **place, "reason": flaw.reason, "hint": flaw.hint}
    parsed = dialect.parse(trial.pattern, **syntax)

    def explained(topics: Sequence[str]) -> list[dict[str, Any]]:
        return [asdict(matcher.explain(trial.pattern, topic, dialect, **syntax)) for topic in topics]

    if trial.parent is None:
        verdicts = explained(trial.topics)
        found = [each for each in verdicts if each["matched"]]
        return {
            "valid": True,
            "matched": len(found),
            "checked": len(verdicts),
            "candidates": len(verdicts),
            "total": len(verdicts),
            "matching": found[:SHOWN],
            "others": [each for each in verdicts if not each["matched"]][:SHOWN],
        }
    beginning = _beginning(parsed, dialect.separator)
    _, candidates = relation.topics(trial.parent, beginning, "", 0)
    matching, checked = [], 0
    for topic in _topics(relation, trial.parent, beginning):
        checked += 1
        if dialect.matches(parsed, topic):
            matching.append(topic)
    others = [topic for topic in relation.sample(trial.parent, _SAMPLE) if not dialect.matches(parsed, topic)]
    return {
        "valid": True,
        "matched": len(matching),
        "checked": checked,
        "candidates": candidates,
        "total": relation.topics(trial.parent, "", "", 0)[1],
        "matching": explained(matching[:SHOWN]),
        "others": sorted(explained(others), key=_misfit)[:SHOWN],
    }


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
