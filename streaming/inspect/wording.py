"""Answers as text for people, and as JSON."""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import orjson

from streaming.inquiry.model import EntryVerdict, PairVerdict
from streaming.inspect.api import Explanation

_INDENT = "  "


def as_json(value: Any) -> str:
    """Return an answer as one line of JSON."""
    return orjson.dumps(value).decode()


def explanation(found: Explanation) -> str:
    """Return an explanation as a few lines, the answer first."""
    pair = found.pair
    who, what = f"client {pair.client!r} of group {pair.group!r}", f"{pair.topic!r} of {pair.parent!r}"
    verb = "receives" if found.received else "does not receive"
    lines = [f"{'yes' if found.received else 'no'}: {who} {verb} {what}", f"{_INDENT}{pair.reason}"]
    lines += [f"{_INDENT}decided by   {pair.decided_by}"] if pair.decided_by else []
    lines += (f"{_INDENT}{label:<12} {text}" for label, text in _facts(found))
    for entry in pair.entries:
        lines += _entry(entry, found.verdict)
    lines += (f"hint: {hint.text}" for hint in found.hints)
    return "\n".join(lines)


def time(milliseconds: int) -> str:
    """Return a time in milliseconds since the epoch, to the second."""
    return datetime.fromtimestamp(milliseconds / 1_000, UTC).isoformat(" ", "seconds")


def _facts(found: Explanation) -> Iterator[tuple[str, str]]:
    pair, group = found.pair, found.pair.group_facts
    topic = pair.topic_facts
    if topic is None:
        yield "topic", "does not exist"
    else:
        parts = [f"tags {topic.tags!r}" if topic.tags else "", *(f"{k}={v!r}" for k, v in topic.properties.items())]
        expiry = f"expires at {time(topic.deadline)}" if topic.deadline else ""
        yield "topic", ", ".join(filter(None, ["exists", *parts, expiry]))
    set_by = f", set by {group.place}" if group.place else ", no group event is known"
    kind = "patterns" if group.mode == "wildcard" else "names"
    exclusive = ", exclusive" if group.exclusive else ""
    limit = "no quota" if group.quota < 0 else f"quota {group.quota:,}"
    yield "group", f"entries are {kind}{exclusive}, {limit}{set_by}"
    if group.selector:
        yield "selector", f"{group.selector[0]} {group.selector[1]!r}"
    if found.binding:
        yield "binding", f"{found.binding.parent!r}, by {found.binding.place}"
    client = pair.client_facts
    if client is not None:
        version = "" if client.version is None else f", version {client.version}"
        last = f", last request {client.place}" if client.place else ""
        size = "every topic" if client.everything else f"{client.entries:,} entries"
        yield "client", f"{'in session' if client.live else 'in no session'}, {size}{version}{last}"
    if found.lease is not None:
        left = "" if found.lease_left_ms is None else f", expires in {found.lease_left_ms / 1_000:.0f} s"
        yield "lease", f"last request at {time(found.lease.last_request)} ({found.lease.place}){left}"
    if pair.holder is not None:
        yield "holder", f"{pair.holder!r}"
    if pair.quota is not None:
        share = f", {pair.quota.share:,} on this shard" if pair.quota.share != pair.quota.quota else ""
        yield "quota", f"{pair.quota.quota:,}{share}; the client asks for {pair.quota.asks_for:,} topics here"


def _entry(entry: EntryVerdict, verdict: PairVerdict) -> Iterator[str]:
    kind = "name" if entry.dialect is None else f"{entry.dialect} pattern"
    policy = f" ({entry.policy})" if entry.policy else ""
    mark = "matches" if entry.matches else "does not match"
    place = f", sent by {entry.place}" if entry.place else ""
    yield f"{_INDENT}{kind}{policy} {entry.entry!r} {mark}: {entry.reason}{place}"
    if verdict is PairVerdict.NO_MATCH:
        for step in entry.steps:
            shown = f"{step.pattern if step.pattern is not None else '(none)':<16} {step.topic or '(none)':<16}"
            yield f"{_INDENT * 2}{' ' if step.fits else '!'} {shown} {step.verdict}"
