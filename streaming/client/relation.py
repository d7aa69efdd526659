"""Relation of subscribers and lite topics, folded from its updates; independent of Kafka.

A million rows are stored compactly: no container around a single row, and one object for equal texts.
"""

from __future__ import annotations

import threading
from itertools import islice
from sys import getsizeof
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from streaming.client.rows import Row, Subscriber, UpdateValue, read_key, read_value
from streaming.records.op import Op

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator


_POOL_BYTES = 8_388_608
_POOL_ENTRY_BYTES = 100
"""Estimated overhead of an entry in a pool, in bytes."""

K = TypeVar("K")
L = TypeVar("L")
T = TypeVar("T", str, bytes)


class Pool:
    """Pool with one object for equal texts. A full pool is emptied, and sharing starts over."""

    def __init__(self, room: int = _POOL_BYTES) -> None:
        self._size = self._room = room
        self._held: dict[Any, Any] = {}

    def text(self, text: T) -> T:
        """Return the shared object of this text."""
        held: T | None = self._held.get(text)
        return self._keep(text) if held is None else held

    def texts(self, texts: tuple[str, ...]) -> tuple[str, ...]:
        """Return the shared object of this tuple, made of shared texts."""
        held: tuple[str, ...] | None = self._held.get(texts)
        return self._keep(tuple(map(self.text, texts))) if held is None else held

    def _keep(self, value: Any) -> Any:
        self._room -= getsizeof(value) + _POOL_ENTRY_BYTES
        if self._room < 0:
            self._held.clear()
            self._room = self._size
        self._held[value] = value
        return value


class Index(Generic[K, L]):
    """Rows by two keys. A first key with one row holds the row itself, since a dict would take 230 bytes."""

    def __init__(self, second: Callable[[Row], L]) -> None:
        self._second = second
        self._held: dict[K, Row | dict[L, Row]] = {}

    def __contains__(self, first: K) -> bool:
        return first in self._held

    def put(self, first: K, row: Row) -> None:
        """Add a row, or replace the row with the same keys."""
        held = self._held.get(first)
        second = self._second(row)
        if isinstance(held, dict):
            held[second] = row
        elif held is None or self._second(held) == second:
            self._held[first] = row
        else:
            self._held[first] = {self._second(held): held, second: row}

    def remove(self, first: K, second: L) -> None:
        """Remove an existing row."""
        held = self._held[first]
        if isinstance(held, dict):
            del held[second]
            if len(held) == 1:
                (self._held[first],) = held.values()
        else:
            del self._held[first]

    def get(self, first: K, second: L) -> Row | None:
        """Return the row with these keys."""
        held = self._held.get(first)
        if isinstance(held, dict):
            return held.get(second)
        return held if held is not None and self._second(held) == second else None

    def any(self, first: K) -> Row | None:
        """Return one row with this first key: the last, since a search for the first may pass many removed slots."""
        held = self._held.get(first)
        return next(reversed(held.values())) if isinstance(held, dict) else held

    def rows(self, first: K) -> Collection[Row]:
        """Return a view of the rows with this first key."""
        held = self._held.get(first)
        return held.values() if isinstance(held, dict) else () if held is None else (held,)

    def page(self, first: K, start: int, size: int) -> list[Row]:
        """Return at most `size` rows with this first key, from index `start` on."""
        return list(islice(self.rows(first), start, start + size))

    def __iter__(self) -> Iterator[Row]:
        for held in self._held.values():
            if isinstance(held, dict):
                yield from held.values()
            else:
                yield held


class ParentRows:
    """Rows of one parent topic, by lite topic and by subscriber."""

    def __init__(self) -> None:
        self.count = 0
        self.by_topic: Index[str, Subscriber] = Index(lambda row: row.subscriber)
        self.by_subscriber: Index[Subscriber, str] = Index(lambda row: row.lite_topic)
        self._parts: dict[tuple[str, str], set[Subscriber]] = {}

    def put(self, row: Row) -> None:
        """Add a row, or replace the row of the same subscriber and topic."""
        _, group, client_id, part = subscriber = row.subscriber
        self.count += self.by_subscriber.get(subscriber, row.lite_topic) is None
        if part is not None:
            self._parts.setdefault((group, client_id), set()).add(subscriber)
        self.by_subscriber.put(subscriber, row)
        self.by_topic.put(row.lite_topic, row)

    def remove(self, row: Row) -> None:
        """Remove an existing row."""
        _, group, client_id, part = subscriber = row.subscriber
        self.count -= 1
        self.by_subscriber.remove(subscriber, row.lite_topic)
        self.by_topic.remove(row.lite_topic, subscriber)
        if part is not None and subscriber not in self.by_subscriber:
            parts = self._parts[group, client_id]
            parts.remove(subscriber)
            if not parts:
                del self._parts[group, client_id]

    def of_client(self, client: Subscriber) -> list[Row]:
        """Return the rows of a client as a whole, and of each of its parts."""
        parts = self._parts.get((client.group, client.client_id), ())
        return [row for subscriber in (client, *parts) for row in self.by_subscriber.rows(subscriber)]


_NO_ROWS = ParentRows()


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
            return list(self._rows_of(parent).by_topic.rows(lite_topic))

    def topics(self, parent: str, group: str, client_id: str) -> set[str]:
        """Return the lite topics received by a client, over all of its subscriptions."""
        with self._lock:
            return {row.lite_topic for row in self._rows_of(parent).of_client(Subscriber(parent, group, client_id))}

    def parents(self) -> dict[str, int]:
        """Return the number of rows of each parent that has any."""
        with self._lock:
            return {name: parent.count for name, parent in self._parents.items()}

    def row(self, subscriber: Subscriber, lite_topic: str) -> Row | None:
        """Return one row; None if it does not exist."""
        with self._lock:
            return self._rows_of(subscriber.parent).by_subscriber.get(subscriber, lite_topic)

    def count_of_topic(self, parent: str, lite_topic: str) -> int:
        """Return the number of rows of a lite topic."""
        with self._lock:
            return len(self._rows_of(parent).by_topic.rows(lite_topic))

    def page_of_topic(self, parent: str, lite_topic: str, start: int, size: int) -> list[Row]:
        """Return at most `size` rows of a lite topic, from index `start` on, in the order of their arrival."""
        with self._lock:
            return self._rows_of(parent).by_topic.page(lite_topic, start, size)

    def count_of_subscriber(self, subscriber: Subscriber) -> int:
        """Return the number of rows of a subscriber."""
        with self._lock:
            return len(self._rows_of(subscriber.parent).by_subscriber.rows(subscriber))

    def page_of_subscriber(self, subscriber: Subscriber, start: int, size: int) -> list[Row]:
        """Return at most `size` rows of a subscriber, from index `start` on, in the order of their arrival."""
        with self._lock:
            return self._rows_of(subscriber.parent).by_subscriber.page(subscriber, start, size)

    def rows(self) -> list[Row]:
        """Return all rows."""
        with self._lock:
            return [row for parent in self._parents.values() for row in parent.by_topic]

    def _rows_of(self, parent: str) -> ParentRows:
        return self._parents.get(parent, _NO_ROWS)

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
