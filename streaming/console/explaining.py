"""Explanations of pairs: reasons from the live state of the job, and history from the updates."""

from collections.abc import Callable, Iterator
from typing import Any, Final, TypeAlias

from streaming.client.rows import Row, Subscriber
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
"""Maximum number of a client's groups in an explanation."""

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


def explain_by_updates(live: LiveRelation, asked: Subscriber, lite_topic: str) -> dict[str, Any]:
    """Return the history of a pair, newest first, and one sentence.

    A subscriber without a part has all its parts. Without a group it is the client in a group that receives the topic,
    or in its first one. `groups` starts with that group, followed by the client's other groups with a row.
    """
    clients = [asked] if asked.group else [asked._replace(group=group) for group in _groups(live, asked)] or [asked]
    rows = {each: _row(live, each, lite_topic) for each in clients}
    subscriber = next((each for each in clients if rows[each] is not None), clients[0])
    row = rows[subscriber]
    pairs = {subscriber, *_parts(live, subscriber)}
    changes = (seen for each in pairs for seen in live.changes.of_pair((*each, lite_topic)))
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
        "groups": [subscriber.group, *(each.group for each in clients if each != subscriber)],
    }


def _groups(live: LiveRelation, subscriber: Subscriber) -> list[str]:
    """Return the groups in which a client has rows, at most `_GROUPS`, within the budget of a response."""
    client = subscriber.client_id
    with live.names(subscriber.parent) as names:
        found = {key[0] for key in Budget().search(names.subscribers, client) if key[1] == client}
    return sorted(found)[:_GROUPS]


def _parts(live: LiveRelation, subscriber: Subscriber) -> list[Subscriber]:
    return [subscriber] if subscriber.part is not None else live.parts(subscriber, _PARTS)


def _row(live: LiveRelation, subscriber: Subscriber, lite_topic: str) -> Row | None:
    found = (live.rows.row(part, lite_topic) for part in _parts(live, subscriber))
    return next((row for row in found if row is not None), None)


def explain(settings: Settings, live: LiveRelation, subscriber: Subscriber, lite_topic: str) -> dict[str, Any]:
    """Return the job's explanation of a pair with the history from the updates; only the latter if no job answers.

    Without a group it explains the first group that receives the topic, or the first one.
    """
    parent, group, client, _ = subscriber
    try:
        with Inspector(settings, _ANSWER_SECONDS) as inspector:
            found = inspector.explain(client, lite_topic, parent=parent, group=group or None, most_groups=_GROUPS)
    except InspectError as error:
        seen = explain_by_updates(live, subscriber, lite_topic)
        return {**seen, "basis": f"{seen['basis']} The job did not answer: {error}."}
    best = next((each for each in found if each.received), found[0])
    seen = explain_by_updates(live, subscriber._replace(group=best.pair.group), lite_topic)
    others = [each.pair.group for each in found if each is not best]
    return {**_by_job(best, seen), "groups": [best.pair.group, *others][:_GROUPS]}


def _by_job(found: Explanation, seen: dict[str, Any]) -> dict[str, Any]:
    pair = found.pair
    verb = "receives" if found.received else "does not receive"
    decided = f" Decided by {pair.decided_by}." if pair.decided_by else ""
    headline = f"{pair.client} {verb} {pair.topic}: {pair.reason}.{decided}"
    return {**seen, "receives": found.received, "headline": headline, "basis": BASIS, "checks": list(_checks(found))}


def _meaning(cause: str) -> str:
    return _MEANING.get(Cause(cause), cause) if cause in set(Cause) else cause


def _checks(found: Explanation) -> Iterator[dict[str, Any]]:
    """Yield facts, entries and hints: each with its name, a sentence, and steps by segment.

    `met` is None for facts and hints.
    """
    for name, text in wording.facts(found):
        yield {"name": name, "met": None, "detail": f"{text}.", "steps": ()}
    for entry in sorted(found.pair.entries, key=lambda entry: not entry.matches)[:_ENTRIES]:
        place = f" It was sent by {entry.place}." if entry.place else ""
        detail = f"{entry.entry} ({entry.dialect or 'name'}): {entry.reason}.{place}"
        yield {"name": "entry", "met": entry.matches, "detail": detail, "steps": shown_steps(entry.steps)}
    for hint in found.hints:
        yield {"name": "hint", "met": None, "detail": hint.text, "steps": ()}
