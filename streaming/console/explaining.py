"""Explanations of pairs: reasons from the live state of the job, and history from the updates."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from streaming.console.budget import shown_steps
from streaming.console.sources import Check, Explained
from streaming.errors import InspectError
from streaming.inspect import Explanation, Inspector, wording
from streaming.records.op import Cause, Op

if TYPE_CHECKING:
    from streaming.client.rows import Row, Subscriber
    from streaming.config import Settings
    from streaming.console.changes import SeenChange
    from streaming.console.live import LiveRelation

BASIS: Final = "Answered by the running job, from its live state."

UPDATES_BASIS: Final = "Read from the updates topic, which contains rows and changes. Reasons come from the job."

_ANSWER_SECONDS: Final = 5.0
"""Timeout in seconds of the job's response."""

_ENTRIES: Final = 12
"""Maximum number of shown entries. Matching entries come first."""

_PARTS: Final = 100
"""Maximum number of a client's parts that are read."""

_MEANING: Final = {
    Cause.TOPIC_CREATED: "the topic was created",
    Cause.TOPIC_DELETED: "the topic was deleted",
    Cause.TOPIC_EXPIRED: "the topic reached the end of its time to live",
    Cause.SUBSCRIBED: "the client subscribed",
    Cause.UNSUBSCRIBED: "the client unsubscribed",
    Cause.LEASE_EXPIRED: "the client sent no request within its lease",
    Cause.GROUP_CHANGED: "the attributes of the group changed",
    Cause.SELECTOR_CHANGED: "the selector of the group changed",
    Cause.EVICTED: "a newer client of the exclusive group received the topic",
    Cause.RELEASED: "another client of the exclusive group released the topic",
    Cause.QUOTA_EXCEEDED: "the topic exceeded the quota of the client",
    Cause.QUOTA_FREED: "the quota of the client allowed the topic again",
    Cause.REPAIRED: "reexpand verify corrected the row",
}


class UpdatesExplainer:
    """Explainer that reads only the updates: the history of a pair, and one sentence."""

    def __init__(self, relation: LiveRelation) -> None:
        self._live = relation

    def explain(self, subscriber: Subscriber, lite_topic: str) -> Explained:
        """Explain a pair."""
        live = self._live
        parts = [subscriber] if subscriber.part is not None else live.parts(subscriber, _PARTS)
        row = next((row for part in parts if (row := live.rows.row(part, lite_topic)) is not None), None)
        changes = (seen for each in {subscriber, *parts} for seen in live.changes.of_pair((*each, lite_topic)))
        history = sorted(changes, reverse=True)
        headline = _headline(subscriber.client_id, lite_topic, row, history)
        return Explained(row is not None, headline, UPDATES_BASIS, [], [change._asdict() for change in history])


class JobExplainer:
    """Explainer that asks the running job, and adds the history from the updates.

    Args:
        settings: addresses, topics and client options of the job.
        updates: explainer that is used alone if the job does not answer.
    """

    def __init__(self, settings: Settings, updates: UpdatesExplainer) -> None:
        self._settings = settings
        self._updates = updates

    def explain(self, subscriber: Subscriber, lite_topic: str) -> Explained:
        """Explain a pair."""
        seen = self._updates.explain(subscriber, lite_topic)
        try:
            with Inspector(self._settings, _ANSWER_SECONDS) as inspector:
                found = inspector.explain(
                    subscriber.client_id, lite_topic, parent=subscriber.parent, group=subscriber.group
                )
        except InspectError as error:
            return seen._replace(basis=f"{seen.basis} The job did not answer: {error}.")
        return _shown(found[0])._replace(history=seen.history)


def _headline(client: str, lite_topic: str, row: Row | None, history: list[SeenChange]) -> str:
    if row is not None:
        entries = ", ".join(row.patterns[:3]) or "its subscription to every topic"
        return f"{client} receives {lite_topic}: by {entries}, since {_meaning(row.cause)}."
    if history and history[0].op == Op.REMOVE:
        return f"{client} no longer receives {lite_topic}: {_meaning(history[0].cause)}."
    return f"{client} does not receive {lite_topic}, and the kept updates contain no change of this pair."


def _meaning(cause: str) -> str:
    return _MEANING.get(Cause(cause), cause) if cause in set(Cause) else cause


def _shown(found: Explanation) -> Explained:
    pair = found.pair
    verb = "receives" if found.received else "does not receive"
    checks = [Check(name, None, f"{text}.") for name, text in wording.facts(found)]
    entries = sorted(pair.entries, key=lambda entry: not entry.matches)[:_ENTRIES]
    for entry in entries:
        kind = "name" if entry.dialect is None else entry.dialect
        place = f" It was sent by {entry.place}." if entry.place else ""
        steps = shown_steps(entry.steps)
        checks.append(Check("entry", entry.matches, f"{entry.entry} ({kind}): {entry.reason}.{place}", steps))
    checks += (Check("hint", None, hint.text) for hint in found.hints)
    decided = f" Decided by {pair.decided_by}." if pair.decided_by else ""
    return Explained(found.received, f"{pair.client} {verb} {pair.topic}: {pair.reason}.{decided}", BASIS, checks)
