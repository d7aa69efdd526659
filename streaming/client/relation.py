"""Relation of subscribers and lite topics, folded from its updates; independent of Kafka."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, NamedTuple

from streaming.client.memory import ParentRows, Pool
from streaming.client.rows import Row, Subscriber, UpdateValue, read_key, read_value
from streaming.records.op import Op

if TYPE_CHECKING:
    from collections.abc import Callable


class Change(NamedTuple):
    """Effect of a record on the relation.

    Attributes:
        op: ADD when the row exists now, REMOVE when it is gone.
        row: the row of the update; the former row if only the tombstone of a REMOVE is left.
        former: the row before.
        source: place of the event behind the update in Kafka, and the time of its record.
    """

    op: Op
    row: Row
    former: Row | None
    source: dict[str, Any]


class Relation:
    """Rows after the records applied so far; safe in any number of threads.

    The last record of a key decides, so a compacted topic gives the same rows as its full history.

    Args:
        admits: predicate of the subscribers of new rows; other rows are ignored.
    """

    def __init__(self, admits: Callable[[Subscriber], bool] | None = None) -> None:
        self._admits = admits
        self._lock = threading.Lock()
        self._parents: dict[str, ParentRows] = {}
        self._pool = Pool()

    def __len__(self) -> int:
        with self._lock:
            return sum(parent.count for parent in self._parents.values())

    def apply(self, key: bytes | None, value: bytes | None) -> Change | None:
        """Apply one record of the updates topic.

        Returns:
            The change; None if nothing changes, as after a repeated update.

        Raises:
            Malformed: the record is not an update; the relation is as before.
        """
        subscriber, lite_topic = read_key(key)
        update = None if value is None else read_value(value)
        with self._lock:
            if update is not None and update.op is Op.ADD:
                return self._add(subscriber, lite_topic, update)
            return self._remove(subscriber, lite_topic, update)

    def subscribers(self, parent: str, lite_topic: str) -> list[Row]:
        """Return the rows that receive a lite topic."""
        with self._lock:
            found = self._parents.get(parent)
            return found.by_topic.rows(lite_topic) if found else []

    def topics(self, parent: str, group: str, client_id: str) -> set[str]:
        """Return the lite topics received by a client, over all of its subscriptions."""
        with self._lock:
            found = self._parents.get(parent)
            rows = found.of_client(Subscriber(parent, group, client_id)) if found else []
        return {row.lite_topic for row in rows}

    def parents(self) -> dict[str, int]:
        """Return the number of rows of each parent that has any."""
        with self._lock:
            return {name: parent.count for name, parent in self._parents.items()}

    def row(self, subscriber: Subscriber, lite_topic: str) -> Row | None:
        """Return one row; None if it does not exist."""
        with self._lock:
            found = self._parents.get(subscriber.parent)
            return found.by_subscriber.get(subscriber, lite_topic) if found else None

    def count_of_topic(self, parent: str, lite_topic: str) -> int:
        """Return the number of rows of a lite topic."""
        with self._lock:
            found = self._parents.get(parent)
            return found.by_topic.count(lite_topic) if found else 0

    def page_of_topic(self, parent: str, lite_topic: str, start: int, size: int) -> list[Row]:
        """Return at most `size` rows of a lite topic, from index `start` on, in the order of their arrival."""
        with self._lock:
            found = self._parents.get(parent)
            return found.by_topic.page(lite_topic, start, size) if found else []

    def count_of_subscriber(self, subscriber: Subscriber) -> int:
        """Return the number of rows of a subscriber."""
        with self._lock:
            found = self._parents.get(subscriber.parent)
            return found.by_subscriber.count(subscriber) if found else 0

    def page_of_subscriber(self, subscriber: Subscriber, start: int, size: int) -> list[Row]:
        """Return at most `size` rows of a subscriber, from index `start` on, in the order of their arrival."""
        with self._lock:
            found = self._parents.get(subscriber.parent)
            return found.by_subscriber.page(subscriber, start, size) if found else []

    def rows(self) -> list[Row]:
        """Return all rows."""
        with self._lock:
            return [row for parent in self._parents.values() for row in parent.by_topic]

    def _add(self, subscriber: Subscriber, lite_topic: str, update: UpdateValue) -> Change | None:
        name, group, client_id, part = subscriber
        parent = self._parents.get(name)
        former = parent.by_subscriber.get(subscriber, lite_topic) if parent else None
        if former is None and self._admits is not None and not self._admits(subscriber):
            return None
        if parent is None:
            parent = self._parents[name] = ParentRows()
        pool = self._pool
        # A row shares the name objects of its neighbours, so that each name is kept once.
        neighbour = parent.by_subscriber.any(subscriber)
        if neighbour is None:
            part = None if part is None else pool.text(part)
            subscriber = Subscriber(pool.text(name), pool.text(group), client_id, part)
        else:
            subscriber = neighbour.subscriber
        neighbour = parent.by_topic.any(lite_topic)
        if neighbour is not None:
            lite_topic = neighbour.lite_topic
        by_name = update.patterns == (lite_topic,)
        row = Row(
            subscriber,
            lite_topic,
            (lite_topic,) if by_name else pool.texts(update.patterns),
            pool.text(update.cause),
            update.version,
            update.event_id,
            pool.text(update.further_json),
        )
        parent.put(row)
        if former is not None and former.event_id == row.event_id:
            return None
        return Change(Op.ADD, row, former, update.source)

    def _remove(self, subscriber: Subscriber, lite_topic: str, update: UpdateValue | None) -> Change | None:
        parent = self._parents.get(subscriber.parent)
        former = parent.by_subscriber.get(subscriber, lite_topic) if parent else None
        if parent is None or former is None:
            return None
        parent.remove(former)
        if not parent.count:
            del self._parents[subscriber.parent]
        if update is None:
            return Change(Op.REMOVE, former, former, {})
        _, patterns, cause, version, event_id, further, source = update
        return Change(
            Op.REMOVE,
            former._replace(patterns=patterns, cause=cause, version=version, event_id=event_id, further_json=further),
            former,
            source,
        )
