"""The events of one micro-batch that concern a group, in their order, and which of them decided about a topic.

A micro-batch compares the relation before and after all of its events. Each update still carries the source, the cause
and the offset option of the last event that changed its pair of subscriber and topic, as if the events had come one by
one. A change with one event behind it needs no timeline.
"""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from heapq import heappop, heappush
from itertools import accumulate, chain, groupby, pairwise
from math import inf
from operator import attrgetter, itemgetter
from typing import NamedTuple, TypeVar

from streaming.expansion.micro_batch import MicroBatch
from streaming.expansion.view import Attribution, GroupMoment
from streaming.records.model import Notation
from streaming.records.subscribers import ClientKey, SubscriberKey
from streaming.records.updates import Op
from streaming.state.blocks import Block, Blocks
from streaming.state.client import NOTHING, Client, Interest
from streaming.state.group import interest
from streaming.state.interests import DistinctEntries
from streaming.state.policy import accepts

T = TypeVar("T")

_MOST_REMEMBERED = 1_000
"""Sets of matching entries whose events are kept for the topics that follow."""

_MOST_SPANS = 16
"""Maximum number of additions of the same entry by one client that are distinguished; earlier ones count as one."""


class EntrySpan(NamedTuple):
    """Moments from which, and up to which, an entry is in force; `order` as in `Block`."""

    subscriber: SubscriberKey
    begin: int
    end: float
    order: float


class EntryHolders:
    """Spans of one entry by subscriber, and the spans in which a client is the newest one with the entry."""

    def __init__(self, spans: Iterable[EntrySpan]) -> None:
        self.by_subscriber: dict[SubscriberKey, list[EntrySpan]] = defaultdict(list)
        self.by_client: dict[ClientKey | None, list[EntrySpan]] = defaultdict(list)
        for span in spans:
            self.by_subscriber[span.subscriber].append(span)
            self.by_client[span.subscriber.client].append(span)

    @cached_property
    def newest(self) -> list[EntrySpan]:
        """Spans in which no other client has the entry with a higher order."""
        at, spans = _newest_by_moment(list(chain.from_iterable(self.by_subscriber.values())))
        return [
            span._replace(begin=int(begin), end=end)
            for span, (begin, end) in zip(spans, pairwise((*at, inf)), strict=True)
            if span is not None
        ]


class Asking:
    """Clients of a group that ask for a topic, by moment, given the holders of the matching entries."""

    def __init__(self, entries: Sequence[EntryHolders]) -> None:
        self._entries = entries
        self._by_subscriber: dict[SubscriberKey, tuple[list[int], list[bool]]] = {}
        self._turns: dict[ClientKey | None, list[int]] = defaultdict(list)

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
        found = (span for entry in self._entries for span in entry.by_client.get(client, ()))
        return max((each.order for each in found if each.begin <= moment < each.end), default=0)

    def _asked(self, subscriber: SubscriberKey) -> tuple[list[int], list[bool]]:
        if subscriber not in self._by_subscriber:
            own = [span for entry in self._entries for span in entry.by_subscriber.get(subscriber, ())]
            self._by_subscriber[subscriber] = _asked(own)
        return self._by_subscriber[subscriber]

    @cached_property
    def _newest_by_moment(self) -> tuple[list[int], list[ClientKey | None]]:
        at, spans = _newest_by_moment([span for entry in self._entries for span in entry.newest])
        return _compressed(at, [None if span is None else span.subscriber.client for span in spans])


def _asked(spans: Iterable[EntrySpan]) -> tuple[list[int], list[bool]]:
    """Return whether one of the entries is in force, by the moments at which that changes."""
    counts: dict[int, int] = defaultdict(int, {0: 0})
    for _, begin, end, _ in spans:
        counts[begin] += 1
        if end < inf:
            counts[int(end)] -= 1
    at = sorted(counts)
    return _compressed(at, [count > 0 for count in accumulate(counts[moment] for moment in at)])


def _newest_by_moment(spans: Sequence[EntrySpan]) -> tuple[list[int], list[EntrySpan | None]]:
    """Return the span of the newest entry, by the moments at which it changes."""
    newest_first = sorted(spans, key=lambda span: (span.order, span.subscriber.client_id), reverse=True)
    begins: dict[int, list[int]] = defaultdict(list)
    for rank, span in enumerate(newest_first):
        begins[span.begin].append(rank)
    at = sorted({0, *begins, *(int(span.end) for span in spans if span.end < inf)})
    newest: list[EntrySpan | None] = []
    heap: list[int] = []
    for moment in at:
        for rank in begins.get(moment, ()):
            heappush(heap, rank)
        while heap and newest_first[heap[0]].end <= moment:
            heappop(heap)
        newest.append(newest_first[heap[0]] if heap else None)
    return _compressed(at, newest)


def _compressed(at: Sequence[int], values: Sequence[T]) -> tuple[list[int], list[T]]:
    """Leave out the moments at which a value stays the same."""
    kept = [place for place in range(len(at)) if not place or values[place] != values[place - 1]]
    return [at[place] for place in kept], [values[place] for place in kept]


class Timeline:
    """The events of a micro-batch that concern clients of a group; all of them if it is exclusive at any time."""

    def __init__(self, batch: MicroBatch, group: str, keys: Sequence[ClientKey]) -> None:
        view, state = batch.view, batch.state
        self._state = state
        requests = {step.number: step for key in keys for step in view.request_steps(key)}
        policies = {step.number: step for step in view.policy_steps(group)}
        numbers = sorted({**requests, **policies})
        places = {number: place for place, number in enumerate(numbers, 1)}
        self._moments = [requests.get(number) or policies[number] for number in numbers]
        self._records = _ranges([moment.record for moment in self._moments])
        self._policies = view.policies(group)
        self._policies_at = [0, *(places[number] for number in policies)]
        exclusive = any(policy.exclusive for policy in self._policies)
        self._index, self._spans = _entries(batch, group, keys, places, _runs(self._moments) if exclusive else None)
        self._known: dict[tuple[int, ...], Asking] = {}
        self._holders: dict[int, EntryHolders] = {}
        self._latest: tuple[str, Asking, dict[int, bool]] | None = None

    def decision(self, op: Op, subscriber: SubscriberKey, topic: str) -> Attribution:
        """Return the last event that changed whether a subscriber receives a stored topic."""
        if self._latest is None or self._latest[0] != topic:
            self._latest = topic, self._asking(topic), {}
        _, asking, accepted = self._latest

        def accepts_at(moment: int) -> bool:
            number = bisect_right(self._policies_at, moment) - 1
            if number not in accepted:
                selector = self._policies[number].selector
                accepted[number] = selector is None or accepts(selector, self._state.topics[topic])
            return accepted[number]

        def receives(moment: int) -> bool:
            if not (asking.asks(subscriber, moment) and accepts_at(moment)):
                return False
            return not self._is_exclusive(moment) or asking.newest(moment) == subscriber.client

        changes = sorted({*asking.changes(subscriber), *self._policies_at} - {0}, reverse=True)
        last = next((at for at in changes if self._decides(at, receives)), len(self._moments))
        event = self._moments[last - 1]
        released = event.key is None and self._is_exclusive(last - 1) and asking.is_released(subscriber.client, last)
        return event.decision(
            op,
            own=event.key == subscriber.client or (event.key is None and not released),
            asked_before=asking.asks(subscriber, last - 1),
            asked_after=asking.asks(subscriber, last),
            received=accepts_at(last - 1 if op is Op.ADD else last),
        )

    def _decides(self, at: int, receives: Callable[[int], bool]) -> bool:
        """Return True if a moment changes the answer, and so does its event as a whole."""
        if receives(at) is receives(at - 1):
            return False
        begin, end = self._records[at - 1]
        return begin == end or receives(begin - 1) is not receives(end)

    def _is_exclusive(self, moment: int) -> bool:
        return self._policies[bisect_right(self._policies_at, moment) - 1].exclusive

    def _asking(self, topic: str) -> Asking:
        """Return which clients ask for a topic at which moments; topics that match the same entries share it."""
        about = tuple(sorted(self._index.match(topic)))
        if about not in self._known:
            if len(self._known) >= _MOST_REMEMBERED:
                self._known.clear()
            self._known[about] = Asking(list(map(self._holders_of, about)))
        return self._known[about]

    def _holders_of(self, entry: int) -> EntryHolders:
        """Return the holders of an entry, which are collected once, however many topics match it."""
        if entry not in self._holders:
            self._holders[entry] = EntryHolders(
                EntrySpan(subscriber, begin, end, order)
                for subscriber, number in self._index.holders[entry]
                for begin, end, order in self._spans[int(number)]
            )
        return self._holders[entry]


def _ranges(records: Sequence[int]) -> list[tuple[int, int]]:
    """Return the first and the last moment of the event of each moment."""
    found: list[tuple[int, int]] = []
    for _, moments in groupby(enumerate(records, 1), key=itemgetter(1)):
        at = [moment for moment, _ in moments]
        found += [(at[0], at[-1])] * len(at)
    return found


def _runs(moments: Sequence[GroupMoment]) -> list[int]:
    """Return, for each moment, the start of the run of events of the same client."""
    runs = [0]
    for at, (before, event) in enumerate(pairwise((None, *moments)), 1):
        goes_on = before is not None and event is not None and event.key is not None and before.key == event.key
        runs.append(runs[-1] if goes_on else at)
    return runs


def _entries(
    batch: MicroBatch, group: str, keys: Sequence[ClientKey], places: Mapping[int, int], runs: Sequence[int] | None
) -> tuple[DistinctEntries, list[list[tuple[int, float, float]]]]:
    """Return all entries that clients of a group had, and the spans of moments at which each was in force.

    The orders of the holders in the index are numbers of spans.
    """
    state, view = batch.state, batch.view
    index, spans = DistinctEntries(state.inner_multi), list[list[tuple[int, float, float]]]()
    for key in keys:
        held = _Held(spans, runs, state.latest_order)
        held.turn_to(0, state.interest(key))
        client, policy = state.clients.get(key) or Client(), state.policy(group)
        for step in sorted([*view.request_steps(key), *view.policy_steps(group)], key=attrgetter("number")):
            client, policy = step.client or client, step.policy or policy
            wanted = NOTHING if policy.elsewhere else interest(client, policy.mode)
            held.turn_to(places[step.number], wanted)
        for patterns in (False, True):
            index.add(key, held.numbered(patterns=patterns))
    return index, spans


_EVERYTHING = None
"""In place of the text of an entry, if a client receives everything."""

_Key = tuple[bool, Notation | None, str | None]
"""Entry: whether it is a pattern, its notation, and its text."""


class _Held:
    """The entries of one client, followed from one interest to the next; `runs` if their order counts."""

    def __init__(
        self, spans: list[list[tuple[int, float, float]]], runs: Sequence[int] | None, latest_order: int
    ) -> None:
        self._spans = spans
        self._runs = runs
        self._latest_order = latest_order
        self._numbers: dict[_Key, int] = {}
        self._open: dict[_Key, float] = {}
        self._now = NOTHING

    def turn_to(self, at: int, wanted: Interest) -> None:
        former, self._now = self._now, wanted
        if former.everything != wanted.everything or former.patterns != wanted.patterns:
            self._set(at, (True, None, _EVERYTHING), wanted.everything)
        changes = None
        if former.patterns == wanted.patterns or not former.blocks:
            if wanted.blocks is former.blocks:
                return
            changes = wanted.blocks.changes_since(former.blocks) if isinstance(wanted.blocks, Blocks) else None
        if changes is not None:
            for (notation, entry), (_, new) in changes.items():
                self._set(at, (wanted.patterns, notation, entry), None if new is None else new.order)
            return
        orders: dict[_Key, float] = {
            (wanted.patterns, block.notation, entry): block.order for block in wanted.blocks for entry in block.entries
        }
        for key in [key for key in self._open if key not in orders and key[1] is not None]:
            self._set(at, key, None)
        for key, order in orders.items():
            if self._open.get(key) != order:
                self._set(at, key, order)

    def _set(self, at: int, key: _Key, order: float | None) -> None:
        """Set the order of an entry from a moment on; None ends it."""
        begin = at
        if key in self._open:
            spans, former = self._spans[self._numbers[key]], self._open.pop(key)
            begin, _, _ = spans.pop()
            if order is None or not self._goes_on(begin, at, former):
                if begin < at:
                    spans.append((begin, at, former))
                begin = at
        if order is not None:
            self._open[key] = order
            number = self._numbers.setdefault(key, len(self._spans))
            if number == len(self._spans):
                self._spans.append([])
            spans = self._spans[number]
            spans.append((begin, inf, order))
            if len(spans) > _MOST_SPANS:
                (first, _, _), (_, end, latest), *_ = spans
                spans[:2] = [(first, end, latest)]

    def _goes_on(self, begin: int, at: int, former: float) -> bool:
        """Return True if an entry that is added again may count as added by the later request all along.

        In an exclusive group it may if no other client asked for anything in between.
        """
        return self._runs is None or (begin >= self._runs[at] and former > self._latest_order)

    def numbered(self, *, patterns: bool) -> Interest:
        """Return an interest in all entries, with their numbers in place of the orders."""
        found = [(key, number) for key, number in self._numbers.items() if key[0] is patterns]
        blocks = tuple(
            Block(number, 0, 0, notation, (entry,))
            for (_, notation, entry), number in found
            if notation is not None and entry is not None
        )
        everything = next((number for (_, notation, _), number in found if notation is None), None)
        return Interest(patterns, blocks, everything)
