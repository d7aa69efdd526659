"""Who asks for a topic: what clients want, indexed."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import NamedTuple

import numpy as np

from matcher import PatternIndex
from matcher.batch import FlatPatterns
from matcher.batch.arrays import firsts_of, ranges
from matcher.dialects import get_dialect
from matcher.dialects.mqtt import SharedSubscription, shared
from streaming.events.model import LITE, Notation
from streaming.subscription.client import Interest
from streaming.subscription.pairs import NO_TEXT, Hits, Interner, Pairs
from streaming.subscription.subscribers import ClientKey, Matches, Orders, SubscriberKey

MQTT = "mqtt"
"""The dialect in which clients may share a subscription."""

SHARE = "share:"
"""How the part of an MQTT shared subscription begins."""


_BATCH = 96
"""Topics from which on arrays are asked instead of a trie."""

_BUILD_TOPICS = 8
"""Topics a pattern that pay for building the arrays: 15 to 30 us a pattern, against some 2.5 us saved a topic."""


class Interners(NamedTuple):
    """Numbers by which arrays speak of receivers and of entries."""

    subscribers: Interner[SubscriberKey]
    texts: Interner[str]


class Interests:
    """What clients ask for: names, patterns and receive-all, indexed."""

    def __init__(self, inner_multi: bool) -> None:  # noqa: FBT001 - one setting of the job
        self._inner_multi = inner_multi
        self._patterns: dict[str, PatternIndex[tuple[SubscriberKey, int]]] = {}
        self._names: dict[str, Orders] = {}
        self._everyone: Orders = {}
        self._wanted: dict[ClientKey, Interest] = {}
        self._flat: dict[str, _Flat] | None = None
        self._numbered: Interners | None = None
        self._asked = 0

    def add(self, client: ClientKey, wanted: Interest) -> None:
        """Registers what a client asks for."""
        self._flat, self._numbered, self._asked = None, None, 0
        self._wanted[client] = wanted
        for dialect, pattern, policy, holder in _patterns_of(client, wanted):
            self._index(dialect).add(pattern, holder, policy=policy)
        plain = SubscriberKey(*client)
        for name, order in _names_of(wanted):
            self._names.setdefault(name, {})[plain] = order
        if wanted.everything is not None:
            self._everyone[plain] = wanted.everything

    def remove(self, client: ClientKey, wanted: Interest) -> None:
        """Forgets what `add` registered."""
        self._flat, self._numbered, self._asked = None, None, 0
        self._wanted.pop(client, None)  # one that asked for nothing was never added
        for dialect, pattern, policy, holder in _patterns_of(client, wanted):
            self._index(dialect).remove(pattern, holder, policy=policy)
        plain = SubscriberKey(*client)
        for name, _ in _names_of(wanted):
            named = self._names[name]
            del named[plain]
            if not named:
                del self._names[name]
        if wanted.everything is not None:
            del self._everyone[plain]

    def match(self, topic: str) -> Matches:
        """All who ask for a topic, whatever the terms of their groups."""
        found = self._match_names(topic)
        for index in self._patterns.values():
            for pattern, (subscriber, _) in index.match_patterns(topic):
                patterns = found.get(subscriber)
                if patterns is None:
                    found[subscriber] = [pattern]
                else:
                    patterns.append(pattern)
        return found

    def match_all(self, topics: Sequence[str]) -> list[Matches]:
        """`match` for each of many topics."""
        if not self._arrays_pay(len(topics)):
            return list(map(self.match, topics))
        pairs = self.pairs(topics)
        found: list[Matches] = [{} for _ in topics]
        for row, subscriber, patterns in pairs.numbers():
            found[row][pairs.subscriber_table[subscriber]] = list(pairs.pattern_table[patterns])
        return found

    def pairs(self, topics: Sequence[str]) -> Pairs:
        """`match` for each of many topics, by column."""
        if self._numbered is None:
            self._numbered = Interners(Interner(), Interner())
        if self._arrays_pay(len(topics)):
            hits = [flat.hits(topics) for flat in self._arrays(self._numbered).values()]
        else:
            hits = [self._walked(topics, self._numbered)]
        if self._names or self._everyone:
            hits.append(self._hits_of_names(topics, self._numbered))
        return Pairs.of(Hits.concat(hits), self._numbered.subscribers.things, self._numbered.texts.things)

    def _arrays_pay(self, topics: int) -> bool:
        """Whether arrays are to be asked for so many topics instead of a trie.

        From a hundred topics on they are faster: 1,500 topics and 100 patterns take 1.1 instead of 3.6 us a topic, and
        more patterns make the difference larger. They are built for a set of patterns that has been asked for as
        many topics as pay for it, and last until a pattern comes or goes.
        """
        if topics < _BATCH:
            return False
        if self._flat is None:
            self._asked += topics
            return self._asked >= _BUILD_TOPICS * sum(map(len, self._patterns.values()))
        return True

    def orders(self, topic: str) -> Orders:
        """How new the wish is, of all who ask for a topic."""
        orders = dict(self._everyone)
        hits: list[tuple[SubscriberKey, int]] = list(self._names.get(topic, {}).items())
        for index in self._patterns.values():
            hits += index.match(topic)
        for subscriber, order in hits:
            if order > orders.get(subscriber, -1):
                orders[subscriber] = order
        return orders

    def _match_names(self, topic: str) -> Matches:
        """Those who ask for a topic without a pattern."""
        found: Matches = {subscriber: [] for subscriber in self._everyone}
        for subscriber in self._names.get(topic, ()):
            found.setdefault(subscriber, []).append(topic)
        return found

    def _walked(self, topics: Sequence[str], numbered: Interners) -> Hits:
        """Those who ask for topics by patterns, by way of the tries."""
        subscribers, texts = numbered
        return Hits.of(
            (row, subscribers[subscriber], texts[text])
            for index in self._patterns.values()
            for row, topic in enumerate(topics)
            for text, (subscriber, _) in index.match_patterns(topic)
        )

    def _hits_of_names(self, topics: Sequence[str], numbered: Interners) -> Hits:
        """Those who ask for topics without a pattern."""
        subscribers, texts = numbered
        named = (
            (row, subscribers[subscriber], texts[topic])
            for row, topic in enumerate(topics)
            if topic in self._names
            for subscriber in self._names[topic]
        )
        everyone = np.array([subscribers[subscriber] for subscriber in self._everyone], np.int64)
        count = len(topics) * len(everyone)
        rows = np.repeat(np.arange(len(topics)), len(everyone))
        return Hits.concat([Hits.of(named), Hits(rows, np.tile(everyone, len(topics)), np.full(count, NO_TEXT))])

    def _arrays(self, numbered: Interners) -> "dict[str, _Flat]":
        if self._flat is None:
            holders: dict[str, dict[tuple[str, str | None], list[int]]] = {}
            for client, wanted in self._wanted.items():
                for dialect, pattern, policy, (subscriber, _) in _patterns_of(client, wanted):
                    held = holders.setdefault(dialect, {}).setdefault((pattern, policy), [])
                    held.append(numbered.subscribers[subscriber])
            self._flat = {
                dialect: _Flat(dialect, patterns, numbered, inner_multi=self._inner_multi_in(dialect))
                for dialect, patterns in holders.items()
            }
        return self._flat

    def _index(self, dialect: str) -> PatternIndex[tuple[SubscriberKey, int]]:
        index = self._patterns.get(dialect)
        if index is None:
            index = self._patterns[dialect] = PatternIndex(dialect, allow_inner_multi=self._inner_multi_in(dialect))
        return index

    def _inner_multi_in(self, dialect: str) -> bool:
        return self._inner_multi and dialect == LITE.dialect


class _Flat:
    """The patterns of one dialect as arrays, with the numbers of their receivers."""

    def __init__(
        self,
        dialect: str,
        patterns: Mapping[tuple[str, str | None], list[int]],
        numbered: Interners,
        *,
        inner_multi: bool,
    ) -> None:
        parse = get_dialect(dialect).parse
        parsed = [parse(text, policy=policy, allow_inner_multi=inner_multi) for text, policy in patterns]
        self._index = FlatPatterns(parsed, dialect, allow_inner_multi=inner_multi)
        self._texts = np.array([numbered.texts[text] for text, _ in patterns], np.int64)
        self._firsts = firsts_of(np.array(list(map(len, patterns.values())), np.int64))
        self._subscribers = np.array(list(chain.from_iterable(patterns.values())), np.int64)

    def hits(self, topics: Sequence[str]) -> Hits:
        """Who receives the topics."""
        rows, patterns = self._index.match_batch(topics)
        owners, places = ranges(self._firsts[patterns], self._firsts[patterns + 1])
        return Hits(rows[owners], self._subscribers[places], self._texts[patterns[owners]])


def pattern_of(entry: str, notation: Notation) -> str:
    """What an entry matches with: the filter of an MQTT shared subscription, else the entry itself."""
    share = _share_of(entry, notation)
    return entry if share is None else share.filter


def _share_of(entry: str, notation: Notation) -> SharedSubscription | None:
    return shared(entry) if notation.dialect == MQTT and entry.startswith("$share/") else None


def _patterns_of(
    client: ClientKey, wanted: Interest
) -> Iterator[tuple[str, str, str | None, tuple[SubscriberKey, int]]]:
    """The patterns of an interest: dialect, pattern and policy, with who receives by it and its order."""
    if not wanted.patterns:
        return
    plain = SubscriberKey(*client)
    for block in wanted.blocks:
        dialect, policy, _ = block.notation
        for entry in block.entries:
            share = _share_of(entry, block.notation)
            subscriber = (
                plain._replace(part=_part(entry, block.notation, share)) if block.notation is not LITE else plain
            )
            yield dialect, entry if share is None else share.filter, policy, (subscriber, block.order)


def _part(entry: str, notation: Notation, share: SharedSubscription | None) -> str:
    if share is not None:
        return SHARE + share.group
    return f"{notation.dialect}:{notation.policy or ''}:{entry}" if notation.per_subscription else ""


def _names_of(wanted: Interest) -> Iterator[tuple[str, int]]:
    """The names of an interest, each with its order."""
    if not wanted.patterns:
        yield from ((name, block.order) for block in wanted.blocks for name in block.entries)
