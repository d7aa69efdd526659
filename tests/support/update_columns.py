"""Builders of the same updates by column and one by one."""

from collections.abc import Sequence

import numpy as np

from streaming.records.columns import Interner, Pairs, SourceColumns
from streaming.records.model import Source
from streaming.records.subscribers import SubscriberKey
from streaming.records.updates import Cause, Op, Update, UpdateColumns
from streaming.records.writing import UpdateWriter

AWKWARD = ["a", "b", "a,b", 'a","b', "é", "😀", "a\\", "\n", "\x01", "\x7f", "%LMQ%$a$b", "%s", "%b", "{}", "],["]
SUBSCRIBERS = [
    SubscriberKey("g", "c"),
    SubscriberKey("g", "é\n"),
    SubscriberKey("h", "c", "share:s"),
    SubscriberKey("h", "c", "wamp:exact:a"),
]
VERSIONS = [7, None, -1, 0]


def columns_of(
    updates: Sequence[tuple[int, int, tuple[str, ...]]],
    topics: Sequence[str],
    op: Op = Op.ADD,
    partitions: int = 1,
    entries: range = range(1),
) -> tuple[UpdateColumns, list[Update]]:
    """Build updates by column and one by one, each from (topic number, receiver number, patterns)."""
    cause = Cause.TOPIC_CREATED if op is Op.ADD else Cause.TOPIC_DELETED
    places = [
        Source("some topic", number % partitions, 10 ** (number % 19), entries[number % len(entries)], -number)
        for number in range(len(topics))
    ]
    rows, subscribers, _ = zip(*updates, strict=True)
    tables: Interner[tuple[str, ...]] = Interner()
    patterns = [tables[texts] for *_, texts in updates]
    at_topic, of_receiver, with_patterns = (np.array(column, np.int64) for column in (rows, subscribers, patterns))
    pairs = Pairs(at_topic, of_receiver, with_patterns, SUBSCRIBERS, tables.items_by_number)
    one_by_one = [
        Update(op, SUBSCRIBERS[subscriber], topics[row], texts, cause, VERSIONS[subscriber], places[row])
        for row, subscriber, texts in updates
    ]
    return UpdateColumns(op, cause, topics, SourceColumns.of(places), pairs, VERSIONS), one_by_one


def written(updates: Sequence[Update]) -> list[tuple[bytes, bytes | None]]:
    writer = UpdateWriter("p$é")
    found: list[tuple[bytes, bytes | None]] = []
    for update in updates:
        record = writer.record(update)
        found.append(record)
        if update.op is Op.REMOVE:
            found.append((record.key, None))
    return found
