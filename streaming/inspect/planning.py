"""Dry runs on all shards and parents of an event."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

import orjson

from streaming.coordinator import COORDINATOR
from streaming.records.model import Reason, Stream
from streaming.records.routing import Routing, placed
from streaming.worker.inquiry.planning import PlannedEffect, PlannedProblem, PlannedUpdate
from streaming.worker.inquiry.questions import Ask, Question

if TYPE_CHECKING:
    from streaming.inspect.reading import PlannedRecord

Asker = Callable[[Question, str, int], PlannedEffect]
"""Function that queries a key of a parent."""

_SHOWN: Final = 100
"""Number of shown updates per parent."""


@dataclass(frozen=True, slots=True)
class ParentEffect:
    """Effect of a planned event on one parent.

    Attributes:
        adds, removes: number of updates.
        shown: some of them.
        complete: False if more were not counted.
    """

    parent: str
    adds: int
    removes: int
    shown: tuple[PlannedUpdate, ...]
    complete: bool


@dataclass(frozen=True, slots=True)
class DryRun:
    """Effect of a planned event.

    Attributes:
        stream: input stream of the event.
        parents: effect on each affected parent.
        problems: dead letters.
        ignored: reasons to ignore it.
    """

    stream: str
    parents: tuple[ParentEffect, ...]
    problems: tuple[PlannedProblem, ...]
    ignored: tuple[str, ...]

    @property
    def adds(self) -> int:
        """Number of rows that would be added."""
        return sum(each.adds for each in self.parents)

    @property
    def removes(self) -> int:
        """Number of rows that would be removed."""
        return sum(each.removes for each in self.parents)


def stream_of(record: Mapping[str, Any]) -> Stream:
    """Infer the input stream of a record from its fields."""
    if "subscriptionSet" in record or "action" in record or "liteTopicSet" in record:
        return Stream.SUBSCRIPTIONS
    return Stream.GROUPS if "attributes" in record else Stream.TOPICS


def dry_run(
    stream: Stream,
    reading: PlannedRecord,
    coordinate: Callable[[Question], list[PlannedEffect]],
    ask: Asker,
    routing_of: Callable[[str], Routing],
) -> DryRun:
    """Return the effect of an event, from the coordinator and all its shards.

    Args:
        stream: input stream of the event.
        reading: the event as the job would read it.
        coordinate: queries the coordinator.
        ask: queries a shard.
        routing_of: returns the routing of a parent.
    """
    effects: list[tuple[str, PlannedEffect]] = []
    records: list[tuple[Stream, Mapping[str, Any]]] = []
    if reading.record is not None:
        said = [] if stream is Stream.TOPICS else coordinate(_question(stream, reading.record))
        effects += ((COORDINATOR, each) for each in said)
        lasting = _lasting(reading.record, coordinate) if any(map(_is_elsewhere, said)) else reading.record
        records += [(stream, lasting)] if lasting is not None else []
        records += [(Stream(name), value) for each in said for name, value in each.echoes]
    for each, value in records:
        for parent, number in _shards(each, value, routing_of):
            question = _question(each, value)
            effects.append((parent, first := ask(question, parent, number)))
            for group, client in first.wide:
                cursor = first.cursor
                while cursor is not None:
                    again = replace(question, id=uuid4().hex, group=group, client=client, cursor=cursor)
                    effects.append((parent, effect := ask(again, parent, number)))
                    cursor = effect.cursor
    named = dict.fromkeys(parent for parent, _ in effects if parent != COORDINATOR)
    return DryRun(
        stream,
        tuple(_together(parent, [effect for other, effect in effects if other == parent]) for parent in named),
        tuple(dict.fromkeys([*reading.problems, *(problem for _, effect in effects for problem in effect.problems)])),
        tuple(dict.fromkeys([*reading.ignored, *(reason for _, effect in effects for reason in effect.ignored)])),
    )


def _is_elsewhere(effect: PlannedEffect) -> bool:
    """Return True if the group of a request is not bound to its parent, so its rows are withdrawn."""
    return any(problem.reason == Reason.GROUP_BOUND_ELSEWHERE for problem in effect.problems)


def _lasting(
    record: Mapping[str, Any], coordinate: Callable[[Question], list[PlannedEffect]]
) -> Mapping[str, Any] | None:
    """Return the requests on the parents to which their groups are bound; None if there are none."""
    entries = record.get("subscriptionSet")
    if entries is None:
        return None
    left = [
        entry for entry in entries if not any(map(_is_elsewhere, coordinate(_question(Stream.SUBSCRIPTIONS, entry))))
    ]
    return {"subscriptionSet": left} if left else None


def _question(stream: Stream, record: Mapping[str, Any]) -> Question:
    return Question(uuid4().hex, Ask.PLAN, stream=str(stream), record=dict(record))


def _shards(
    stream: Stream, record: Mapping[str, Any], routing_of: Callable[[str], Routing]
) -> Iterator[tuple[str, int]]:
    """Yield the shards of a record, each once."""
    value = orjson.dumps(record)
    parents = dict.fromkeys(each.parent for each in placed(stream, value, Routing()) if each.parent != COORDINATOR)
    for parent in parents:
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
