"""Compact storage of a million rows: no container around a single row, and one object for equal texts."""

from __future__ import annotations

from itertools import islice
from sys import getsizeof
from typing import TYPE_CHECKING, Any, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from streaming.client.rows import Row, Subscriber

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

    def rows(self, first: K) -> list[Row]:
        """Return the rows with this first key."""
        held = self._held.get(first)
        if isinstance(held, dict):
            return list(held.values())
        return [] if held is None else [held]

    def count(self, first: K) -> int:
        """Return the number of rows with this first key."""
        held = self._held.get(first)
        return len(held) if isinstance(held, dict) else int(held is not None)

    def page(self, first: K, start: int, size: int) -> list[Row]:
        """Return at most `size` rows with this first key, from index `start` on."""
        held = self._held.get(first)
        rows: Iterable[Row] = held.values() if isinstance(held, dict) else () if held is None else (held,)
        return list(islice(rows, start, start + size))

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
