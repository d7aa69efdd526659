"""Clients of a group that ask for one topic, by events of a micro-batch."""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Sequence
from heapq import heappop, heappush
from itertools import accumulate
from math import inf
from typing import NamedTuple, TypeVar

from streaming.records.subscribers import ClientKey, SubscriberKey

T = TypeVar("T")


class EntrySpan(NamedTuple):
    """Moments from which, and up to which, an entry is in force; `order` as in `Block`."""

    subscriber: SubscriberKey
    begin: int
    end: float
    order: float


class Asking:
    """Clients of a group that ask for a topic, by moment."""

    def __init__(self, spans: Iterable[EntrySpan]) -> None:
        self._spans = list(spans)
        self._by_subscriber: dict[SubscriberKey, tuple[list[int], list[bool]]] = {}
        self._by_client: dict[ClientKey | None, list[EntrySpan]] = defaultdict(list)
        self._turns: dict[ClientKey | None, list[int]] = defaultdict(list)
        self._newest: tuple[list[int], list[ClientKey | None]] | None = None

    def asks(self, subscriber: SubscriberKey, moment: int) -> bool:
        """Return True if a subscriber has a matching entry."""
        at, asked = self._asked(subscriber)
        return asked[bisect_right(at, moment) - 1]

    def newest(self, moment: int) -> ClientKey | None:
        """Return the client with the newest matching entry."""
        at, newest = self._newest_by_moment
        return newest[bisect_right(at, moment) - 1]

    def changes(self, subscriber: SubscriberKey) -> list[int]:
        """Return the moments at which a subscriber begins or ceases to ask, or its client to be the newest."""
        if not self._turns:
            at, newest = self._newest_by_moment
            for moment, former, later in zip(at, [None, *newest], newest, strict=False):
                self._turns[former].append(moment)
                self._turns[later].append(moment)
        return [*self._asked(subscriber)[0], *self._turns.get(subscriber.client, ())]

    def is_released(self, client: ClientKey, at: int) -> bool:
        """Return True if a group event gives a client the topic, because its holder no longer asks for it."""
        former = self.newest(at - 1)
        if former in (None, client):
            return False
        own = self._order(client, at)
        return 0 < own == self._order(client, at - 1) and self._order(former, at) != self._order(former, at - 1)

    def _order(self, client: ClientKey | None, moment: int) -> float:
        if not self._by_client:
            for span in self._spans:
                self._by_client[span.subscriber.client].append(span)
        found = self._by_client.get(client, ())
        return max((each.order for each in found if each.begin <= moment < each.end), default=0)

    def _asked(self, subscriber: SubscriberKey) -> tuple[list[int], list[bool]]:
        if not self._by_subscriber:
            spans: dict[SubscriberKey, list[EntrySpan]] = defaultdict(list)
            for span in self._spans:
                spans[span.subscriber].append(span)
            self._by_subscriber = {each: _asked(own) for each, own in spans.items()}
        return self._by_subscriber.get(subscriber, ([0], [False]))

    @property
    def _newest_by_moment(self) -> tuple[list[int], list[ClientKey | None]]:
        if self._newest is None:
            self._newest = _newest_by_moment(self._spans)
        return self._newest


def _asked(spans: Iterable[EntrySpan]) -> tuple[list[int], list[bool]]:
    """Return whether one of the entries is in force, by the moments at which that changes."""
    counts: dict[int, int] = defaultdict(int, {0: 0})
    for _, begin, end, _ in spans:
        counts[begin] += 1
        if end < inf:
            counts[int(end)] -= 1
    at = sorted(counts)
    return _compressed(at, [count > 0 for count in accumulate(counts[moment] for moment in at)])


def _newest_by_moment(spans: Sequence[EntrySpan]) -> tuple[list[int], list[ClientKey | None]]:
    """Return the client with the newest entry, by the moments at which it changes."""
    newest_first = sorted(spans, key=lambda span: (span.order, span.subscriber.client_id), reverse=True)
    begins: dict[int, list[int]] = defaultdict(list)
    for rank, span in enumerate(newest_first):
        begins[span.begin].append(rank)
    at = sorted({0, *begins, *(int(span.end) for span in spans if span.end < inf)})
    newest: list[ClientKey | None] = []
    heap: list[int] = []
    for moment in at:
        for rank in begins.get(moment, ()):
            heappush(heap, rank)
        while heap and newest_first[heap[0]].end <= moment:
            heappop(heap)
        newest.append(newest_first[heap[0]].subscriber.client if heap else None)
    return _compressed(at, newest)


def _compressed(at: Sequence[int], values: Sequence[T]) -> tuple[list[int], list[T]]:
    """Leave out the moments at which a value stays the same."""
    kept = [place for place in range(len(at)) if not place or values[place] != values[place - 1]]
    return [at[place] for place in kept], [values[place] for place in kept]
