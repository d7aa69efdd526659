"""Index of interests: the subscribers of a topic by name, by pattern and by receive-all."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import TypeVar

import numpy as np

from matcher.batch import FlatPatterns
from matcher.batch.segments import firsts_of, ranges
from matcher.dialects import get_dialect
from matcher.dialects.mqtt import SharedSubscription, shared
from matcher.index.texts import PatternTexts, ValuesByText
from streaming.records.columns import NO_TEXT, Hits, Interner, Interners, Pairs
from streaming.records.model import LITE, Notation
from streaming.records.subscribers import SHARE, ClientKey, Matches, Orders, SubscriberKey
from streaming.state.client import NOTHING, Interest
from streaming.state.client_table import Holder, SettledInterests
from streaming.tuning import DEFAULT_TUNING

T = TypeVar("T")

MQTT = "mqtt"
"""Name of the dialect with shared subscriptions."""


class Interests:
    """Interests of clients, indexed by topic.

    Args:
        inner_multi: accept multi-segment wildcards before the end of a pattern, in dialects that have them.
        array_min_topics, array_build_topics: as in `Tuning`.
        settled: interests of settled clients, besides those that are added.

    Attributes:
        inner_multi: as above.
        separate_patterns: number of patterns that are delivered separately, each with a holder of its own.
        parsed_bytes: estimated memory of the patterns in tries, which take more than an entry of a dict.
    """

    def __init__(
        self,
        inner_multi: bool,  # noqa: FBT001 - one setting of the job
        *,
        array_min_topics: int = DEFAULT_TUNING.array_min_topics,
        array_build_topics: int = DEFAULT_TUNING.array_build_topics,
        settled: SettledInterests | None = None,
    ) -> None:
        self.inner_multi = inner_multi
        self._array_min_topics = array_min_topics
        self._array_build_topics = array_build_topics
        self._by_pattern: dict[str, PatternTexts[Holder]] = {}
        self._by_name: ValuesByText[Holder] = ValuesByText()
        self._receive_all: Orders = {}
        self.separate_patterns = 0
        self.parsed_bytes = 0
        self._interests: dict[ClientKey, Interest] = {}
        self._arrays: dict[str, _PatternArrays] | None = None
        self._interners: Interners | None = None
        self._topics_asked = 0
        self._settled = settled

    @property
    def clients(self) -> int:
        """Number of clients whose interests are in memory."""
        return len(self._interests)

    @property
    def entries(self) -> int:
        """Number of their entries."""
        return sum(map(len, self._by_pattern.values())) + len(self._by_name)

    @property
    def dialects(self) -> set[str]:
        """Dialects of all patterns."""
        settled = self._settled.dialects if self._settled is not None else ()
        return {*settled, *(dialect for dialect, index in self._by_pattern.items() if len(index))}

    @property
    def settled_bytes(self) -> int:
        """Estimated memory of what was decoded of settled interests."""
        return 0 if self._settled is None else self._settled.memory_bytes

    def add(self, client: ClientKey, interest: Interest) -> None:
        """Add the interest of a client."""
        self.add_all([(client, interest)])

    def add_all(self, interests: Iterable[tuple[ClientKey, Interest]]) -> None:
        """Add the interests of clients."""
        self._drop_arrays()
        additions: dict[tuple[str, str | None], list[tuple[Sequence[str], Holder]]] = defaultdict(list)
        for client, interest in interests:
            if interest is NOTHING:
                continue
            self._interests[client] = interest
            for dialect, policy, patterns, holder in holders_of(client, interest):
                additions[dialect, policy].append((patterns, holder))
                self.separate_patterns += bool(holder[0].part)
            for names, holder in names_of(client, interest):
                self._by_name.add(names, holder)
            if interest.everything is not None:
                self._receive_all[SubscriberKey(*client)] = interest.everything
        for (dialect, policy), each in additions.items():
            _index(self._by_pattern, dialect, self.inner_multi).add_all(each, policy=policy)
        self._estimate()

    def remove(self, client: ClientKey, interest: Interest) -> None:
        """Remove an interest added by `add`, or a settled one."""
        self._drop_arrays()
        if self._settled is not None and self._settled.drop(client):
            return
        self._interests.pop(client, None)  # an empty interest may never have been added
        for dialect, policy, patterns, holder in holders_of(client, interest):
            self._by_pattern[dialect].remove(patterns, holder, policy=policy)
            self.separate_patterns -= bool(holder[0].part)
        for names, holder in names_of(client, interest):
            for name in names:
                self._by_name.discard(name, holder)
        if interest.everything is not None:
            del self._receive_all[SubscriberKey(*client)]
        self._estimate()

    def _estimate(self) -> None:
        self.parsed_bytes = sum([each.parsed_bytes for each in self._by_pattern.values() if each.parsed])

    def replace(self, client: ClientKey, former: Interest, interest: Interest) -> None:
        """Replace the former interest of a client; an empty one counts as none."""
        if interest != former:
            if former != NOTHING:
                self.remove(client, former)
            if interest != NOTHING:
                self.add(client, interest)

    def match(self, topic: str) -> Matches:
        """Return all subscribers with an entry matching the topic, before any group policy."""
        found = self._match_without_patterns(topic)
        hits = self._settled.match(topic) if self._settled else []
        for index in self._by_pattern.values():
            hits += index.match_patterns(topic)
        for pattern, (subscriber, _) in hits:
            patterns = found.get(subscriber)
            if patterns is None:
                found[subscriber] = [pattern]
            else:
                patterns.append(pattern)
        return found

    def match_all(self, topics: Sequence[str]) -> list[Matches]:
        """Return the answer of `match` for each topic."""
        by_column = self._settled is not None and len(topics) >= self._array_min_topics
        if not (by_column or self._arrays_pay(len(topics))):
            return list(map(self.match, topics))
        pairs = self.pairs(topics)
        found: list[Matches] = [{} for _ in topics]
        for row, subscriber, patterns in pairs.numbers():
            found[row][pairs.subscriber_table[subscriber]] = list(pairs.pattern_table[patterns])
        return found

    def pairs(self, topics: Sequence[str]) -> Pairs:
        """Return the answers of `match` for all topics, in columns."""
        if self._interners is None:
            self._interners = Interners(Interner(), Interner())
        if self._arrays_pay(len(topics)):
            hits = [arrays.hits(topics) for arrays in self._arrays_by_dialect(self._interners).values()]
        else:
            hits = [self._hits_one_by_one(topics, self._interners)]
        if self._settled is not None:
            by_column = len(topics) >= self._array_min_topics
            hits += self._settled.hits(topics, self._interners, by_column=by_column)
        if self._by_name or self._receive_all or (self._settled and self._settled.has_names):
            hits.append(self._hits_without_patterns(topics, self._interners))
        return Pairs.of(
            Hits.concat(hits), self._interners.subscribers.items_by_number, self._interners.texts.items_by_number
        )

    def _arrays_pay(self, topic_count: int) -> bool:
        """Return True if arrays answer a question about this many topics faster than one look-up after the other.

        From a hundred topics on they do: 1,500 topics and 100 patterns take 1.1 instead of 3.6 us a topic, and more
        patterns make the difference larger. They are built once the questions since the last change of an interest have
        had enough topics to pay for it, and last until the next change.
        """
        if topic_count < self._array_min_topics:
            return False
        if self._arrays is None:
            self._topics_asked += topic_count
            return self._topics_asked >= self._array_build_topics * sum(map(len, self._by_pattern.values()))
        return True

    def orders(self, topic: str) -> Orders:
        """Return the order of the newest matching entry for each subscriber of the topic."""
        orders: Orders = {}
        for subscriber, order in self.hits(topic):
            if order > orders.get(subscriber, -1):
                orders[subscriber] = order
        return orders

    def hits(self, topic: str) -> list[Holder]:
        """Return the order of each matching entry, with its subscriber."""
        hits: list[Holder] = [*self._receive_all.items(), *self._by_name.get(topic, ())]
        for index in self._by_pattern.values():
            hits += index.match(topic)
        if self._settled is not None:
            hits += self._settled.named(topic)
            hits += (holder for _, holder in self._settled.match(topic))
        return hits

    def _match_without_patterns(self, topic: str) -> Matches:
        """Return the subscribers by name or by receive-all."""
        found: Matches = {subscriber: [] for subscriber in self._receive_all}
        if self._by_name or self._settled:
            for subscriber, _ in self._named(topic):
                found.setdefault(subscriber, []).append(topic)
        return found

    def _named(self, topic: str) -> Iterable[Holder]:
        """Return the holders of a name."""
        found = self._by_name.get(topic, ())
        return [*found, *self._settled.named(topic)] if self._settled else found

    def _hits_one_by_one(self, topics: Sequence[str], interners: Interners) -> Hits:
        """Return the hits by pattern, looked up for one topic after the other."""
        subscribers, texts = interners
        return Hits.of(
            (row, subscribers[subscriber], texts[text])
            for index in self._by_pattern.values()
            for row, topic in enumerate(topics)
            for text, (subscriber, _) in index.match_patterns(topic)
        )

    def _hits_without_patterns(self, topics: Sequence[str], interners: Interners) -> Hits:
        """Return the hits by name or by receive-all."""
        subscribers, texts = interners
        named = (
            (row, subscribers[subscriber], texts[topic])
            for row, topic in enumerate(topics)
            for subscriber, _ in self._named(topic)
        )
        receive_all = np.array([subscribers[subscriber] for subscriber in self._receive_all], np.int64)
        count = len(topics) * len(receive_all)
        rows = np.repeat(np.arange(len(topics)), len(receive_all))
        return Hits.concat([Hits.of(named), Hits(rows, np.tile(receive_all, len(topics)), np.full(count, NO_TEXT))])

    def _drop_arrays(self) -> None:
        self._arrays, self._interners, self._topics_asked = None, None, 0

    def _arrays_by_dialect(self, interners: Interners) -> "dict[str, _PatternArrays]":
        if self._arrays is None:
            holders: dict[str, dict[tuple[str, str | None], list[int]]] = {}
            for client, interest in self._interests.items():
                for dialect, pattern, policy, (subscriber, _) in patterns_of(client, interest):
                    held = holders.setdefault(dialect, {}).setdefault((pattern, policy), [])
                    held.append(interners.subscribers[subscriber])
            inner_multi = {dialect: allows_inner_multi(dialect, self.inner_multi) for dialect in holders}
            self._arrays = {
                dialect: _PatternArrays(dialect, patterns, interners, inner_multi=inner_multi[dialect])
                for dialect, patterns in holders.items()
            }
        return self._arrays


class DistinctEntries:
    """Different entries of clients, with their holders: a topic costs a visit of each entry, not of each holder.

    Args:
        inner_multi: as in `Interests`.

    Attributes:
        holders: of each entry by its number: subscribers, each with the order of the entry.
    """

    def __init__(self, inner_multi: bool) -> None:  # noqa: FBT001 - one setting of the job
        self.holders: list[list[Holder]] = []
        self._inner_multi = inner_multi
        self._numbers: dict[tuple[str, str, str | None] | str | None, int] = {}  # None for everything
        self._by_pattern: dict[str, PatternTexts[int]] = {}

    def add(self, client: ClientKey, interest: Interest) -> None:
        """Add the interest of a client."""
        for dialect, pattern, policy, holder in patterns_of(client, interest):
            number = self._number((dialect, pattern, policy))
            if not self.holders[number]:
                _index(self._by_pattern, dialect, self._inner_multi).add((pattern,), number, policy=policy)
            self.holders[number].append(holder)
        for names, holder in names_of(client, interest):
            for name in names:
                self.holders[self._number(name)].append(holder)
        if interest.everything is not None:
            self.holders[self._number(None)].append((SubscriberKey(*client), interest.everything))

    def match(self, topic: str) -> list[int]:
        """Return the numbers of the entries that match a topic."""
        others = (self._numbers[key] for key in (topic, None) if key in self._numbers)
        return [*(number for index in self._by_pattern.values() for number in index.match(topic)), *others]

    def _number(self, key: tuple[str, str, str | None] | str | None) -> int:
        number = self._numbers.setdefault(key, len(self.holders))
        if number == len(self.holders):
            self.holders.append([])
        return number


def _index(indexes: dict[str, PatternTexts[T]], dialect: str, inner_multi: bool) -> PatternTexts[T]:  # noqa: FBT001 - as above
    """Return the index of a dialect, a new one for its first pattern."""
    if dialect not in indexes:
        indexes[dialect] = PatternTexts(dialect, allow_inner_multi=allows_inner_multi(dialect, inner_multi))
    return indexes[dialect]


def allows_inner_multi(dialect: str, inner_multi: bool) -> bool:  # noqa: FBT001 - as above
    """Return True if a dialect accepts multi-segment wildcards before the end of a pattern in this job."""
    return inner_multi and get_dialect(dialect).has_inner_multi


class _PatternArrays:
    """Patterns of one dialect in arrays, with the numbers of their subscribers."""

    def __init__(
        self,
        dialect: str,
        patterns: Mapping[tuple[str, str | None], list[int]],
        interners: Interners,
        *,
        inner_multi: bool,
    ) -> None:
        parse = get_dialect(dialect).parse
        parsed = [parse(text, policy=policy, allow_inner_multi=inner_multi) for text, policy in patterns]
        self._index = FlatPatterns(parsed, dialect, allow_inner_multi=inner_multi)
        self._texts = np.array([interners.texts[text] for text, _ in patterns], np.int64)
        self._firsts = firsts_of(np.array(list(map(len, patterns.values())), np.int64))
        self._subscribers = np.array(list(chain.from_iterable(patterns.values())), np.int64)

    def hits(self, topics: Sequence[str]) -> Hits:
        """Return the hits of the topics."""
        rows, patterns = self._index.match_batch(topics)
        owners, places = ranges(self._firsts[patterns], self._firsts[patterns + 1])
        return Hits(rows[owners], self._subscribers[places], self._texts[patterns[owners]])


def pattern_of(entry: str, notation: Notation) -> str:
    """Return the pattern of an entry: the filter of an MQTT shared subscription, else the entry itself."""
    share = _share_of(entry, notation)
    return entry if share is None else share.filter


def _share_of(entry: str, notation: Notation) -> SharedSubscription | None:
    return shared(entry) if notation.dialect == MQTT and entry.startswith("$share/") else None


def patterns_of(client: ClientKey, interest: Interest) -> Iterator[tuple[str, str, str | None, Holder]]:
    """Yield (dialect, pattern, policy, holder) for each pattern of an interest."""
    for dialect, policy, patterns, holder in holders_of(client, interest):
        for pattern in patterns:
            yield dialect, pattern, policy, holder


def holders_of(client: ClientKey, interest: Interest) -> Iterator[tuple[str, str | None, Sequence[str], Holder]]:
    """Yield (dialect, policy, patterns, their holder) for all patterns of an interest."""
    if not interest.patterns:
        return
    plain = SubscriberKey(*client)
    for block in interest.blocks:
        notation, together = block.notation, block.entries
        if notation is not LITE:
            parts = {entry: _part(entry, notation) for entry in block.entries}
            together = tuple(entry for entry, part in parts.items() if not part)
            for entry, part in parts.items():
                if part:
                    holder = plain._replace(part=part), block.order
                    yield notation.dialect, notation.policy, (pattern_of(entry, notation),), holder
        if together:
            yield notation.dialect, notation.policy, together, (plain, block.order)


def _part(entry: str, notation: Notation) -> str:
    share = _share_of(entry, notation)
    if share is not None:
        return f"{SHARE}{share.group}/{share.filter}"
    return f"{notation.dialect}:{notation.policy or ''}:{entry}" if notation.per_subscription else ""


def names_of(client: ClientKey, interest: Interest) -> Iterator[tuple[Sequence[str], Holder]]:
    """Yield (names, their holder) for all names of an interest."""
    if not interest.patterns:
        plain = SubscriberKey(*client)
        yield from ((block.entries, (plain, block.order)) for block in interest.blocks)
