"""Formatting of answers as text and as JSON, both in printable characters."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from string import Formatter
from typing import Any, Final, TypeVar

import orjson

from streaming.inspect.api import Explanation, Filter
from streaming.inspect.effects import DryRun
from streaming.printable import counted, printable, printable_json
from streaming.worker.inquiry.model import (
    BindingFacts,
    ClientFacts,
    EntryVerdict,
    GroupFacts,
    LeaseFacts,
    Page,
    PairVerdict,
    SubscriptionFacts,
    TopicDetails,
    TopicFacts,
)
from streaming.worker.inquiry.names import accepting

T = TypeVar("T")

_INDENT = "  "

_SPACE: Final = re.compile(r"([<>^]?[1-9]\d{0,2})?", re.ASCII)
"""Alignment and width of a field in a template."""

_ESCAPES: Final = {r"\n": "\n", r"\t": "\t", "\\\\": "\\"}


def as_json(value: Any) -> str:
    """Return an answer as one line of JSON."""
    return printable_json(orjson.dumps(value).decode())


def explanation(found: Explanation) -> str:
    """Format an explanation, the verdict first."""
    pair = found.pair
    who, what = f"client {pair.client!r} of group {pair.group!r}", f"{pair.topic!r} of {pair.parent!r}"
    verb = "receives" if found.received else "does not receive"
    lines = [f"{'yes' if found.received else 'no'}: {who} {verb} {what}", f"{_INDENT}{pair.reason}"]
    lines += [f"{_INDENT}decided by   {pair.decided_by}"] if pair.decided_by else []
    lines += (f"{_INDENT}{label:<12} {text}" for label, text in facts(found))
    for entry in pair.entries:
        lines += _entry(entry, found.verdict)
    lines += (f"hint: {hint.text}" for hint in found.hints)
    return "\n".join(map(printable, lines))


def time(milliseconds: int) -> str:
    """Return a time in milliseconds since the epoch, to the second."""
    return datetime.fromtimestamp(milliseconds / 1_000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def facts(found: Explanation) -> Iterator[tuple[str, str]]:
    """Yield further facts about a pair, each as label and text."""
    pair, known, born = found.pair, found.pair.group_facts, found.pair.topic_facts
    if born is None:
        yield "topic", "does not exist"
    else:
        parts = [f"tags {born.tags!r}" if born.tags else "", *(f"{k}={v!r}" for k, v in born.properties.items())]
        expiry = f"expires at {time(born.deadline)}" if born.deadline else ""
        yield "topic", ", ".join(filter(None, ["exists", *parts, expiry]))
    set_by = f", set by {known.place}" if known.place else ", no group event is known"
    kind = "patterns" if known.mode == "wildcard" else "names"
    exclusive = ", exclusive" if known.exclusive else ""
    limit = "no quota" if known.quota < 0 else f"quota {known.quota:,}"
    yield "group", f"entries are {kind}{exclusive}, {limit}{set_by}"
    if known.selector:
        yield "selector", f"{known.selector[0]} {known.selector[1]!r}"
    if found.binding:
        yield "binding", f"{found.binding.parent!r}, by {found.binding.place}"
    if pair.client_facts is not None:
        place = pair.client_facts.place
        yield "client", ", ".join([*_client(pair.client_facts), *([f"last request {place}"] if place else [])])
    if found.lease is not None:
        left = "" if found.lease_left_ms is None else f", expires in {found.lease_left_ms / 1_000:.0f} s"
        yield "lease", f"last request at {time(found.lease.last_request)} ({found.lease.place}){left}"
    if pair.holder is not None:
        yield "holder", f"{pair.holder!r}"
    if pair.quota is not None:
        share = f", {pair.quota.share:,} on this shard" if pair.quota.share != pair.quota.quota else ""
        yield "quota", f"{pair.quota.quota:,}{share}; the parent has more topics"


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


def topic(found: TopicFacts) -> str:
    """Return a topic as a line."""
    tags = f"  tags {found.tags}" if found.tags else ""
    properties = "".join(f"  {name}={value}" for name, value in found.properties.items())
    return f"{found.topic}{tags}{properties}{f'  expires at {time(found.deadline)}' if found.deadline else ''}"


def topic_details(name: str, parent: str, found: TopicDetails) -> str:
    """Format a topic with its subscribers."""
    if found.topic is None:
        return f"the parent {parent!r} has no topic {name!r}"
    lines = [topic(found.topic), counted(found.count, "subscriber")]
    for each in found.subscribers:
        part = f" ({each.part})" if each.part else ""
        lines.append(f"{_INDENT}{each.group}/{each.client}{part}  {', '.join(each.entries) or 'every topic'}")
    if len(found.subscribers) < found.count:
        lines.append(f"{_INDENT}and {found.count - len(found.subscribers):,} more")
    return "\n".join(map(printable, lines))


def subscription(found: SubscriptionFacts) -> str:
    """Return an entry of a client as a line."""
    kind = "every topic" if found.entry is None else found.dialect or "name"
    policy = f" ({found.policy})" if found.policy else ""
    away = "" if found.live else "  in no session"
    return f"{found.group}/{found.client}  {found.entry or '*'}  {kind}{policy}  {found.place or ''}{away}".rstrip()


def client(found: ClientFacts | LeaseFacts) -> str:
    """Format a client as a line: on one parent, or on all."""
    if isinstance(found, LeaseFacts):
        parents = ", ".join(found.parents) or "in no session"
        return f"{found.group}/{found.client}  {parents}  last request at {time(found.last_request)} ({found.place})"
    return "  ".join([f"{found.group}/{found.client}", *_client(found), *([str(found.place)] if found.place else [])])


def _client(found: ClientFacts) -> Iterator[str]:
    yield "in session" if found.live else "in no session"
    yield "every topic" if found.everything else counted(found.entries, "entry", "entries")
    if found.version is not None:
        yield f"version {found.version}"


def group(found: GroupFacts | BindingFacts) -> str:
    """Format a group as a line: on one parent, or its binding."""
    if isinstance(found, BindingFacts):
        return f"{found.group}  bound to {found.parent} by {found.place}"
    parts = [
        found.group,
        found.mode,
        "" if found.clients is None else counted(found.clients, "client"),
        f"bound to {found.bound_to}" if found.bound_to else "",
        f"{found.selector[0]} {found.selector[1]!r}" if found.selector else "",
        " ".join(f"{name}={value}" for name, value in sorted(found.attributes.items())),
        f"by {found.place}" if found.place else "no group event",
    ]
    return "  ".join(filter(None, parts))


def dry_run(found: DryRun) -> str:
    """Format a dry run: the numbers, then some of the updates."""
    lines = [f"would add {found.adds:,} and remove {counted(found.removes, 'row')}"]
    for parent in found.parents:
        least = "" if parent.complete else ", and more that were not counted"
        lines.append(f"{_INDENT}{parent.parent}: {parent.adds:,} added, {parent.removes:,} removed{least}")
        for each in parent.shown:
            part = f" ({each.part})" if each.part else ""
            lines.append(f"{_INDENT * 2}{each.op} {each.group}/{each.client}{part} {each.topic}  {each.cause}")
        left = parent.adds + parent.removes - len(parent.shown)
        lines += [f"{_INDENT * 2}and {left:,} more"] if left > 0 else []
    lines += (f"dead letter: {problem.reason}: {problem.message}" for problem in found.problems)
    lines += (f"ignored: {reason}" for reason in found.ignored)
    return "\n".join(map(printable, lines))


def list_end(shown: int, total: int, *, more: bool) -> str:
    """Return the line below a list."""
    return f"{shown:,} shown" + (f", of {total:,}; --all shows all, --limit more of them" if more else "")


def chosen(items: Sequence[T], name: str, selection: Filter) -> Iterator[Page[T]]:
    """Yield the items whose name passes a filter, as one page."""
    accepts = accepting(selection.pattern, selection.dialect)
    yield Page([item for item in items if accepts(getattr(item, name))], None, len(items))


def template(text: str) -> Callable[[Mapping[str, Any]], str]:
    r"""Return a function that formats an update by a template, such as `{op:<6} {clientId}\t{liteTopic}`.

    Missing fields are empty. Fields with several values are JSON, except `patterns`, joined by commas, and `source`.

    Raises:
        ValueError: the template is invalid; the message lists the fields.
    """
    from streaming.records.schema_models import SourceSchema, UpdateSchema  # noqa: PLC0415 - other verbs need no schema

    fields = (*UpdateSchema.model_fields, *(f"source.{part}" for part in SourceSchema.model_fields))
    parts = []
    for literal, field, space, conversion in Formatter().parse(text):
        if field is not None and field not in fields:
            raise ValueError(f"an update has no field {field!r}; its fields are {', '.join(fields)}")
        if conversion or not _SPACE.fullmatch(space or ""):
            raise ValueError(f"{field!r} can have a width, such as {{{field}:<20}}, and nothing else")
        parts.append((re.sub(r"\\[nt\\]", lambda found: _ESCAPES[found[0]], literal), field, space or ""))

    def format_update(found: Mapping[str, Any]) -> str:
        texts = ((literal, "" if field is None else _field(found, field), space) for literal, field, space in parts)
        return "".join(literal + format(printable(text), space) for literal, text, space in texts)

    return format_update


def _field(found: Mapping[str, Any], field: str) -> str:
    name, _, part = field.partition(".")
    value = found.get(name)
    if part and isinstance(value, dict):
        value = value.get(part)
    elif name == "source":
        return _place(found)
    if isinstance(value, str):
        return value
    if name == "patterns" and isinstance(value, list):
        return ", ".join(map(str, value))
    return "" if value is None else orjson.dumps(value).decode()


def _place(update: Mapping[str, Any]) -> str:
    source = update.get("source") or {}
    return f"{source.get('topic')}[{source.get('partition')}]@{source.get('offset')}"


def update(found: Mapping[str, Any]) -> str:
    """Return an update as a line."""
    share = f"share:{found['share']}/{found.get('filter', '')}" if "share" in found else ""
    part = found.get("subscription") or share
    part = f" ({part})" if part else ""
    entries = ", ".join(found.get("patterns") or []) or "every topic"
    who = f"{found['parentTopic']} {found['group']}/{found['clientId']}{part}"
    return f"{found['op']:<6} {who} {found['liteTopic']}  {found.get('cause')}  {entries}  {_place(found)}"
