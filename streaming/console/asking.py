"""Requests of the page: checked parameters, and the playground that tries a pattern on topics."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from inspect import Parameter, signature
from typing import Any, Final, NamedTuple

import orjson
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

import matcher
from matcher.dialects import SEPARATORS, Dialect
from matcher.pattern import Pattern
from streaming.client.rows import Subscriber
from streaming.console.budget import (
    CHARACTERS_A_STEP,
    MAX_SEGMENTS,
    NAME_STEPS,
    STEPS,
    Budget,
    shown_steps,
    widest_run,
)
from streaming.console.job_lists import GROUP_COLUMNS
from streaming.console.listing import ROW_COLUMNS, WAYS, ListRequest, Search, beginning
from streaming.console.live import LiveRelation, count, page, sample

PAGE: Final = 100
"""Default number of lines per page of a list."""

MAX_PAGE: Final = 500
"""Maximum number of lines per page of a list."""

_MAX_START: Final = 1_000_000_000
_BODY_BYTES: Final = 1_048_576

SCANNED = 20_000
"""Maximum number of topics of a parent on which a pattern is tried."""

SHOWN = 100
"""Maximum number of matching topics, and of other topics, in a response."""

_SAMPLE = 400
"""Number of topics of a parent that are searched for near misses."""

_STEPS_A_SEGMENT: Final = 10
"""Steps for a shown segment, which costs more than a compared one."""

_PAGE = 1_000
MAX_OWN = 1_000
"""Maximum number of topics in a request."""

MAX_CHARACTERS = 16_384
"""Maximum length of a pattern, and of a topic."""


class Trial(NamedTuple):
    """A pattern, and the topics on which it is tried.

    Attributes:
        pattern: text of the pattern.
        dialect: dialect of pattern and topics.
        policy: match policy, in dialect `wamp`.
        allow_inner_multi: in dialect `lite`, allow `**` before the end.
        topics: topics of the request.
        parent: parent whose topics are used instead.
    """

    pattern: str
    dialect: str
    policy: str | None
    allow_inner_multi: bool
    topics: Sequence[str]
    parent: str | None

    @property
    def syntax(self) -> dict[str, Any]:
        """Options of the pattern."""
        return {"policy": self.policy, "allow_inner_multi": self.allow_inner_multi}


class JsonAnswer(Response):
    """Response in JSON."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        """Encode the response."""
        return orjson.dumps(content, option=orjson.OPT_NON_STR_KEYS)


def _text(request: Request, name: str, default: str | None = None) -> str:
    found = request.query_params.get(name, default)
    if found is None:
        raise HTTPException(400, f"the parameter {name} is missing")
    return found


def _number(request: Request, name: str, default: int, most: int) -> int:
    found = whole_number(request.query_params.get(name, str(default)), most)
    if found is None:
        raise HTTPException(400, f"the parameter {name} must be a number from 0 to {most}")
    return found


def whole_number(text: str, most: int) -> int | None:
    """Return the number that a text of digits means; None for another text, or above `most`."""
    is_number = text.isascii() and text.isdigit() and len(text) <= len(str(most)) and int(text) <= most
    return int(text) if is_number else None


def _subscriber(request: Request, group: str | None = None) -> Subscriber:
    parent, client = (_text(request, name) for name in ("parent", "client"))
    group = _text(request, "group", group)
    return Subscriber(parent, group, client, request.query_params.get("part") or None)


def _one_of(request: Request, name: str, known: Sequence[str]) -> str:
    found = _text(request, name, known[0])
    if found not in known:
        raise HTTPException(400, f"the parameter {name} must be one of {' '.join(filter(None, known))}")
    return found


def _search(request: Request) -> Search:
    text, how = _text(request, "search", ""), _one_of(request, "how", WAYS)
    if len(text) > MAX_CHARACTERS:
        raise HTTPException(413, f"a search has at most {MAX_CHARACTERS:,} characters")
    try:
        return Search(text, how)
    except matcher.InvalidPattern as error:
        raise HTTPException(400, str(error)) from None


def _place(request: Request) -> tuple[int, int]:
    """Return the shard and cursor of a place in the job's topics."""
    parts = _text(request, "after", "0:0").partition(":")
    shard, cursor = whole_number(parts[0], _MAX_START), whole_number(parts[2], _MAX_START)
    if shard is None or cursor is None:
        raise HTTPException(400, "the parameter after must be the field `more` of the last answer")
    return shard, cursor


def _listing(request: Request, *columns: str) -> ListRequest:
    search = _search(request)
    start, size = _PARSERS["start"](request), _PARSERS["size"](request)
    descending = _one_of(request, "order", ("ascending", "descending")) == "descending"
    return ListRequest(start, size, search, _one_of(request, "sort", ("", *columns)), descending)


_PARSERS: Final[Mapping[str, Callable[[Request], Any]]] = {
    "start": lambda request: _number(request, "start", 0, _MAX_START),
    "size": lambda request: _number(request, "size", PAGE, MAX_PAGE) or PAGE,
    "separator": lambda request: _one_of(request, "separator", SEPARATORS),
    "search": _search,
    "place": _place,
    "all_parents": _listing,
    "of_groups": lambda request: _listing(request, *GROUP_COLUMNS),
    "of_topics": lambda request: _listing(request, "topic", "receivers"),
    "of_subscribers": lambda request: _listing(request, "client", "group", "topics"),
    "of_rows": lambda request: _listing(request, *ROW_COLUMNS),
    "subscriber": _subscriber,  # without `part` the whole client
    "explained": lambda request: _subscriber(request, ""),  # without `group` all groups of the client
}
"""Parsers of the parameters that are not strings, by name."""


def arguments(request: Request, question: Callable[..., object]) -> dict[str, Any]:
    """Return the parameters of a request that a question takes, by name.

    Raises:
        HTTPException: a parameter is missing and has no default, or is invalid.
    """
    found = {}
    for name, taken in signature(question).parameters.items():
        default = None if taken.default is Parameter.empty else str(taken.default)
        found[name] = _PARSERS[name](request) if name in _PARSERS else _text(request, name, default)
    return found


def likely_separator(names: list[str]) -> str:
    """Return the separator that most of the names contain."""
    return max(SEPARATORS, key=lambda each: sum(each in name for name in names))


async def trial(request: Request) -> Trial:
    """Return the request of the playground.

    Raises:
        HTTPException: the request is incomplete or too large.
    """
    if request.headers.get("content-type", "").partition(";")[0].strip() != "application/json":
        raise HTTPException(415, "the request must be application/json")
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > _BODY_BYTES:
            raise HTTPException(413, f"the request is larger than {_BODY_BYTES:,} bytes")
    try:
        asked = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise HTTPException(400, f"the request is not JSON: {error}") from None
    if not isinstance(asked, dict):
        raise HTTPException(400, "the request must be an object")
    pattern, topics = asked.get("pattern"), asked.get("topics", [])
    policy, parent = asked.get("policy") or None, asked.get("parent")
    if not (
        isinstance(pattern, str)
        and isinstance(topics, list)
        and all(isinstance(each, str) for each in topics)
        and all(each is None or isinstance(each, str) for each in (policy, parent))
    ):
        raise HTTPException(400, "pattern, policy, parent and topics must be strings")
    if len(topics) > MAX_OWN or max(map(len, (pattern, *topics))) > MAX_CHARACTERS:
        raise HTTPException(413, f"at most {MAX_OWN:,} topics of {MAX_CHARACTERS:,} characters each can be tried")
    dialect, inner = str(asked.get("dialect", "lite")), asked.get("innerMulti") is True
    return Trial(pattern, dialect, policy, inner, topics, parent)


def attempt(trial: Trial, relation: LiveRelation) -> dict[str, Any]:
    """Try a pattern, and return the result for the page.

    The work is limited. `cut` is a sentence if the limit was reached.

    Raises:
        matcher.UnknownDialect: no dialect has this name.
        matcher.UnsupportedOption: the dialect does not support an option.
    """
    dialect = matcher.get_dialect(trial.dialect)
    try:
        dialect.validate(trial.pattern, **trial.syntax)
        parsed = dialect.parse(trial.pattern, **trial.syntax)
    except matcher.InvalidPattern as flaw:
        place = {"segment": flaw.segment, "position": flaw.position}
        return {"valid": False, **place, "reason": flaw.reason, "hint": flaw.hint}
    attempt = _Attempt(trial, dialect, parsed)
    if trial.parent is None:
        return attempt.on(trial.topics, trial.topics, len(trial.topics), len(trial.topics))
    common = beginning(parsed, dialect.separator)
    with relation.names(trial.parent) as names:
        candidates, total, near = count(names.topics, common), len(names.topics), sample(names.topics, _SAMPLE)
    return attempt.on(_topics(relation, trial.parent, common), near, candidates, total)


class _Attempt:
    """A pattern, with the remaining budgets for trying it and for showing the result."""

    def __init__(self, trial: Trial, dialect: Dialect, parsed: Pattern) -> None:
        self._trial = trial
        self._dialect = dialect
        self._parsed = parsed
        self._width = widest_run(parsed)
        self._trying = Budget()
        self._showing = Budget(STEPS // 4)

    def on(self, topics: Iterable[str], near: Sequence[str], candidates: int, total: int) -> dict[str, Any]:
        """Try the pattern, and return the result.

        Args:
            topics: topics that may match.
            near: topics that are searched for near misses.
            candidates: number of `topics`.
            total: number of all topics, including those that cannot match.
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
        missing = ""
        if self._trying.is_spent:
            missing = "Not all topics were compared, to limit the work."
        elif self._showing.is_spent:
            missing = "Not all topics are shown segment by segment."
        return {
            "valid": True,
            "matched": len(matching),
            "checked": checked,
            "candidates": candidates,
            "total": total,
            "matching": shown,
            "others": misfits,
            "cut": missing and f"{missing} Try fewer or shorter topics, or a shorter pattern.",
        }

    def _matches(self, topic: str) -> bool | None:
        """Return True if the pattern matches a topic; None if the budget is exhausted."""
        if not self._trying.takes(self._cost(topic)):
            return None
        return self._dialect.matches(self._parsed, topic)

    def _cost(self, topic: str) -> int:
        """Return the maximum number of steps for comparing the pattern with a topic."""
        compared = (topic.count(self._dialect.separator) + 1) * self._width
        return NAME_STEPS + compared + len(self._parsed.segments) + len(topic) // CHARACTERS_A_STEP

    def _explained(self, topics: Sequence[str], *, matched: bool) -> list[dict[str, Any]]:
        """Explain topics segment by segment, while the budget allows it."""
        found = []
        for topic in topics:
            segments = [text.count(self._dialect.separator) + 1 for text in (self._trial.pattern, topic)]
            is_deep = max(segments) > MAX_SEGMENTS
            parts = 0 if is_deep else _STEPS_A_SEGMENT * sum(segments) + self._cost(topic)
            if not self._showing.takes(parts + len(topic) // 2):
                break
            outcome, reason = "", f"more than {MAX_SEGMENTS} segments are not shown individually"
            steps: list[dict[str, Any]] = []
            if not is_deep:
                explained = matcher.explain(self._trial.pattern, topic, self._dialect, **self._trial.syntax)
                outcome, reason, steps = explained.outcome, explained.reason, shown_steps(explained.steps)
            found.append({"topic": topic, "matched": matched, "outcome": outcome, "reason": reason, "steps": steps})
        return found


def _topics(relation: LiveRelation, parent: str, common: str) -> Iterator[str]:
    after = ""
    for _ in range(SCANNED // _PAGE):
        with relation.names(parent) as names:
            found = page(names.topics, common, after, _PAGE)
        yield from found
        if len(found) < _PAGE:
            return
        after = found[-1]


def _misfit(explanation: dict[str, Any]) -> tuple[int, int]:
    """Return the sort key of topics that do not match. Near misses come first."""
    steps = explanation["steps"]
    return sum(not step["fits"] for step in steps) or len(steps) + 1, -len(steps)
