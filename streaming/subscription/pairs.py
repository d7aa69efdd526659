"""Pairs of topic and subscriber, in columns: a value shared by many pairs is stored once."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, NamedTuple, Self, TypeVar

import numpy as np
import numpy.typing as npt

from streaming.events.columns import Indices, Ints
from streaming.subscription.subscribers import ClientKey, SubscriberKey

T = TypeVar("T")

MAX_SORT_KEY = int(np.iinfo(np.int64).max)
"""Largest 64-bit key by which hits are sorted in one pass; beyond it they are sorted by two keys."""

NO_TEXT = -1
"""Number of the entry that a subscriber by receive-all has in place of a text."""


class Interner(dict[T, int], Generic[T]):
    """Numbers for values, from 0 on, given out at their first look-up.

    Attributes:
        items_by_number: the values, each at the place of its number.
    """

    def __init__(self) -> None:
        super().__init__()
        self.items_by_number: list[T] = []

    def __missing__(self, item: T) -> int:
        self[item] = number = len(self.items_by_number)
        self.items_by_number.append(item)
        return number


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
    """Hits of many topics in columns: one element for each topic, subscriber and matching entry.

    Attributes:
        rows: numbers of the topics.
        subscribers: numbers of the subscribers.
        texts: numbers of the entries; `NO_TEXT` for receive-all.
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
    """Return the order of hits by topic, then subscriber, then entry."""
    per_topic = subscriber_count * text_count
    minor = hits.subscribers * text_count + hits.texts
    if (int(hits.rows.max(initial=-1)) + 1) * per_topic <= max_sort_key:
        return (hits.rows * per_topic + minor).argsort(kind="stable")  # one key takes a tenth of the time of two
    return np.lexsort((minor, hits.rows))


@dataclass(frozen=True, slots=True)
class Pairs:
    """Pairs of topic and subscriber in columns.

    Attributes:
        rows: numbers of the topics.
        subscribers: places in `subscriber_table`.
        patterns: places in `pattern_table`.
        subscriber_table: the subscribers.
        pattern_table: the sets of matching entries, each sorted; empty for receive-all alone.
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
        cls,
        hits: Hits,
        subscribers: Sequence[SubscriberKey],
        texts: Sequence[str],
        *,
        max_sort_key: int = MAX_SORT_KEY,
    ) -> Self:
        """Return one pair for all hits of the same topic and subscriber.

        Args:
            hits: the hits, in any order.
            subscribers: subscribers by number.
            texts: entries by number.
            max_sort_key: see `MAX_SORT_KEY`.
        """
        order = _sort_order(hits, len(subscribers), len(texts) + 1, max_sort_key)
        rows, owners, entries = (column.take(order) for column in hits)
        begins = np.ones(len(rows), np.bool_)
        np.logical_or(rows[1:] != rows[:-1], owners[1:] != owners[:-1], out=begins[1:])
        firsts = begins.nonzero()[0]
        sizes = np.diff(firsts, append=len(rows))
        sets: Interner[tuple[int, ...]] = Interner()
        entry_sets = entries.take(firsts)  # a number below `NO_TEXT` stands for a set of several
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
        return type(self)(
            self.rows[indices],
            self.subscribers[indices],
            self.patterns[indices],
            self.subscriber_table,
            self.pattern_table,
        )

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
        theirs = np.array([numbers.get(subscriber, -1) for subscriber in others.subscriber_table], np.int64)[
            others.subscribers
        ]
        known = theirs >= 0
        excluded = others.rows[known] * len(numbers) + theirs[known]
        return self.take(~np.isin(self.rows * len(numbers) + self.subscribers, excluded))

    def of_clients(self, clients: Collection[ClientKey]) -> npt.NDArray[np.bool_]:
        """Return a mask of the pairs whose subscribers belong to these clients."""
        wanted = np.array([subscriber.client in clients for subscriber in self.subscriber_table], np.bool_)
        return wanted[self.subscribers]

    def indices_by_client(self) -> "dict[ClientKey, Ints]":
        """Return the indices of the pairs of each client, in order."""
        clients: Interner[ClientKey] = Interner()
        owners = np.array([clients[subscriber.client] for subscriber in self.subscriber_table], np.int64)[
            self.subscribers
        ]
        order = owners.argsort(kind="stable")
        parts = np.split(order, np.bincount(owners, minlength=len(clients)).cumsum()[:-1]) if len(clients) else []
        return dict(zip(clients.items_by_number, parts, strict=True))

    def compacted(self) -> Self:
        """Return the pairs with tables of only what they refer to."""
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
        clients: Interner[ClientKey] = Interner()
        owners = np.array([clients[subscriber.client] for subscriber in self.subscriber_table], np.int64)[
            self.subscribers
        ]
        if len(clients) < len(self.subscriber_table):  # a client may have several subscribers for one topic
            owners = np.unique(self.rows * len(clients) + owners) % len(clients)
        counts = np.bincount(owners, minlength=len(clients))
        return dict(zip(clients.items_by_number, counts.tolist(), strict=True))
