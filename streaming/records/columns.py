"""Topic events, and pairs of topic and subscriber, by column: arrays without a Python object for each."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, NamedTuple, Self, TypeVar

import numpy as np
import numpy.typing as npt

from streaming.records.model import SingleEvent, Source, TopicMetadata
from streaming.records.subscribers import ClientKey, SubscriberKey

Ints = npt.NDArray[np.int64]
Indices = npt.NDArray[np.bool_] | Ints | slice
"""Selection of elements of a column: a mask, indices, or a slice."""


class SourceColumns(NamedTuple):
    """Sources of many entries of one stream (see `Source`)."""

    topic: str
    partitions: Ints
    offsets: Ints
    entries: Ints
    timestamps: Ints

    @classmethod
    def of(cls, sources: Sequence[Source]) -> Self:
        """Convert sources to columns: at least one, all of one stream."""
        topic, *columns = zip(*sources, strict=True)
        return cls(topic[0], *(np.array(column, np.int64) for column in columns))

    @classmethod
    def same(cls, source: Source, count: int) -> Self:
        """Return one source repeated."""
        return cls(source.topic, *(np.full(count, value) for value in source[1:]))

    def at(self, index: int) -> Source:
        """Return the source at an index."""
        return Source(self.topic, *(int(column[index]) for column in self[1:]))

    def places(self) -> Iterator[tuple[int, int]]:
        """Yield partition and offset of each source."""
        return zip(self.partitions.tolist(), self.offsets.tolist(), strict=True)

    def take(self, indices: Indices) -> Self:
        """Return the selected sources."""
        return type(self)(self.topic, *(column[indices] for column in self[1:]))


class TopicEventColumns(NamedTuple):
    """Many topic events of one parent, in order; `created` is False for a deletion."""

    names: Sequence[str]
    created: Sequence[bool]
    metadata: Sequence[TopicMetadata]
    sources: SourceColumns


Event = SingleEvent | TopicEventColumns
"""Input of the rules: single events, or topic events by column."""


T = TypeVar("T")

MAX_SORT_KEY = int(np.iinfo(np.int64).max)
"""Largest 64-bit key by which hits are sorted in one pass; beyond it they are sorted by two keys."""

NO_TEXT = -1
"""Number of the entry that a subscriber by receive-all has in place of a text."""


class Interner(dict[T, int], Generic[T]):
    """Numbers for values, from 0 on, given out at their first look-up; `items_by_number` has the values in order."""

    def __init__(self) -> None:
        super().__init__()
        self.items_by_number: list[T] = []

    def __missing__(self, item: T) -> int:
        self[item] = number = len(self.items_by_number)
        self.items_by_number.append(item)
        return number


class Interners(NamedTuple):
    """Numbers of subscribers and of entries in hits."""

    subscribers: Interner[SubscriberKey]
    texts: Interner[str]


def compacted(numbers: Ints) -> tuple[Ints, Ints]:
    """Return the distinct numbers, ascending, and the place of each number among them.

    The same as `np.unique` with its inverse, but without a sort: linear in the count and in the span of the numbers.
    """
    if not len(numbers):
        return numbers, numbers
    lowest = numbers.min()
    present = np.zeros(numbers.max() - lowest + 1, np.bool_)
    present[numbers - lowest] = True
    return present.nonzero()[0] + lowest, (present.cumsum() - 1)[numbers - lowest]


class Hits(NamedTuple):
    """Hits of many topics in columns: one element for each topic, subscriber and matching entry, by number.

    The number of a text is `NO_TEXT` for receive-all.
    """

    rows: Ints
    subscribers: Ints
    texts: Ints

    @classmethod
    def of(cls, found: Iterable[tuple[int, int, int]]) -> Self:
        """Return the columns of hits given as (topic, subscriber, entry)."""
        return cls(*np.array(list(found), np.int64).reshape(-1, 3).T)

    @classmethod
    def concat(cls, parts: "Sequence[Hits]") -> Self:
        """Return the hits of all parts, one part after the other."""
        return cls(*map(np.concatenate, zip(cls.of(()), *parts, strict=True)))


def _sort_order(hits: Hits, subscriber_count: int, text_count: int, max_sort_key: int) -> Ints:
    per_topic = subscriber_count * text_count
    minor = hits.subscribers * text_count + hits.texts
    if (int(hits.rows.max(initial=-1)) + 1) * per_topic <= max_sort_key:
        return (hits.rows * per_topic + minor).argsort(kind="stable")  # one key takes a tenth of the time of two
    return np.lexsort((minor, hits.rows))


@dataclass(frozen=True, slots=True)
class Pairs:
    """Pairs of topic and subscriber in columns: numbers of topics, and places in two tables.

    The sets of matching entries in `pattern_table` are sorted, and empty for receive-all alone.
    """

    rows: Ints
    subscribers: Ints
    patterns: Ints
    subscriber_table: Sequence[SubscriberKey]
    pattern_table: Sequence[tuple[str, ...]]

    def __len__(self) -> int:
        return len(self.rows)

    @classmethod
    def of(
        cls, hits: Hits, subscribers: Sequence[SubscriberKey], texts: Sequence[str], *, max_sort_key: int = MAX_SORT_KEY
    ) -> Self:
        """Join the hits, in any order, of the same topic and subscriber to one pair."""
        order = _sort_order(hits, len(subscribers), len(texts) + 1, max_sort_key)
        rows, owners, entries = (column.take(order) for column in hits)
        begins = np.ones(len(rows), np.bool_)
        np.logical_or(rows[1:] != rows[:-1], owners[1:] != owners[:-1], out=begins[1:])
        firsts = begins.nonzero()[0]
        sizes = np.diff(firsts, append=len(rows))
        sets: Interner[tuple[int, ...]] = Interner()
        entry_sets = entries.take(firsts)  # a number below `NO_TEXT` represents a set of several
        for at in (sizes > 1).nonzero()[0].tolist():
            members = entries[firsts[at] : firsts[at] + sizes[at]].tolist()
            entry_sets[at] = NO_TEXT - 1 - sets[tuple(members)]

        def patterns_of(number: int) -> tuple[str, ...]:
            if number > NO_TEXT:
                return (texts[number],)
            members = sets.items_by_number[NO_TEXT - 1 - number] if number < NO_TEXT else ()
            return tuple(sorted({texts[member] for member in members if member != NO_TEXT}))

        used_subscribers, places = compacted(owners.take(firsts))
        used_patterns, patterns = compacted(entry_sets)
        return cls(
            rows.take(firsts),
            places,
            patterns,
            [subscribers[number] for number in used_subscribers.tolist()],
            [patterns_of(number) for number in used_patterns.tolist()],
        )

    def numbers(self) -> Iterator[tuple[int, int, int]]:
        """Return (topic, place of the subscriber, place of the patterns) for each pair."""
        return zip(self.rows.tolist(), self.subscribers.tolist(), self.patterns.tolist(), strict=True)

    def take(self, indices: Indices) -> Self:
        """Return the pairs at these indices, with the same tables."""
        rows, subscribers, patterns = self.rows[indices], self.subscribers[indices], self.patterns[indices]
        return type(self)(rows, subscribers, patterns, self.subscriber_table, self.pattern_table)

    def join(self, others: Self) -> Self:
        """Return these pairs and then the others; the topics are no longer in order."""
        return type(self)(
            np.concatenate((self.rows, others.rows)),
            np.concatenate((self.subscribers, others.subscribers + len(self.subscriber_table))),
            np.concatenate((self.patterns, others.patterns + len(self.pattern_table))),
            [*self.subscriber_table, *others.subscriber_table],
            [*self.pattern_table, *others.pattern_table],
        )

    def without(self, others: Self) -> Self:
        """Return the pairs missing from `others`, whose rows number the same topics; patterns are not compared."""
        numbers = {subscriber: number for number, subscriber in enumerate(self.subscriber_table)}
        theirs = np.array([numbers.get(subscriber, -1) for subscriber in others.subscriber_table], np.int64)
        theirs = theirs[others.subscribers]
        known = theirs >= 0
        excluded = others.rows[known] * len(numbers) + theirs[known]
        return self.take(~np.isin(self.rows * len(numbers) + self.subscribers, excluded))

    def of_clients(self, clients: Collection[ClientKey]) -> npt.NDArray[np.bool_]:
        """Return a mask of the pairs whose subscribers belong to these clients."""
        wanted = np.array([subscriber.client in clients for subscriber in self.subscriber_table], np.bool_)
        return wanted[self.subscribers]

    def indices_by_client(self) -> "dict[ClientKey, Ints]":
        """Return the indices of the pairs of each client, in order."""
        clients, owners = self._owners()
        order = owners.argsort(kind="stable")
        parts = np.split(order, np.bincount(owners, minlength=len(clients)).cumsum()[:-1]) if len(clients) else []
        return dict(zip(clients.items_by_number, parts, strict=True))

    def _owners(self) -> tuple[Interner[ClientKey], Ints]:
        """Return numbers for the clients, and the number of the client of each pair."""
        clients: Interner[ClientKey] = Interner()
        numbers = np.array([clients[subscriber.client] for subscriber in self.subscriber_table], np.int64)
        return clients, numbers[self.subscribers]

    def compacted(self) -> Self:
        """Return the pairs with smaller tables, of the referenced items only."""
        subscribers, places = compacted(self.subscribers)
        patterns, sets = compacted(self.patterns)
        return type(self)(
            self.rows,
            places,
            sets,
            [self.subscriber_table[number] for number in subscribers.tolist()],
            [self.pattern_table[number] for number in patterns.tolist()],
        )

    def topics_by_client(self) -> dict[ClientKey, int]:
        """Return the number of topics of each client."""
        clients, owners = self._owners()
        if len(clients) < len(self.subscriber_table):  # a client may have several subscribers for one topic
            owners = np.unique(self.rows * len(clients) + owners) % len(clients)
        counts = np.bincount(owners, minlength=len(clients))
        return dict(zip(clients.items_by_number, counts.tolist(), strict=True))
