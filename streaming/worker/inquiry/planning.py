"""Dry run of an event: the updates by the job's own rules, on a state that does not change."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import islice
from typing import Any, Final, NamedTuple

import orjson

from streaming import coordinator
from streaming.coordinator import CoordinatorState
from streaming.errors import Rejected
from streaming.expansion import expand
from streaming.expansion.backfill import exchanged
from streaming.expansion.micro_batch import MicroBatch, apply_events
from streaming.records.columns import Event, SourceColumns
from streaming.records.model import SingleEvent, Source, Stream
from streaming.records.parsing import PARSERS
from streaming.records.subscribers import ClientKey
from streaming.records.updates import Op, Problem, Update, UpdateColumns
from streaming.state import Shard, ShardState
from streaming.state.topic_table import since
from streaming.tuning import DEFAULT_TUNING
from streaming.worker.inquiry.model import PlannedEffect, PlannedProblem, PlannedUpdate
from streaming.worker.inquiry.questions import Question

PLANNED_OFFSET: Final = 1 << 40
"""Offset of a planned event: later than the offsets of all real events."""

_SHOWN: Final = 100
"""Number of updates that are shown for each operation."""

_COUNTED: Final = 200_000
"""Number of updates that an answer counts."""

_SLICE: Final = 100_000
"""Number of topics of a wide change that an answer evaluates; about 0.2 s."""

_AT_ONCE: Final = replace(DEFAULT_TUNING, backfill_topics=1 << 62)


class Planned(NamedTuple):
    """A planned record as events with their sources, and the entries that are not valid."""

    events: list[tuple[Source, Event]]
    problems: list[PlannedProblem]


Check = Callable[[SingleEvent, int], None]
"""Check of an event and the time of its record against the bounds of a job; raises `Rejected`."""


def read(question: Question, topic: str, timestamp: int, check: Check | None = None) -> Planned:
    """Return the events of a planned record at a time, and its problems.

    Raises `ValueError` if the stream is not an input stream; `topic` is its Kafka topic.
    """
    stream = Stream(question.stream or "")
    entries: Any = question.record.get("subscriptionSet") if stream is Stream.SUBSCRIPTIONS else None
    values = entries if isinstance(entries, list) and entries else [question.record]
    found = Planned([], [])
    for number, value in enumerate(values):
        source = Source(topic, 0, PLANNED_OFFSET, number, timestamp)
        try:
            event = PARSERS[stream](orjson.dumps(value))
            if check is not None:
                check(event, timestamp)
            found.events.append((source, event))
        except Rejected as rejected:
            found.problems.append(PlannedProblem(str(rejected.reason), str(rejected)))
    return found


def plan_shard(state: ShardState, shard: Shard, planned: Planned, question: Question) -> PlannedEffect:
    """Return the effect of a planned event on a shard, or the next part of it if the question has a cursor."""
    events = [(source, event) for source, event in planned.events if getattr(event, "parent", None) == shard.parent]
    tally = _Tally(shard.parent)
    if question.cursor:
        batch = apply_events(state, events, shard, DEFAULT_TUNING)
        end = question.cursor + _SLICE
        topics = list(islice(since(state.topics, question.cursor), _SLICE))
        tally.add(_wide_updates(batch, ClientKey(question.group or "", question.client or ""), topics))
        return tally.effect(cursor=end if end < len(state.topics) else None)
    problems = planned.problems if shard.is_first else []
    steps = expand(state, events, shard, DEFAULT_TUNING if _goes_in_slices(state, events, shard) else _AT_ONCE)
    while tally.count < _COUNTED:
        try:
            tally.add([next(steps)])
        except StopIteration as end_of_steps:
            delta, found, ignored = end_of_steps.value
            begun = [(key.group, each) for key, each in delta.backfills.items() if each and key not in state.backfills]
            first = begun[0][1].first if begun else None
            return tally.effect(
                [*problems, *(_problem(each) for each in found if each.message)],
                map(str, ignored),
                cursor=None if first is None else list(state.topics).index(first),
                wide=tuple((group, client_id) for group, each in begun for client_id in each.clients),
            )
    steps.close()
    return tally.effect(problems, complete=False)


def plan_coordinator(state: CoordinatorState, planned: Planned, client_timeout_ms: int) -> PlannedEffect:
    """Return the effect of a planned event on a bucket: its records for the shards of other parents."""
    outcome = coordinator.follow(state, planned.events, client_timeout_ms)
    echoes = tuple((str(stream), orjson.loads(record.value or b"{}")) for stream, record in outcome.records)
    return PlannedEffect(
        problems=tuple(map(_problem, outcome.problems)), ignored=tuple(map(str, outcome.ignored)), echoes=echoes
    )


class _Tally:
    def __init__(self, parent: str) -> None:
        self._parent = parent
        self._counts: Counter[Op] = Counter()
        self._shown: dict[Op, list[PlannedUpdate]] = {op: [] for op in Op}

    @property
    def count(self) -> int:
        return self._counts.total()

    def add(self, several: Iterable[list[Update] | UpdateColumns]) -> None:
        """Count the updates of the planned event, and leave out other updates of the shard."""
        for updates in several:
            if isinstance(updates, UpdateColumns):
                if not len(updates.pairs) or updates.sources.at(0).offset < PLANNED_OFFSET:
                    continue
                self._counts[updates.op] += len(updates.pairs)
                self._show(updates.one_by_one())
            else:
                own = [update for update in updates if update.source.offset >= PLANNED_OFFSET]
                self._counts.update(update.op for update in own)
                self._show(own)

    def effect(
        self, problems: Iterable[PlannedProblem] = (), ignored: Iterable[str] = (), **rest: Any
    ) -> PlannedEffect:
        shown = tuple(update for op in Op for update in self._shown[op])
        adds, removes = self._counts[Op.ADD], self._counts[Op.REMOVE]
        return PlannedEffect(adds, removes, shown, tuple(problems), tuple(ignored), **rest)

    def _show(self, updates: Iterable[Update]) -> None:
        for update in islice(updates, _SHOWN):
            shown = self._shown[update.op]
            if len(shown) < _SHOWN:
                group, client, part = update.subscriber
                shown.append(
                    PlannedUpdate(update.op, self._parent, update.lite_topic, group, client, update.cause, part)
                )


def _goes_in_slices(state: ShardState, events: list[tuple[Source, Event]], shard: Shard) -> bool:
    """Return True if the topics of a client do not depend on other clients, so that slices can be evaluated alone."""
    if len(state.topics) <= DEFAULT_TUNING.backfill_topics:
        return False
    batch = apply_events(state, events, shard, DEFAULT_TUNING)
    groups = dict.fromkeys(key.group for key in batch.changed)
    return len(groups) == 1 and all(
        state.policy(group) == batch.view.policy(group) and state.policy(group).plain and not state.backfills_of(group)
        for group in groups
    )


def _wide_updates(batch: MicroBatch, key: ClientKey, topics: list[str]) -> Iterator[UpdateColumns]:
    """Yield the updates of a wide change of one client for some topics."""
    change = batch.changed.get(key)
    if change is None:
        return
    lost, gained = exchanged(batch.state, key, change.before, change.after, topics)
    sources = SourceColumns.same(change.source, len(topics))
    for op, cause, pairs in ((Op.REMOVE, change.cause_remove, lost), (Op.ADD, change.cause_add, gained)):
        yield UpdateColumns(op, cause, topics, sources, pairs, [None] * len(pairs.subscriber_table))


def _problem(problem: Problem) -> PlannedProblem:
    return PlannedProblem(str(problem.reason), problem.message)
