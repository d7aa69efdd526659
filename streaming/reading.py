"""The rows of one key in a micro-batch as checked events; what is not valid becomes a dead letter."""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import NamedTuple, TypeVar

import numpy as np

from streaming import home
from streaming.batch import PARSERS, Event
from streaming.columns import MANY, Ints, Sources, TopicEvents
from streaming.errors import Rejected
from streaming.events import (
    PLAIN,
    Alarm,
    GroupEvent,
    Reason,
    Source,
    Stream,
    SubscriptionRequest,
    Tick,
    TopicEvent,
    Wake,
)
from streaming.home import HOME
from streaming.output import Kind, Output
from streaming.parsing import parse_plain_topic_events
from streaming.records import dead_letter

STREAMS = tuple(Stream)
"""The input streams by their number in a row; also the order in which a micro-batch is read."""

_PARSERS = tuple(PARSERS[stream] for stream in STREAMS)
_GROUPS, _SUBSCRIPTIONS, _TOPICS, _CLOCK = range(4)

Number = TypeVar("Number", int, Ints)

Topics = tuple[str, str, str, str]
"""Kafka topic names of the input streams, in the order of `STREAMS`."""

Entry = tuple[int, int, int, int, int, bytes | None]
"""A `Row` as Spark gives it; naming the fields takes 0.4 us each."""


class Row(NamedTuple):
    """One input entry; rows sort in the order in which they are read.

    Attributes:
        entry: twice its position in the record; one more where no shard sees it, because it names no parent.
    """

    stream: int
    partition: int
    offset: int
    entry: int
    timestamp: int
    payload: bytes | None


def position(entry: Number) -> Number:
    """Where in its record an entry of a row stands, or each of many."""
    return entry // 2


def read(
    parent: str, number: int, rows: Sequence[Entry], topics: Topics, output: Output
) -> Iterator[tuple[Source, Event]]:
    """The valid events of a key; what is not valid is reported by exactly one of the keys that see it."""
    first, behind = (bisect_left(rows, (stream,)) for stream in (_TOPICS, _TOPICS + 1))
    if parent == HOME or behind - first < MANY:
        return _one_by_one(parent, number, rows, topics, output)
    return chain(
        _one_by_one(parent, number, rows[:first], topics, output),
        _all_at_once(parent, rows[first:behind], topics, output),
        _one_by_one(parent, number, rows[behind:], topics, output),
    )


def _all_at_once(parent: str, rows: Sequence[Entry], topics: Topics, output: Output) -> Iterator[tuple[Source, Event]]:
    """`_one_by_one` for many topic events."""
    _, partitions, offsets, entries, timestamps, payloads = zip(*rows, strict=True)
    columns = (np.array(column, np.int64) for column in (partitions, offsets, entries, timestamps))
    sources = Sources(topics[_TOPICS], *columns)
    sources = sources._replace(entries=position(sources.entries))
    plain = parse_plain_topic_events(payloads, parent)
    if plain is not None:
        yield sources.at(0), TopicEvents(*plain, [PLAIN] * len(rows), sources)
        return
    read_singly = _one_by_one(parent, 0, rows, topics, output)
    valid = [(source, event) for source, event in read_singly if isinstance(event, TopicEvent)]
    if valid:
        places, events = zip(*valid, strict=True)
        names, created = [event.lite_topic for event in events], [event.created for event in events]
        facts = [event.facts(source.timestamp) for source, event in valid]
        yield places[0], TopicEvents(names, created, facts, Sources.of(places))


def _one_by_one(
    parent: str, number: int, rows: Iterable[Entry], topics: Topics, output: Output
) -> Iterator[tuple[Source, Event]]:
    at_home = parent == HOME
    for stream, partition, offset, entry, timestamp, payload in rows:
        source = Source(topics[stream], partition, offset, position(entry), timestamp)
        try:
            event = _PARSERS[stream](payload)
        except Rejected as rejected:
            if at_home or stream in (_TOPICS, _CLOCK):
                output.add(Kind.DEAD_LETTER, dead_letter(source, rejected.reason, str(rejected), payload))
            continue
        if _is_routed_right(event, parent, number, entry):
            yield source, event
        elif _reports(stream, number, entry, at_home=at_home):
            output.add(Kind.DEAD_LETTER, dead_letter(source, Reason.NOT_ROUTABLE, _NOT_ROUTABLE, payload))


def _reports(stream: int, number: int, entry: int, *, at_home: bool) -> bool:
    """Whether this key is the one of those that see an entry that says that it was routed wrongly."""
    if stream == _GROUPS:
        return at_home
    if stream == _SUBSCRIPTIONS:  # the shards decide what a request means, where there is one
        return bool(entry % 2) if at_home else number == 0
    return True


_NOT_ROUTABLE = (
    "Spark reads this JSON text differently: a field stands in it twice, it nests too deep, or it has too long a number"
)


def _is_routed_right(event: Event, parent: str, number: int, entry: int) -> bool:
    """Whether the JVM has read what Python reads."""
    if isinstance(event, TopicEvent) or (parent != HOME and isinstance(event, SubscriptionRequest | GroupEvent)):
        return event.parent == parent
    if parent != HOME:
        return isinstance(event, Wake) and (event.parent, event.shard) == (parent, number)
    if isinstance(event, GroupEvent):
        return number == home.bucket_of(event.group)
    if isinstance(event, SubscriptionRequest):
        return number == home.bucket_of(event.group) and (event.parent == HOME) == bool(entry % 2)
    if isinstance(event, Alarm):
        return number == home.bucket_of(event.parent)
    return isinstance(event, Tick)
