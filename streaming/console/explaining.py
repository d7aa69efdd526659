"""Explanations from the updates alone, where no live state of the job is at hand."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import matcher
from streaming.console.budget import Budget, cost, shortened, shown_steps
from streaming.console.sources import Check, Explained
from streaming.updates.op import Cause, Op

if TYPE_CHECKING:
    from collections.abc import Iterator

    from streaming.client.rows import Row, Subscriber
    from streaming.console.changes import SeenChange
    from streaming.console.live import LiveRelation

BASIS = (
    "Read from the updates topic alone: the rows, the patterns of the client's rows, and the last changes. Selectors, "
    "quotas, bindings and entries that match no topic do not stand there."
)

_ROWS = 2_000
"""Number of rows of a client in which its patterns are looked for."""

_CUT: Final = "Not all patterns of the client were compared, which takes too long here: try `reexpand explain`."

_PARTS: Final = 100
"""Number of parts of a client that are looked at."""

_STEPS_A_SEGMENT: Final = 10
"""Steps for a segment that is shown: it costs more than one that is compared."""

_SHOWN = 12
"""Number of patterns that are explained."""

_MEANING = {
    Cause.TOPIC_CREATED: "the topic was created",
    Cause.TOPIC_DELETED: "the topic was deleted",
    Cause.TOPIC_EXPIRED: "the topic reached the end of its time to live",
    Cause.SUBSCRIBED: "the client subscribed",
    Cause.UNSUBSCRIBED: "the client unsubscribed",
    Cause.LEASE_EXPIRED: "the client sent no request within its lease",
    Cause.GROUP_CHANGED: "the attributes of the group changed",
    Cause.SELECTOR_CHANGED: "another selector holds for the group",
    Cause.EVICTED: "a newer client of the exclusive group took the topic",
    Cause.RELEASED: "a client of the exclusive group gave the topic back",
    Cause.QUOTA_EXCEEDED: "the quota of the client leaves no room for the topic",
    Cause.QUOTA_FREED: "the quota of the client has room again",
    Cause.REPAIRED: "a correction by reexpand verify",
}


class _Entry(NamedTuple):
    """A pattern of a client, with its notation as far as it shows in the rows."""

    text: str
    dialect: str
    policy: str | None = None


class UpdatesExplainer:
    """Explainer of what a follower of the updates can know; says so in each answer."""

    def __init__(self, relation: LiveRelation) -> None:
        self._live = relation

    def explain(self, subscriber: Subscriber, lite_topic: str) -> Explained:
        """Explain one pair."""
        live = self._live
        parts = [subscriber] if subscriber.part is not None else live.parts(subscriber, _PARTS)
        rows = [row for part in parts if (row := live.rows.row(part, lite_topic)) is not None]
        history = self._history({subscriber, *parts}, lite_topic)
        checks = [self._topic(subscriber, lite_topic), self._client(subscriber, parts)]
        budget = Budget()
        if rows:
            checks += self._matching(rows, lite_topic, budget)
            headline = f"{subscriber.client_id} receives {lite_topic}: {_why(rows[0])}."
        else:
            entries = self._entries(parts, budget)
            patterns = _judged(entries, lite_topic, budget) if parts else []
            checks += patterns + self._others(subscriber, lite_topic)
            headline = _absence(subscriber, lite_topic, history, patterns, is_cut=budget.is_spent)
        basis = f"{BASIS} {_CUT}" if budget.is_spent else BASIS
        return Explained(bool(rows), headline, basis, checks, [change._asdict() for change in history])

    def _history(self, subscribers: set[Subscriber], lite_topic: str) -> list[SeenChange]:
        changes = self._live.changes
        found = [seen for each in subscribers for seen in changes.of_pair((*each, lite_topic))]
        return sorted(found, reverse=True)

    def _topic(self, subscriber: Subscriber, lite_topic: str) -> Check:
        count = self._live.rows.count_of_topic(subscriber.parent, lite_topic)
        if count:
            return Check("topic", True, f"The topic exists: {count:,} subscribers receive it.")
        return Check("topic", None, "Nobody receives the topic; the updates do not tell whether it exists.")

    def _client(self, client: Subscriber, parts: list[Subscriber]) -> Check:
        count = sum(self._live.rows.count_of_subscriber(part) for part in parts)
        if count:
            return Check("client", True, f"The client receives {count:,} topics of {client.parent}.")
        return Check(
            "client",
            None,
            f"The client receives no topic of {client.parent}: it is not subscribed, its lease has ended, its group is "
            "literal or bound to another parent, or its patterns match nothing.",
        )

    def _matching(self, rows: list[Row], lite_topic: str, budget: Budget) -> Iterator[Check]:
        """Yield a check for each entry behind the rows of a pair."""
        for row in rows[:_SHOWN]:
            if not row.patterns:
                yield Check("pattern", True, "The client is subscribed to every topic of the parent.")
            for text in row.patterns[:_SHOWN]:
                if text == lite_topic:
                    yield Check("pattern", True, f"The entry {text} is the name of the topic.")
                else:
                    yield _check(_entry(row, text, budget), lite_topic, budget)

    def _entries(self, parts: list[Subscriber], budget: Budget) -> dict[_Entry, None]:
        """Return the patterns that stand in the rows of a client, in the order of their appearance."""
        found: dict[_Entry, None] = {}
        for part in parts:
            for row in self._live.rows.page_of_subscriber(part, 0, _ROWS):
                for text in row.patterns or ("",):
                    if budget.is_spent:
                        return found
                    found.setdefault(_entry(row, text, budget) if text else _EVERYTHING)
        return found

    def _others(self, client: Subscriber, lite_topic: str) -> list[Check]:
        rows = self._live.rows.page_of_topic(client.parent, lite_topic, 0, _ROWS)
        holders = sorted({row.client_id for row in rows if row.group == client.group})
        if not holders:
            return []
        names = ", ".join(holders[:3]) + (", ..." if len(holders) > len(holders[:3]) else "")
        return [Check("group", None, f"In the same group {names} receives it; an exclusive group has one holder.")]


_EVERYTHING = _Entry("", "lite")


def _judged(entries: dict[_Entry, None], lite_topic: str, budget: Budget) -> list[Check]:
    """Return a check for each known pattern of a client; those that match come first, then the nearest."""
    if _EVERYTHING in entries:
        return [Check("pattern", True, "The client is subscribed to every topic of the parent.")]
    checks = [_check(entry, lite_topic, budget) for entry in entries]
    checks.sort(key=lambda check: (not check.met, check.met is None, sum(not step["fits"] for step in check.steps)))
    return checks[:_SHOWN]


def _entry(row: Row, text: str, budget: Budget) -> _Entry:
    """Return an entry of a row with the first notation in which it matches the topic of the row."""
    dialect, _, rest = (row.part or "").partition(":")
    if dialect in matcher.DIALECTS:
        policy, _, _ = rest.partition(":")
        return _Entry(text, dialect, policy or None)
    if row.share is not None:
        return _Entry(text, "mqtt")
    for name, rules in matcher.DIALECTS.items():
        if not budget.takes(cost(text, row.lite_topic, rules.separator)):
            break
        if matcher.matches(text, row.lite_topic, name):
            return _Entry(text, name)
    return _Entry(text, "lite")


def _check(entry: _Entry, lite_topic: str, budget: Budget) -> Check:
    """Return the verdict of the matcher on one pattern."""
    text, dialect, policy = entry
    separator = matcher.get_dialect(dialect).separator
    shown, segments = shortened(text), text.count(separator) + lite_topic.count(separator)
    if not budget.takes(cost(text, lite_topic, separator) + _STEPS_A_SEGMENT * segments):
        return Check("pattern", None, f"{shown} ({dialect}) was not compared.")
    inner: dict[str, Any] = {"allow_inner_multi": True} if dialect == "lite" else {}
    try:
        found = matcher.explain(text, lite_topic, dialect, policy=policy, **inner)
    except matcher.MatcherError as error:
        return Check("pattern", None, f"{shown} ({dialect}): {error}")
    return Check("pattern", found.matched, f"{shown} ({dialect}): {found.reason}.", shown_steps(found.steps))


def _why(row: Row) -> str:
    entries = ", ".join(row.patterns[:3]) or "its subscription to every topic"
    return f"by {entries}, since {_meaning(row.cause)}"


def _meaning(cause: str) -> str:
    return _MEANING.get(Cause(cause), cause) if cause in set(Cause) else cause


def _absence(
    subscriber: Subscriber, lite_topic: str, history: list[SeenChange], patterns: list[Check], *, is_cut: bool
) -> str:
    """Return the sentence on a pair without a row."""
    pair = f"{subscriber.client_id} does not receive {lite_topic}"
    last = history[0] if history else None
    if last is not None and last.op == Op.REMOVE:
        return f"{pair} any more: {_meaning(last.cause)}."
    if any(check.met for check in patterns):
        return f"{pair}, though a pattern of it matches: a selector, a quota, or an exclusive group takes it away."
    if is_cut:
        return f"{pair}; not all of its patterns were compared."
    if patterns:
        return f"{pair}: none of its known patterns matches."
    return f"{pair}, nor any other topic of {subscriber.parent}."
