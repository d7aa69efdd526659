"""Shard that applies events, checked after each micro-batch."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace as replaced
from functools import partial
from itertools import takewhile
from typing import Any, NamedTuple

from streaming.expansion import expand
from streaming.records.columns import Event, SourceColumns, TopicEventColumns
from streaming.records.model import (
    GroupEvent,
    Source,
    SubscriptionRequest,
    TopicEvent,
    Wake,
)
from streaming.records.subscribers import ClientKey, SubscriberKey
from streaming.records.updates import Cause, Op, Problem, Update
from streaming.state import Shard, ShardDelta, ShardState
from streaming.state.client import Ignored, Interest
from streaming.tuning import DEFAULT_TUNING, Tuning
from tests.support import events
from tests.support.events import parsed
from tests.support.states import decode, encode

STREAM_NAMES: dict[type[Event], str] = {
    GroupEvent: "groups",
    SubscriptionRequest: "subscriptions",
    TopicEvent: "topics",
    Wake: "clock",
}


class Said(NamedTuple):
    """Update in short form."""

    op: str
    client: str
    topic: str
    patterns: tuple[str, ...]
    cause: str
    part: str = ""


def added(topic: str, *patterns: str, cause: Cause = Cause.TOPIC_CREATED, client: str = "c", part: str = "") -> Said:
    return Said(Op.ADD, client, topic, patterns, cause, part)


def removed(topic: str, *patterns: str, cause: Cause = Cause.TOPIC_DELETED, client: str = "c", part: str = "") -> Said:
    return Said(Op.REMOVE, client, topic, patterns, cause, part)


subscribed, regrouped, selected, freed, released = (
    partial(added, cause=cause)
    for cause in (
        Cause.SUBSCRIBED,
        Cause.GROUP_CHANGED,
        Cause.SELECTOR_CHANGED,
        Cause.QUOTA_FREED,
        Cause.RELEASED,
    )
)
unsubscribed, degrouped, deselected, exceeded, evicted, expired, lapsed = (
    partial(removed, cause=cause)
    for cause in (
        Cause.UNSUBSCRIBED,
        Cause.GROUP_CHANGED,
        Cause.SELECTOR_CHANGED,
        Cause.QUOTA_EXCEEDED,
        Cause.EVICTED,
        Cause.TOPIC_EXPIRED,
        Cause.LEASE_EXPIRED,
    )
)


class Found(NamedTuple):
    """Complete result of a micro-batch on a shard."""

    delta: ShardDelta
    updates: list[Update]
    problems: list[Problem]
    ignored: Counter[Ignored]


def expanded(
    state: ShardState, events: Iterable[tuple[Source, Event]], shard: Shard, tuning: Tuning = DEFAULT_TUNING
) -> Found:
    updates: list[Update] = []
    steps = expand(state, events, shard, tuning)
    while True:
        try:
            found = next(steps)
        except StopIteration as end:
            return Found(end.value.delta, updates, end.value.problems, end.value.ignored)
        updates += found if isinstance(found, list) else found.one_by_one()


def concat(events: Sequence[tuple[Source, Event]]) -> Sequence[tuple[Source, Event]]:
    """Convert topic events to columns; they must be in a worker's reading order."""
    many = [(source, event) for source, event in events if isinstance(event, TopicEvent)]
    before = list(takewhile(lambda each: isinstance(each[1], SubscriptionRequest | GroupEvent), events))
    behind = events[len(before) + len(many) :]
    if not many or not all(isinstance(event, Wake) for _, event in behind):
        return events
    sources, topics = zip(*many, strict=True)
    columns = TopicEventColumns(
        [topic.lite_topic for topic in topics],
        [topic.created for topic in topics],
        [topic.metadata(source.timestamp) for source, topic in many],
        SourceColumns.of(sources),
    )
    return [*before, (sources[0], columns), *behind]


class Story:
    """Shard over several micro-batches, checked after each.

    `expand` is pure, its delta is complete, and it gives the same result by column.
    """

    tuning = DEFAULT_TUNING

    def __init__(self, *first: events.Event | Event, shard: Shard | None = None) -> None:
        self.shard = shard or Shard("p")
        self.state = ShardState(inner_multi=self.shard.inner_multi)
        self.offset = 0
        self.partition = 0
        self.rows: dict[tuple[SubscriberKey, str], None] = {}
        self.expansion: Found
        self.then(*first)

    def then(self, *events: events.Event | Event) -> set[Said]:
        """Run a micro-batch with the next offsets, and return its updates, which must be distinct."""
        sourced = [(self._source(event), event) for event in map(_parsed, events)]
        before = encode(self.state)
        self.expansion = expanded(self.state, sourced, self.shard, self.tuning)
        by_column = expanded(self.state, concat(sourced), self.shard, replaced(self.tuning, columnar_min_topics=1))
        assert _comparable(by_column) == _comparable(self.expansion)
        assert encode(self.state) == before, "expand changed the state"
        self.state.apply(self.expansion.delta)
        rebuilt = decode(before, inner_multi=self.shard.inner_multi)
        rebuilt.apply(self.expansion.delta)
        assert rebuilt == self.state, "the delta depends on the indexes"
        keys = {(update.subscriber, update.lite_topic) for update in self.expansion.updates}
        assert len(keys) == len(self.expansion.updates), "two updates of one receiver and topic"
        self._fold()
        return {
            Said(
                update.op,
                update.subscriber.client_id,
                update.lite_topic,
                update.patterns,
                update.cause,
                update.subscriber.part,
            )
            for update in self.expansion.updates
        }

    def _fold(self) -> None:
        for update in self.expansion.updates:
            row = (update.subscriber, update.lite_topic)
            assert (row in self.rows) is (update.op is Op.REMOVE), "an update that changes nothing"
            if update.op is Op.ADD:
                self.rows[row] = None
            else:
                del self.rows[row]

    def held(self, client: str = "c", group: str = "g") -> list[str]:
        """Return the topics that a client holds, in order of creation."""
        key = ClientKey(group, client)
        topics = {topic for subscriber, topic in self.rows if subscriber.client == key}
        return [topic for topic in self.state.topics if topic in topics]

    def interest(self, client: str = "c", group: str = "g") -> Interest:
        return self.state.interest(ClientKey(group, client))

    @property
    def only_update(self) -> Update:
        (update,) = self.expansion.updates
        return update

    @property
    def ignored(self) -> dict[Ignored, int]:
        return dict(self.expansion.ignored)

    @property
    def problems(self) -> list[Problem]:
        return self.expansion.problems

    def _source(self, event: Event) -> Source:
        self.offset += 1
        return Source(STREAM_NAMES[type(event)], self.partition, self.offset, 0, 1_000 + self.offset)


def _parsed(event: events.Event | Event) -> Event:
    return parsed(event) if isinstance(event, dict) else event


def _comparable(found: Found) -> tuple[Any, ...]:
    """Return all compared fields, including the order of creation."""
    problems = sorted(found.problems)
    return sorted(found.updates, key=repr), found.delta, list(found.delta.added), problems, found.ignored
