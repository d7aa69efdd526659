"""Rows of the relation by column: what many updates have in common is said once."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, NamedTuple, Self, TypeVar

import numpy as np
import numpy.typing as npt

from streaming.events.events import Facts, Source
from streaming.subscription.receivers import ClientKey, Receiver

Ints = npt.NDArray[np.int64]
Chosen = npt.NDArray[np.bool_] | Ints | slice
"""What of a column is meant."""

T = TypeVar("T")

MANY = 64
"""Topics from which on columns pay; fewer are faster one by one."""

_MOST = np.iinfo(np.int64).max
"""The largest number in a column."""

NO_TEXT = -1
"""The number of what a receiver by everything asks with."""


class Numbers(dict[T, int], Generic[T]):
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


class Sources(NamedTuple):
    """Where many entries of one stream came from (see `Source`)."""

    topic: str
    partitions: Ints
    offsets: Ints
    entries: Ints
    timestamps: Ints

    @classmethod
    def of(cls, sources: Sequence[Source]) -> Self:
        """The same by row; at least one, all of one stream."""
        topic, *columns = zip(*sources, strict=True)
        return cls(topic[0], *(np.array(column, np.int64) for column in columns))

    @classmethod
    def same(cls, source: Source, count: int) -> Self:
        """One source of many things."""
        return cls(source.topic, *(np.full(count, value) for value in source[1:]))

    def at(self, number: int) -> Source:
        """One of them."""
        return Source(self.topic, *(int(column[number]) for column in self[1:]))

    def places(self) -> Iterator[tuple[int, int]]:
        """Partition and offset of each."""
        return zip(self.partitions.tolist(), self.offsets.tolist(), strict=True)

    def chosen(self, which: Chosen) -> Self:
        """Some of them."""
        return type(self)(self.topic, *(column[which] for column in self[1:]))


def used(numbers: Ints) -> tuple[Ints, Ints]:
    """The numbers that there are, in order, and the place of each among them; fast where they are near each other."""
    if not len(numbers):
        return numbers, numbers
    lowest = numbers.min()
    there = np.zeros(numbers.max() - lowest + 1, np.bool_)
    there[numbers - lowest] = True
    return there.nonzero()[0] + lowest, (there.cumsum() - 1)[numbers - lowest]


class TopicEvents(NamedTuple):
    """Many topic events of one parent, in order.

    Attributes:
        names: of the topics.
        created: or deleted.
        facts: what their creations said.
    """

    names: Sequence[str]
    created: Sequence[bool]
    facts: Sequence[Facts]
    sources: Sources


class Hits(NamedTuple):
    """Who asks for many topics: an element for each entry that says so.

    Attributes:
        rows: numbers of the topics.
        receivers: numbers of the receivers.
        texts: numbers of the entries; `NO_TEXT` for everything.
    """

    rows: Ints
    receivers: Ints
    texts: Ints

    @classmethod
    def of(cls, found: Iterable[tuple[int, int, int]]) -> Self:
        """The same by row."""
        return cls(*np.array(list(found), np.int64).reshape(-1, 3).T)

    @classmethod
    def together(cls, several: "Sequence[Hits]") -> Self:
        """All of them."""
        return cls(*map(np.concatenate, zip(cls.of(()), *several, strict=True)))


def _order(hits: Hits, receivers: int, texts: int) -> Ints:
    """By topic, then receiver, then entry; there are so many receivers and texts."""
    asking = hits.receivers * texts + hits.texts
    if (int(hits.rows.max(initial=-1)) + 1) * receivers * texts <= _MOST:
        return (hits.rows * (receivers * texts) + asking).argsort(kind="stable")  # by one key in a tenth of the time
    return np.lexsort((asking, hits.rows))


@dataclass(frozen=True, slots=True)
class Pairs:
    """Who asks for many topics: an element for each receiver and topic.

    Attributes:
        rows: numbers of the topics.
        receivers: places in `receiver_table`.
        patterns: places in `pattern_table`.
        pattern_table: sorted entries that say so together; none for everything.
    """

    rows: Ints
    receivers: Ints
    patterns: Ints
    receiver_table: Sequence[Receiver]
    pattern_table: Sequence[tuple[str, ...]]

    def __len__(self) -> int:
        return len(self.rows)

    @classmethod
    def of(cls, hits: Hits, receivers: Sequence[Receiver], texts: Sequence[str]) -> Self:
        """Brings together what says the same; `receivers` and `texts` are what the numbers stand for."""
        order = _order(hits, len(receivers), len(texts) + 1)
        rows, asking, entries = (column.take(order) for column in hits)
        begins = np.ones(len(rows), np.bool_)
        np.logical_or(rows[1:] != rows[:-1], asking[1:] != asking[:-1], out=begins[1:])
        firsts = begins.nonzero()[0]
        sizes = np.diff(firsts, append=len(rows))
        sets: Numbers[tuple[int, ...]] = Numbers()
        together = entries.take(firsts)
        for at in (sizes > 1).nonzero()[0].tolist():
            members = entries[firsts[at] : firsts[at] + sizes[at]].tolist()
            together[at] = NO_TEXT - 1 - sets[tuple(members)]

        def named(number: int) -> tuple[str, ...]:
            if number > NO_TEXT:
                return (texts[number],)
            members = sets.things[NO_TEXT - 1 - number] if number < NO_TEXT else ()
            return tuple(sorted({texts[member] for member in members if member != NO_TEXT}))

        used_receivers, places = used(asking.take(firsts))
        used_patterns, patterns = used(together)
        return cls(
            rows.take(firsts),
            places,
            patterns,
            [receivers[number] for number in used_receivers.tolist()],
            [named(number) for number in used_patterns.tolist()],
        )

    def numbers(self) -> Iterator[tuple[int, int, int]]:
        """The row, the receiver and the patterns of each."""
        return zip(self.rows.tolist(), self.receivers.tolist(), self.patterns.tolist(), strict=True)

    def chosen(self, which: Chosen) -> Self:
        """Some of them."""
        return type(self)(
            self.rows[which], self.receivers[which], self.patterns[which], self.receiver_table, self.pattern_table
        )

    def beside(self, others: Self) -> Self:
        """These and others; not in order of the topics any more."""
        return type(self)(
            np.concatenate((self.rows, others.rows)),
            np.concatenate((self.receivers, others.receivers + len(self.receiver_table))),
            np.concatenate((self.patterns, others.patterns + len(self.pattern_table))),
            [*self.receiver_table, *others.receiver_table],
            [*self.pattern_table, *others.pattern_table],
        )

    def without(self, others: Self) -> Self:
        """Those that are not among others, which are about the same topics."""
        numbers = {receiver: number for number, receiver in enumerate(self.receiver_table)}
        theirs = np.array([numbers.get(receiver, -1) for receiver in others.receiver_table], np.int64)[others.receivers]
        known = theirs >= 0
        taken = others.rows[known] * len(numbers) + theirs[known]
        return self.chosen(~np.isin(self.rows * len(numbers) + self.receivers, taken))

    def of_clients(self, clients: Collection[ClientKey]) -> npt.NDArray[np.bool_]:
        """Which of them are of these clients."""
        wanted = np.array([receiver.client in clients for receiver in self.receiver_table], np.bool_)
        return wanted[self.receivers]

    def topics_by_client(self) -> dict[ClientKey, int]:
        """For how many topics each client asks."""
        clients: Numbers[ClientKey] = Numbers()
        owners = np.array([clients[receiver.client] for receiver in self.receiver_table], np.int64)[self.receivers]
        if len(clients) < len(self.receiver_table):  # one topic may stand in several rows of a client
            owners = np.unique(self.rows * len(clients) + owners) % len(clients)
        counts = np.bincount(owners, minlength=len(clients))
        return dict(zip(clients.things, counts.tolist(), strict=True))
