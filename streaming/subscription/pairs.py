"""Rows of the relation by column: what many updates have in common is said once."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, NamedTuple, Self, TypeVar

import numpy as np
import numpy.typing as npt

from streaming.events.columns import Indices, Ints
from streaming.subscription.subscribers import ClientKey, SubscriberKey

T = TypeVar("T")

_MOST = np.iinfo(np.int64).max
"""The largest number in a column."""

NO_TEXT = -1
"""The number of what a receiver by everything asks with."""


class Interner(dict[T, int], Generic[T]):
    """Numbers for things, from 0 on, in the order in which they are first asked for.

    Attributes:
        things: what the numbers stand for.
    """

    def __init__(self) -> None:
        super().__init__()
        self.things: list[T] = []

    def __missing__(self, thing: T) -> int:
        self[thing] = number = len(self.things)
        self.things.append(thing)
        return number


def used(numbers: Ints) -> tuple[Ints, Ints]:
    """The numbers that there are, in order, and the place of each among them; fast where they are near each other."""
    if not len(numbers):
        return numbers, numbers
    lowest = numbers.min()
    there = np.zeros(numbers.max() - lowest + 1, np.bool_)
    there[numbers - lowest] = True
    return there.nonzero()[0] + lowest, (there.cumsum() - 1)[numbers - lowest]


class Hits(NamedTuple):
    """Who asks for many topics: an element for each entry that says so.

    Attributes:
        rows: numbers of the topics.
        receivers: numbers of the receivers.
        texts: numbers of the entries; `NO_TEXT` for everything.
    """

    rows: Ints
    subscribers: Ints
    texts: Ints

    @classmethod
    def of(cls, found: Iterable[tuple[int, int, int]]) -> Self:
        """The same by row."""
        return cls(*np.array(list(found), np.int64).reshape(-1, 3).T)

    @classmethod
    def concat(cls, several: "Sequence[Hits]") -> Self:
        """All of them."""
        return cls(*map(np.concatenate, zip(cls.of(()), *several, strict=True)))


def _order(hits: Hits, subscribers: int, texts: int) -> Ints:
    """By topic, then receiver, then entry; there are so many receivers and texts."""
    asking = hits.subscribers * texts + hits.texts
    if (int(hits.rows.max(initial=-1)) + 1) * subscribers * texts <= _MOST:
        return (hits.rows * (subscribers * texts) + asking).argsort(kind="stable")  # by one key in a tenth of the time
    return np.lexsort((asking, hits.rows))


@dataclass(frozen=True, slots=True)
class Pairs:
    """Who asks for many topics: an element for each receiver and topic.

    Attributes:
        rows: numbers of the topics.
        receivers: places in `subscriber_table`.
        patterns: places in `pattern_table`.
        pattern_table: sorted entries that say so together; none for everything.
    """

    rows: Ints
    subscribers: Ints
    patterns: Ints
    subscriber_table: Sequence[SubscriberKey]
    pattern_table: Sequence[tuple[str, ...]]

    def __len__(self) -> int:
        return len(self.rows)

    @classmethod
    def of(cls, hits: Hits, subscribers: Sequence[SubscriberKey], texts: Sequence[str]) -> Self:
        """Brings together what says the same; `subscribers` and `texts` are what the numbers stand for."""
        order = _order(hits, len(subscribers), len(texts) + 1)
        rows, asking, entries = (column.take(order) for column in hits)
        begins = np.ones(len(rows), np.bool_)
        np.logical_or(rows[1:] != rows[:-1], asking[1:] != asking[:-1], out=begins[1:])
        firsts = begins.nonzero()[0]
        sizes = np.diff(firsts, append=len(rows))
        sets: Interner[tuple[int, ...]] = Interner()
        concat = entries.take(firsts)
        for at in (sizes > 1).nonzero()[0].tolist():
            members = entries[firsts[at] : firsts[at] + sizes[at]].tolist()
            concat[at] = NO_TEXT - 1 - sets[tuple(members)]

        def named(number: int) -> tuple[str, ...]:
            if number > NO_TEXT:
                return (texts[number],)
            members = sets.things[NO_TEXT - 1 - number] if number < NO_TEXT else ()
            return tuple(sorted({texts[member] for member in members if member != NO_TEXT}))

        used_subscribers, places = used(asking.take(firsts))
        used_patterns, patterns = used(concat)
        return cls(
            rows.take(firsts),
            places,
            patterns,
            [subscribers[number] for number in used_subscribers.tolist()],
            [named(number) for number in used_patterns.tolist()],
        )

    def numbers(self) -> Iterator[tuple[int, int, int]]:
        """The row, the receiver and the patterns of each."""
        return zip(self.rows.tolist(), self.subscribers.tolist(), self.patterns.tolist(), strict=True)

    def take(self, which: Indices) -> Self:
        """Some of them."""
        return type(self)(
            self.rows[which], self.subscribers[which], self.patterns[which], self.subscriber_table, self.pattern_table
        )

    def join(self, others: Self) -> Self:
        """These and others; not in order of the topics any more."""
        return type(self)(
            np.concatenate((self.rows, others.rows)),
            np.concatenate((self.subscribers, others.subscribers + len(self.subscriber_table))),
            np.concatenate((self.patterns, others.patterns + len(self.pattern_table))),
            [*self.subscriber_table, *others.subscriber_table],
            [*self.pattern_table, *others.pattern_table],
        )

    def without(self, others: Self) -> Self:
        """Those that are not among others, which are about the same topics."""
        numbers = {subscriber: number for number, subscriber in enumerate(self.subscriber_table)}
        theirs = np.array([numbers.get(subscriber, -1) for subscriber in others.subscriber_table], np.int64)[
            others.subscribers
        ]
        known = theirs >= 0
        drain = others.rows[known] * len(numbers) + theirs[known]
        return self.take(~np.isin(self.rows * len(numbers) + self.subscribers, drain))

    def of_clients(self, clients: Collection[ClientKey]) -> npt.NDArray[np.bool_]:
        """Which of them are of these clients."""
        wanted = np.array([subscriber.client in clients for subscriber in self.subscriber_table], np.bool_)
        return wanted[self.subscribers]

    def topics_by_client(self) -> dict[ClientKey, int]:
        """For how many topics each client asks."""
        clients: Interner[ClientKey] = Interner()
        owners = np.array([clients[subscriber.client] for subscriber in self.subscriber_table], np.int64)[
            self.subscribers
        ]
        if len(clients) < len(self.subscriber_table):  # one topic may stand in several rows of a client
            owners = np.unique(self.rows * len(clients) + owners) % len(clients)
        counts = np.bincount(owners, minlength=len(clients))
        return dict(zip(clients.things, counts.tolist(), strict=True))
