"""Explanation of a match or of a mismatch, segment by segment.

>>> import matcher
>>> print(matcher.explain("pay__*__sent", "pay__refund__failed"))
no match: segment 3 of the topic, 'failed', is not 'sent'
  pattern  topic   verdict
  pay      pay     equal
  *        refund  one segment
! sent     failed  differs
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, Literal, NamedTuple, TypeAlias

from matcher.dialects import Dialect, get_dialect
from matcher.errors import InvalidTopic, shown
from matcher.pattern import MANY, ONE, Automaton, Pattern, Segment, Tail

__all__ = ["Explanation", "Outcome", "Step", "explain"]

Outcome: TypeAlias = Literal["match", "segment", "too-short", "too-long", "hidden", "invalid-topic"]
"""Deciding fact: all segments fit, a segment differs, one side has more, or the topic is hidden or invalid."""

_SHOWN: Final = 40  # characters; longer segments are cut
_COMPARISONS: Final = 100_000  # of segments, to find the nearest place of a run that fits nowhere


@dataclass(frozen=True, slots=True)
class Step:
    """One segment of the topic with its counterpart in the pattern.

    Attributes:
        pattern: segment of the pattern as it was written; None after the end of the pattern.
        topic: segment of the topic; None after the end of the topic.
        fits: True if the two agree.
        verdict: reason, in a few words.
    """

    pattern: str | None
    topic: str | None
    fits: bool
    verdict: str


@dataclass(frozen=True, slots=True)
class Explanation:
    """Result of `explain`; as text it is a table.

    Attributes:
        pattern: text of the pattern.
        topic: name of the topic.
        matched: result of `matches`.
        outcome: deciding fact, in one word.
        reason: deciding fact, as a sentence.
        steps: one step per segment; none for an invalid topic. After an inner multi-segment wildcard they end with the
            first misfit.
    """

    pattern: str
    topic: str
    matched: bool
    outcome: Outcome
    reason: str
    steps: tuple[Step, ...]

    def __str__(self) -> str:
        lines = [f"{'match' if self.matched else 'no match'}: {self.reason}"]
        if self.steps:
            rows = [("pattern", "topic"), *((_cell(step.pattern), _cell(step.topic)) for step in self.steps)]
            left, middle = (max(map(len, column)) for column in zip(*rows, strict=True))
            ends = [(" ", "verdict"), *((" " if step.fits else "!", step.verdict) for step in self.steps)]
            for (pattern, topic), (mark, verdict) in zip(rows, ends, strict=True):
                lines.append(f"{mark} {pattern:{left}}  {topic:{middle}}  {verdict}")
        return "\n".join(lines)


class _Pair(NamedTuple):
    """Position in the pattern (None: after its end) and in the topic (or after its end)."""

    want: int | None
    have: int


def explain(
    pattern: str,
    topic: str,
    dialect: str | Dialect = "lite",
    *,
    policy: str | None = None,
    allow_inner_multi: bool = False,
) -> Explanation:
    """Explain a match or a mismatch segment by segment; for the bound see `Pattern.accepts`.

    An inner multi-segment wildcard takes as few segments as possible. If the segments after it fit nowhere, the steps
    show them at the position with the most fitting segments, among the first positions of a long topic.

    Args:
        pattern: text of the pattern.
        topic: name of the topic.
        dialect: dialect of both, by name or one of your own.
        policy: `"exact"`, `"prefix"` or `"wildcard"`, in dialects that have match policies (wamp).
        allow_inner_multi: accept multi-segment wildcards before the end of a pattern, in dialects that have them.

    Raises:
        InvalidPattern: the text is not a pattern of the dialect.
        UnknownDialect: no dialect has this name.
        UnsupportedOption: the dialect does not have an option.
    """
    rules = get_dialect(dialect)
    parsed = rules.parse(pattern, policy=policy, allow_inner_multi=allow_inner_multi)
    segments = rules.split(topic)
    if segments is None:
        reason = f"no pattern of dialect {rules.name!r} can match this topic"
        try:
            rules.validate_topic(topic)
        except InvalidTopic as error:
            reason = str(error)
        return Explanation(pattern, topic, False, "invalid-topic", reason, ())
    written = _written(parsed, rules.separator)
    pairs = _align(parsed, segments)
    steps = [_step(parsed, segments, written, pair) for pair in pairs]
    if parsed.literal is None and parsed.starts_with_wildcard and rules.hides(topic):
        steps[0] = Step(steps[0].pattern, steps[0].topic, fits=False, verdict="hidden")
        reason = f"topics that begin with {rules.reserved!r} are hidden from a wildcard in the first segment"
        return Explanation(pattern, topic, False, "hidden", reason, tuple(steps))
    outcome, reason = _judge(parsed, segments, pairs, steps)
    return Explanation(pattern, topic, outcome == "match", outcome, reason, tuple(steps))


def _align(pattern: Pattern, topic: Sequence[str]) -> list[_Pair]:
    """Pair the segments of pattern and topic; if the pattern matches, every pair fits."""
    size = len(pattern.segments)
    if pattern.has_many:
        pairs, place, complete = _align_runs(pattern, topic)
        if not complete:
            return pairs
    else:
        pairs, place = [_Pair(at, at) for at in range(size)], size
    if pattern.tail is Tail.END:
        return pairs + [_Pair(None, at) for at in range(place, len(topic))]
    pairs += [_Pair(size, at) for at in range(place, len(topic))]
    if place >= len(topic) and pattern.tail is not Tail.STARTS:
        pairs.append(_Pair(size, place))
    return pairs


def _align_runs(pattern: Pattern, topic: Sequence[str]) -> tuple[list[_Pair], int, bool]:
    """Place each run between two `MANY` at its first fit, and the last run at the end of the topic.

    Returns:
        The pairs, the number of topic segments used up, and whether all runs fit.
    """
    segments = pattern.segments
    bounds = [-1, *(at for at, want in enumerate(segments) if want is MANY), len(segments)]
    pairs: list[_Pair] = []
    place = 0
    for before, after in pairwise(bounds):
        run = segments[before + 1 : after]
        start = place
        if before >= 0:
            least = place + 1
            last = after == len(segments) and pattern.tail is Tail.END
            start = max(least, len(topic) - len(run)) if last else _nearest(run, topic, least)
            pairs += [_Pair(before, at) for at in range(place, start)]
        fitting = _fitting(run, topic, start)
        pairs += [_Pair(before + 1 + at, start + at) for at in range(min(fitting + 1, len(run)))]
        place = start + len(run)
        if fitting < len(run):
            return pairs, place, False
    return pairs, place, True


def _nearest(run: Sequence[Segment], topic: Sequence[str], least: int) -> int:
    """Return the first start of a fit, from `least` on; without a fit, a start with the most fitting segments.

    The first fit costs one step of an automaton for each segment. Without a fit, the first `_COMPARISONS` decide.
    """
    if not run:
        return least
    automaton = Automaton([Pattern("", (MANY, *run))])
    state = automaton.step(automaton.start(), "")  # the wildcard has matched the segments before
    for at in range(least, len(topic)):
        state = automaton.step(state, topic[at])
        if automaton.matches(state):
            return at + 1 - len(run)
    best, most, left = least, 0, _COMPARISONS
    for start in range(least, len(topic)):
        fitting = _fitting(run, topic, start)
        left -= fitting + 1
        if fitting > most:
            best, most = start, fitting
        if left < 0:
            break
    return best


def _fitting(run: Sequence[Segment], topic: Sequence[str], start: int) -> int:
    """Count the leading segments of the run in agreement with the topic from `start` on."""
    count = 0
    while count < len(run) and start + count < len(topic) and run[count] in (ONE, topic[start + count]):
        count += 1
    return count


def _step(pattern: Pattern, topic: Sequence[str], written: Sequence[str], pair: _Pair) -> Step:
    have = topic[pair.have] if pair.have < len(topic) else None
    if pair.want is None:
        return Step(None, have, fits=False, verdict="the pattern has ended")
    shown = written[pair.want]
    if have is None:
        optional = pair.want == len(pattern.segments) and pattern.tail is Tail.ANY
        return Step(shown, None, optional, "no segment is needed" if optional else "the topic has ended")
    if pair.want == len(pattern.segments):
        return Step(shown, have, fits=True, verdict="any further segments")
    want = pattern.segments[pair.want]
    if not isinstance(want, str):
        return Step(shown, have, fits=True, verdict="one segment" if want is ONE else "any segments")
    if pair.want == len(pattern.whole):
        fits, verdict = have.startswith(want), f"begins with {_quoted(want)}"
    else:
        fits, verdict = want == have, "equal"
    only_case = have.casefold() == want.casefold()
    return Step(shown, have, fits, verdict if fits else "differs in upper and lower case" if only_case else "differs")


def _judge(
    pattern: Pattern, topic: Sequence[str], pairs: Sequence[_Pair], steps: Sequence[Step]
) -> tuple[Outcome, str]:
    for pair, step in zip(pairs, steps, strict=True):
        if step.fits:
            continue
        if pair.want is None:
            return "too-long", f"the pattern ends before segment {pair.have + 1} of the topic, {_quoted(step.topic)}"
        sought = ""
        if MANY in pattern.segments[: pair.want]:
            last = pattern.tail is Tail.END and MANY not in pattern.segments[pair.want :]
            sought = " at the end of the topic" if last else ", and no other position fits better"
        if step.topic is None:
            ended = f"the topic ends after segment {len(topic)}, but the pattern expects {_quoted(step.pattern)}"
            return "too-short", ended + sought
        want = _quoted(str(pattern.segments[pair.want]))
        differs = f"does not begin with {want}" if pair.want == len(pattern.whole) else f"is not {want}"
        return "segment", f"segment {pair.have + 1} of the topic, {_quoted(step.topic)}, {differs}{sought}"
    return "match", "every segment fits"


def _written(pattern: Pattern, separator: str) -> list[str]:
    """Return the text to show for each segment of the pattern, and for its tail."""
    parts = pattern.text.split(separator)
    size = len(pattern.segments)
    count = size + (pattern.tail in (Tail.SOME, Tail.ANY))
    parts = parts[len(parts) - count :] if len(parts) > count else parts  # without `$share/NAME` of an MQTT share
    if len(parts) == count:
        return [*parts, parts[-1]] if len(parts) == size else parts
    return [want if isinstance(want, str) else want.value for want in pattern.segments] + [pattern.tail.value]


def _quoted(text: str | None) -> str:
    return repr(shown(text or "", _SHOWN))


def _cell(text: str | None) -> str:
    if text is None:
        return "(none)"
    return shown(text, _SHOWN) if text and text.isprintable() else _quoted(text)
