"""Events of a user: parsed as in the job, planned on all shards and parents, or sent."""

import json
import secrets
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace
from math import inf
from typing import Any, Final, NamedTuple

import orjson

from streaming.config import Settings
from streaming.errors import NotWritten, QuestionRefused, Rejected
from streaming.inspect.asking import BUCKET_KEYS
from streaming.inspect.effects import DryRun, ParentEffect
from streaming.kafka.options import for_librdkafka
from streaming.kafka.writer import Writer
from streaming.records.model import Reason, Stream
from streaming.records.parsing import parse_topic_event
from streaming.records.routing import COORDINATOR, Routing, placed
from streaming.storage.journal import Key
from streaming.worker.bounds import Bounds, bounds_of
from streaming.worker.inquiry.model import EventPlace, PlannedEffect, PlannedProblem
from streaming.worker.inquiry.planning import PLANNED_OFFSET
from streaming.worker.inquiry.questions import Ask, Question
from streaming.worker.reading import KeyReader
from streaming.worker.rows import STREAMS, InputRow, InputRows
from streaming.worker.signature import Signer

Asker = Callable[[Question, Collection[Key]], list[PlannedEffect]]
"""Function that queries keys."""

_SHOWN: Final = 100
"""Number of shown updates per parent."""

_SIGNED: Final = "signed-by-another-job"
"""Reason to ignore a record with fields reserved for the job and another job's signature."""

_NAMES: Final = (str(STREAMS[0]), str(STREAMS[1]), str(STREAMS[2]), str(STREAMS[3]))
"""Placeholders for the names of the Kafka topics."""

_KAFKA_SECONDS: Final = 20.0


class PlannedRecord(NamedTuple):
    """Entries of a record that the job would apply, its dead letters, and why other entries have no effect."""

    record: dict[str, Any] | None
    problems: tuple[PlannedProblem, ...] = ()
    ignored: tuple[str, ...] = ()


def text_of(record: Mapping[str, Any]) -> bytes:
    """Encode a record as JSON, even if it is invalid."""
    return json.dumps(record).encode()


def stream_of(record: Mapping[str, Any]) -> Stream:
    """Infer the input stream of a record from its fields."""
    if "subscriptionSet" in record or "action" in record or "liteTopicSet" in record:
        return Stream.SUBSCRIPTIONS
    return Stream.GROUPS if "attributes" in record else Stream.TOPICS


def read(stream: Stream, text: bytes, bounds: Bounds) -> PlannedRecord:
    """Parse the value of a record of an input stream as in the job."""
    try:
        if len(text) > bounds.value_bytes:
            message = f"the value has {len(text):,} bytes; at most {bounds.value_bytes:,} are allowed (max_value_bytes)"
            raise Rejected(Reason.VALUE_TOO_LARGE, message)  # noqa: TRY301 - one handler for both
        beyond = bounds.explain_set(text) if stream is Stream.SUBSCRIPTIONS else None
    except Rejected as rejected:
        beyond = rejected
    if beyond is not None:
        return PlannedRecord(None, (PlannedProblem(str(beyond.reason), str(beyond)),))
    applied: list[dict[str, Any]] = []
    problems: list[PlannedProblem] = []
    ignored: list[str] = []
    for each in placed(stream, text, Routing()):
        if stream is not Stream.TOPICS and each.parent != COORDINATOR:
            continue  # the coordinator reports each invalid entry once
        reader = KeyReader(each.parent, each.shard, _NAMES, inf, bounds=bounds, signer=Signer(secrets.token_bytes()))
        now = time.time_ns() // 1_000_000
        row = InputRow(STREAMS.index(stream), 0, PLANNED_OFFSET, each.entry, now, each.payload)
        found = reader.read(InputRows.of([row]))
        problems += (PlannedProblem(str(each.reason), each.message) for each in found.rejected)
        if found.events or stream is Stream.CLOCK:
            applied.append(orjson.loads(each.payload or b""))
        elif not found.rejected:
            ignored = [_SIGNED]
    record = applied[0] if applied else None
    if applied and stream is Stream.SUBSCRIPTIONS and applied[0] != orjson.loads(text):
        record = {"subscriptionSet": applied}
    return PlannedRecord(record, tuple(problems), tuple(ignored))


def dry_run(stream: Stream, reading: PlannedRecord, ask: Asker, routing_of: Callable[[str], Routing]) -> DryRun:
    """Return the effect of an event, from the coordinator and all its shards."""
    effects: list[tuple[str, PlannedEffect]] = []
    records: list[tuple[Stream, Mapping[str, Any]]] = []
    if reading.record is not None:
        said = [] if stream is Stream.TOPICS else ask(_question(stream, reading.record), BUCKET_KEYS)
        effects += ((COORDINATOR, each) for each in said)
        lasting = _lasting(reading.record, ask) if any(map(_is_elsewhere, said)) else reading.record
        records += [(stream, lasting)] if lasting is not None else []
        records += [(Stream(name), value) for each in said for name, value in each.echoes]
    for each, value in records:
        question = _question(each, value)
        for key in _shards(each, value, routing_of):
            (first,) = ask(question, [key])
            effects.append((key[0], first))
            for group, client in first.wide:
                cursor = first.cursor
                while cursor is not None:
                    (effect,) = ask(replace(question, group=group, client=client, cursor=cursor), [key])
                    effects.append((key[0], effect))
                    cursor = effect.cursor
    parents = dict.fromkeys(parent for parent, _ in effects if parent != COORDINATOR)
    return DryRun(
        stream,
        tuple(_together(parent, [effect for other, effect in effects if other == parent]) for parent in parents),
        tuple(dict.fromkeys([*reading.problems, *(problem for _, effect in effects for problem in effect.problems)])),
        tuple(dict.fromkeys([*reading.ignored, *(reason for _, effect in effects for reason in effect.ignored)])),
    )


def _question(stream: Stream, record: Mapping[str, Any]) -> Question:
    return Question("", Ask.PLAN, stream=str(stream), record=dict(record))


def _is_elsewhere(effect: PlannedEffect) -> bool:
    """Return True if the group of a request is not bound to its parent, so its rows are withdrawn."""
    return any(problem.reason == Reason.GROUP_BOUND_ELSEWHERE for problem in effect.problems)


def _lasting(record: Mapping[str, Any], ask: Asker) -> Mapping[str, Any] | None:
    """Return the requests on the parents to which their groups are bound; None if there are none."""
    left = [
        entry
        for entry in record.get("subscriptionSet") or ()
        if not any(map(_is_elsewhere, ask(_question(Stream.SUBSCRIPTIONS, entry), BUCKET_KEYS)))
    ]
    return {"subscriptionSet": left} if left else None


def _shards(stream: Stream, record: Mapping[str, Any], routing_of: Callable[[str], Routing]) -> Iterator[Key]:
    value = orjson.dumps(record)
    for parent in dict.fromkeys(each.parent for each in placed(stream, value, Routing())):
        if parent != COORDINATOR:
            keys = placed(stream, value, routing_of(parent))
            yield from dict.fromkeys((each.parent, each.shard) for each in keys if each.parent == parent)


def _together(parent: str, effects: list[PlannedEffect]) -> ParentEffect:
    return ParentEffect(
        parent,
        sum(each.adds for each in effects),
        sum(each.removes for each in effects),
        tuple(update for each in effects for update in each.shown)[:_SHOWN],
        all(each.complete for each in effects),
    )


def send(settings: Settings, stream: Stream, record: Mapping[str, Any] | bytes) -> EventPlace:
    """Write an event, and return its place; bytes are the value of the record.

    Raises:
        QuestionRefused: the event, or an entry of it, would become a dead letter.
        NotWritten: Kafka rejected the record, or does not answer.
    """
    text = record if isinstance(record, bytes) else text_of(record)
    _, problems, ignored = read(stream, text, bounds_of(settings))
    reasons = [*(f"{each.message} ({each.reason})" for each in problems), *ignored]
    if reasons:
        raise QuestionRefused("nothing was sent: " + "; ".join(reasons))
    topic = {
        Stream.TOPICS: settings.topic_events,
        Stream.SUBSCRIPTIONS: settings.subscription_events,
        Stream.GROUPS: settings.group_events,
    }[stream]
    writer = Writer(settings.bootstrap_servers, for_librdkafka(settings), NotWritten, {"linger.ms": 0})
    writer.send(topic, text, _key(stream, orjson.loads(text)))
    [(partition, offset)] = writer.flush(_KAFKA_SECONDS)
    return EventPlace(*partition, offset)


def _key(stream: Stream, record: Mapping[str, Any]) -> bytes:
    """Return the key, which preserves the order: the parent of a topic, or the group."""
    if stream is Stream.TOPICS:
        return parse_topic_event(orjson.dumps(record)).parent.encode()
    entries = record.get("subscriptionSet")
    return str((entries[0] if isinstance(entries, list) and entries else record)["group"]).encode()
