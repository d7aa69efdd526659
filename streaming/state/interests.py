"""Index of interests: the subscribers of a topic by name, by pattern and by receive-all."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import NamedTuple, TypeVar

import numpy as np

from matcher import PatternIndex
from matcher.batch import FlatPatterns
from matcher.batch.segments import firsts_of, ranges
from matcher.dialects import get_dialect
from matcher.dialects.mqtt import SharedSubscription, shared
from streaming.records.columns import NO_TEXT, Hits, Interner, Pairs
from streaming.records.model import LITE, Notation
from streaming.records.subscribers import SHARE, ClientKey, Matches, Orders, SubscriberKey
from streaming.state.client import NOTHING, Interest
from streaming.tuning import DEFAULT_TUNING

T = TypeVar("T")

MQTT = "mqtt"
"""Name of the dialect with shared subscriptions."""


class Interners(NamedTuple):
    """Numbers of subscribers and of entries in arrays."""

    subscribers: Interner[SubscriberKey]
    texts: Interner[str]


class Interests:
    """Interests of clients, indexed by topic.

    Args:
        inner_multi: accept multi-segment wildcards before the end of a pattern, in dialects that have them.
        array_min_topics, array_build_topics: as in `Tuning`.

    Attributes:
        inner_multi: as above.
    """

    def __init__(
        self,
        inner_multi: bool,  # noqa: FBT001 - one setting of the job
        *,
        array_min_topics: int = DEFAULT_TUNING.array_min_topics,
        array_build_topics: int = DEFAULT_TUNING.array_build_topics,
    ) -> None:
        self.inner_multi = inner_multi
        self._array_min_topics = array_min_topics
        self._array_build_topics = array_build_topics
        self._tries: dict[str, PatternIndex[tuple[SubscriberKey, float]]] = {}
        self._by_name: dict[str, Orders] = {}
        self._receive_all: Orders = {}
        self._interests: dict[ClientKey, Interest] = {}
        self._arrays: dict[str, _PatternArrays] | None = None
        self._interners: Interners | None = None
        self._topics_asked = 0

    def add(self, client: ClientKey, interest: Interest) -> None:
        """Add the interest of a client."""
        self._drop_arrays()
        self._interests[client] = interest
        for dialect, pattern, policy, holder in patterns_of(client, interest):
            _trie(self._tries, dialect, self.inner_multi).add(pattern, holder, policy=policy)
        plain = SubscriberKey(*client)
        for name, order in names_of(interest):
            self._by_name.setdefault(name, {})[plain] = order
        if interest.everything is not None:
            self._receive_all[plain] = interest.everything

    def remove(self, client: ClientKey, interest: Interest) -> None:
        """Remove an interest added by `add`."""
        self._drop_arrays()
        self._interests.pop(client, None)  # an empty interest may never have been added
        for dialect, pattern, policy, holder in patterns_of(client, interest):
            _trie(self._tries, dialect, self.inner_multi).remove(pattern, holder, policy=policy)
        plain = SubscriberKey(*client)
        for name, _ in names_of(interest):
            named = self._by_name[name]
            del named[plain]
            if not named:
                del self._by_name[name]
        if interest.everything is not None:
            del self._receive_all[plain]

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
        for trie in self._tries.values():
            for pattern, (subscriber, _) in trie.match_patterns(topic):
                patterns = found.get(subscriber)
                if patterns is None:
                    found[subscriber] = [pattern]
                else:
                    patterns.append(pattern)
        return found

    def match_all(self, topics: Sequence[str]) -> list[Matches]:
        """Return the answer of `match` for each topic."""
        if not self._arrays_pay(len(topics)):
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
            hits = [self._hits_in_tries(topics, self._interners)]
        if self._by_name or self._receive_all:
            hits.append(self._hits_without_patterns(topics, self._interners))
        return Pairs.of(
            Hits.concat(hits), self._interners.subscribers.items_by_number, self._interners.texts.items_by_number
        )

    def _arrays_pay(self, topic_count: int) -> bool:
        """Return True if arrays answer a question about this many topics faster than the tries.

        From a hundred topics on they do: 1,500 topics and 100 patterns take 1.1 instead of 3.6 us a topic, and more
        patterns make the difference larger. They are built once the questions since the last change of an interest have
        had enough topics to pay for it, and last until the next change.
        """
        if topic_count < self._array_min_topics:
            return False
        if self._arrays is None:
            self._topics_asked += topic_count
            return self._topics_asked >= self._array_build_topics * sum(map(len, self._tries.values()))
        return True

    def orders(self, topic: str) -> Orders:
        """Return the order of the newest matching entry for each subscriber of the topic."""
        orders: Orders = {}
        for subscriber, order in self.hits(topic):
            if order > orders.get(subscriber, -1):
                orders[subscriber] = order
        return orders

    def hits(self, topic: str) -> list[tuple[SubscriberKey, float]]:
        """Return the order of each matching entry, with its subscriber."""
        hits = [*self._receive_all.items(), *self._by_name.get(topic, {}).items()]
        for trie in self._tries.values():
            hits += trie.match(topic)
        return hits

    def _match_without_patterns(self, topic: str) -> Matches:
        """Return the subscribers by name or by receive-all."""
        found: Matches = {subscriber: [] for subscriber in self._receive_all}
        for subscriber in self._by_name.get(topic, ()):
            found.setdefault(subscriber, []).append(topic)
        return found

    def _hits_in_tries(self, topics: Sequence[str], interners: Interners) -> Hits:
        """Return the hits by pattern, looked up in the tries."""
        subscribers, texts = interners
        return Hits.of(
            (row, subscribers[subscriber], texts[text])
            for trie in self._tries.values()
            for row, topic in enumerate(topics)
            for text, (subscriber, _) in trie.match_patterns(topic)
        )

    def _hits_without_patterns(self, topics: Sequence[str], interners: Interners) -> Hits:
        """Return the hits by name or by receive-all."""
        subscribers, texts = interners
        named = (
            (row, subscribers[subscriber], texts[topic])
            for row, topic in enumerate(topics)
            if topic in self._by_name
            for subscriber in self._by_name[topic]
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
            self._arrays = {
                dialect: _PatternArrays(dialect, patterns, interners, inner_multi=_allows(dialect, self.inner_multi))
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
        self.holders: list[list[tuple[SubscriberKey, float]]] = []
        self._inner_multi = inner_multi
        self._numbers: dict[tuple[str, str, str | None] | str | None, int] = {}  # None for everything
        self._tries: dict[str, PatternIndex[int]] = {}

    def add(self, client: ClientKey, interest: Interest) -> None:
        """Add the interest of a client."""
        plain = SubscriberKey(*client)
        for dialect, pattern, policy, holder in patterns_of(client, interest):
            number = self._number((dialect, pattern, policy))
            if not self.holders[number]:
                _trie(self._tries, dialect, self._inner_multi).add(pattern, number, policy=policy)
            self.holders[number].append(holder)
        for name, order in names_of(interest):
            self.holders[self._number(name)].append((plain, order))
        if interest.everything is not None:
            self.holders[self._number(None)].append((plain, interest.everything))

    def match(self, topic: str) -> list[int]:
        """Return the numbers of the entries that match a topic."""
        others = (self._numbers[key] for key in (topic, None) if key in self._numbers)
        return [*(number for trie in self._tries.values() for number in trie.match(topic)), *others]

    def _number(self, key: tuple[str, str, str | None] | str | None) -> int:
        number = self._numbers.setdefault(key, len(self.holders))
        if number == len(self.holders):
            self.holders.append([])
        return number


def _trie(tries: dict[str, PatternIndex[T]], dialect: str, inner_multi: bool) -> PatternIndex[T]:  # noqa: FBT001 - as above
    """Return the trie of a dialect, a new one for its first pattern."""
    if dialect not in tries:
        tries[dialect] = PatternIndex(dialect, allow_inner_multi=_allows(dialect, inner_multi))
    return tries[dialect]


def _allows(dialect: str, inner_multi: bool) -> bool:  # noqa: FBT001 - as above
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


def patterns_of(
    client: ClientKey, interest: Interest
) -> Iterator[tuple[str, str, str | None, tuple[SubscriberKey, float]]]:
    """Yield (dialect, pattern, policy, (subscriber, order)) for each pattern of an interest."""
    if not interest.patterns:
        return
    plain = SubscriberKey(*client)
    for block in interest.blocks:
        dialect, policy, _ = block.notation
        for entry in block.entries:
            share = _share_of(entry, block.notation)
            subscriber = (
                plain._replace(part=_part(entry, block.notation, share)) if block.notation is not LITE else plain
            )
            yield dialect, entry if share is None else share.filter, policy, (subscriber, block.order)


def _part(entry: str, notation: Notation, share: SharedSubscription | None) -> str:
    if share is not None:
        return f"{SHARE}{share.group}/{share.filter}"
    return f"{notation.dialect}:{notation.policy or ''}:{entry}" if notation.per_subscription else ""


def names_of(interest: Interest) -> Iterator[tuple[str, float]]:
    """Yield (name, order) for each name of an interest."""
    if not interest.patterns:
        yield from ((name, block.order) for block in interest.blocks for name in block.entries)
