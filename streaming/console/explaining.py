"""Explanations of pairs: reasons from the live state of the job, and history from the updates."""

from collections.abc import Callable, Iterator
from typing import Any, Final, TypeAlias

from streaming.client.rows import Subscriber
from streaming.config import Settings
from streaming.console.budget import Budget, shown_steps
from streaming.console.live import LiveRelation
from streaming.errors import InspectError
from streaming.inspect import Explanation, Inspector, wording
from streaming.records.op import Cause, Op

Explain: TypeAlias = "Callable[[Subscriber, str], dict[str, Any]]"
"""Source of explanations of pairs, with the JSON fields for the page."""

BASIS: Final = "Answered by the running job, from its live state."

UPDATES_BASIS: Final = "Read from the updates topic, which contains rows and changes. Reasons come from the job."

_ANSWER_SECONDS: Final = 5.0
"""Timeout in seconds of the job's response."""

_ENTRIES: Final = 12
"""Maximum number of shown entries. Matching entries come first."""

_PARTS: Final = 100
"""Maximum number of a client's parts that are read."""

_GROUPS: Final = 20
"""Maximum number of a client's groups that are read."""

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


def explain_by_updates(live: LiveRelation, subscriber: Subscriber, lite_topic: str) -> dict[str, Any]:
    """Return the history of a pair, newest first, and one sentence.

    A subscriber without a part has all its parts. Without a group it is the client in a group that receives the topic,
    or in its first one. `groups` starts with that group, followed by the client's other groups with a row.
    """
    if not subscriber.group:
        clients = [subscriber._replace(group=group) for group in _groups(live, subscriber)]
        answers = [explain_by_updates(live, each, lite_topic) for each in clients]
        if answers:
            return _joined(answers)
    parts = [subscriber] if subscriber.part is not None else live.parts(subscriber, _PARTS)
    row = next((row for part in parts if (row := live.rows.row(part, lite_topic)) is not None), None)
    changes = (seen for each in {subscriber, *parts} for seen in live.changes.of_pair((*each, lite_topic)))
    history = [change._asdict() for change in sorted(changes, reverse=True)]
    client = subscriber.client_id
    if row is not None:
        entries = ", ".join(row.patterns[:3]) or "its subscription to every topic"
        headline = f"{client} receives {lite_topic}: by {entries}, since {_meaning(row.cause)}."
    elif history and history[0]["op"] == Op.REMOVE:
        headline = f"{client} no longer receives {lite_topic}: {_meaning(history[0]['cause'])}."
    else:
        headline = f"{client} does not receive {lite_topic}, and the kept updates contain no change of this pair."
    return {
        "receives": row is not None,
        "headline": headline,
        "basis": UPDATES_BASIS,
        "checks": [],
        "history": history,
        "groups": [subscriber.group],
    }


def _groups(live: LiveRelation, subscriber: Subscriber) -> list[str]:
    """Return the groups in which a client has rows, at most `_GROUPS`, within the budget of a response."""
    client = subscriber.client_id
    with live.names(subscriber.parent) as names:
        found = {key[0] for key in Budget().search(names.subscribers, client) if key[1] == client}
    return sorted(found)[:_GROUPS]


def _joined(answers: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the answer for the first group that receives the topic, or the first answer, with all groups."""
    best = next((each for each in answers if each["receives"]), answers[0])
    others = [each["groups"][0] for each in answers if each is not best]
    return {**best, "groups": [*best["groups"], *others]}


def explain(settings: Settings, live: LiveRelation, subscriber: Subscriber, lite_topic: str) -> dict[str, Any]:
    """Return the job's explanation of a pair with the history from the updates; only the latter if no job answers."""
    parent, group, client, _ = subscriber
    try:
        with Inspector(settings, _ANSWER_SECONDS) as inspector:
            found = inspector.explain(client, lite_topic, parent=parent, group=group or None)
    except InspectError as error:
        seen = explain_by_updates(live, subscriber, lite_topic)
        return {**seen, "basis": f"{seen['basis']} The job did not answer: {error}."}
    in_groups = [subscriber._replace(group=each.pair.group) for each in found]
    answers = zip(found, (explain_by_updates(live, each, lite_topic) for each in in_groups), strict=True)
    return _joined([_by_job(each, seen) for each, seen in answers])


def _by_job(found: Explanation, seen: dict[str, Any]) -> dict[str, Any]:
    pair = found.pair
    verb = "receives" if found.received else "does not receive"
    decided = f" Decided by {pair.decided_by}." if pair.decided_by else ""
    headline = f"{pair.client} {verb} {pair.topic}: {pair.reason}.{decided}"
    return {**seen, "receives": found.received, "headline": headline, "basis": BASIS, "checks": list(_checks(found))}


def _meaning(cause: str) -> str:
    return _MEANING.get(Cause(cause), cause) if cause in set(Cause) else cause


def _checks(found: Explanation) -> Iterator[dict[str, Any]]:
    """Yield facts, entries and hints: each with its name, `met` (None if unknown), a sentence, and steps by segment."""
    for name, text in wording.facts(found):
        yield {"name": name, "met": None, "detail": f"{text}.", "steps": ()}
    for entry in sorted(found.pair.entries, key=lambda entry: not entry.matches)[:_ENTRIES]:
        place = f" It was sent by {entry.place}." if entry.place else ""
        detail = f"{entry.entry} ({entry.dialect or 'name'}): {entry.reason}.{place}"
        yield {"name": "entry", "met": entry.matches, "detail": detail, "steps": shown_steps(entry.steps)}
    for hint in found.hints:
        yield {"name": "hint", "met": None, "detail": hint.text, "steps": ()}
