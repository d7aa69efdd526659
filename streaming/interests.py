"""Who asks for a topic: what clients want, indexed."""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from matcher import PatternIndex
from matcher.batch import FlatPatterns
from matcher.dialects import get_dialect
from matcher.dialects.mqtt import SharedSubscription, shared
from streaming.events import LITE, Notation
from streaming.subscription import Interest

MQTT = "mqtt"
"""The dialect in which clients may share a subscription."""

SHARE = "share:"
"""How the part of an MQTT shared subscription begins."""


class ClientKey(NamedTuple):
    """A client of a group."""

    group: str
    client_id: str


class Receiver(NamedTuple):
    """Who stands in one row of the relation beside the topic.

    Attributes:
        part: blank for all of a client's entries together; what is delivered apart has a part of its own:
            `share:NAME` (MQTT `$share`), or `DIALECT:POLICY:PATTERN` for an entry that is a row of its own (WAMP).
    """

    group: str
    client_id: str
    part: str = ""

    @property
    def client(self) -> ClientKey:
        """The client that receives."""
        return ClientKey(self.group, self.client_id)


Found = dict[Receiver, list[str]]
"""The receivers of a topic, each with the entries that say so (none for receive-all)."""

Orders = dict[Receiver, int]
"""The order of each receiver's newest entry that asks for a topic."""

_BATCH = 256
"""Topics from which on arrays are asked instead of a trie."""

_BUILD_TOPICS = 8
"""Topics a pattern that pay for building the arrays: 15 to 30 us a pattern, against some 2.5 us saved a topic."""


class Interests:
    """What clients ask for: names, patterns and receive-all, indexed."""

    def __init__(self, inner_multi: bool) -> None:  # noqa: FBT001 - one setting of the job
        self._inner_multi = inner_multi
        self._patterns: dict[str, PatternIndex[tuple[Receiver, int]]] = {}
        self._names: dict[str, Orders] = {}
        self._everyone: Orders = {}
        self._wanted: dict[ClientKey, Interest] = {}
        self._flat: dict[str, _Flat] | None = None
        self._asked = 0

    def add(self, client: ClientKey, wanted: Interest) -> None:
        """Registers what a client asks for."""
        self._flat, self._asked = None, 0
        self._wanted[client] = wanted
        for dialect, pattern, policy, holder in _patterns_of(client, wanted):
            self._index(dialect).add(pattern, holder, policy=policy)
        plain = Receiver(*client)
        for name, order in _names_of(wanted):
            self._names.setdefault(name, {})[plain] = order
        if wanted.everything is not None:
            self._everyone[plain] = wanted.everything

    def remove(self, client: ClientKey, wanted: Interest) -> None:
        """Forgets what `add` registered."""
        self._flat, self._asked = None, 0
        self._wanted.pop(client, None)  # one that asked for nothing was never added
        for dialect, pattern, policy, holder in _patterns_of(client, wanted):
            self._index(dialect).remove(pattern, holder, policy=policy)
        plain = Receiver(*client)
        for name, _ in _names_of(wanted):
            named = self._names[name]
            del named[plain]
            if not named:
                del self._names[name]
        if wanted.everything is not None:
            del self._everyone[plain]

    def match(self, topic: str) -> Found:
        """All who ask for a topic, whatever the terms of their groups."""
        found = self._match_names(topic)
        for index in self._patterns.values():
            for pattern, (receiver, _) in index.match_patterns(topic):
                patterns = found.get(receiver)
                if patterns is None:
                    found[receiver] = [pattern]
                else:
                    patterns.append(pattern)
        return found

    def match_all(self, topics: Sequence[str]) -> list[Found]:
        """`match` for each of many topics.

        From some hundred topics on arrays find them faster than a trie: 1,500 topics and 100 patterns take 0.5 instead
        of 1.8 us a topic, and more patterns make the difference larger. They are built for a set of patterns that has
        been asked for as many topics as pay for it, and last until a pattern comes or goes.
        """
        if len(topics) < _BATCH:
            return list(map(self.match, topics))
        self._asked += len(topics)
        if self._flat is None:
            if self._asked < _BUILD_TOPICS * sum(map(len, self._patterns.values())):
                return list(map(self.match, topics))
            self._flat = self._flattened()
        found = list(map(self._match_names, topics))
        for flat in self._flat.values():
            flat.match(topics, found)
        return found

    def orders(self, topic: str) -> Orders:
        """How new the wish is, of all who ask for a topic."""
        orders = dict(self._everyone)
        hits: list[tuple[Receiver, int]] = list(self._names.get(topic, {}).items())
        for index in self._patterns.values():
            hits += index.match(topic)
        for receiver, order in hits:
            if order > orders.get(receiver, -1):
                orders[receiver] = order
        return orders

    def _match_names(self, topic: str) -> Found:
        """Those who ask for a topic without a pattern."""
        found: Found = {receiver: [] for receiver in self._everyone}
        for receiver in self._names.get(topic, ()):
            found.setdefault(receiver, []).append(topic)
        return found

    def _flattened(self) -> dict[str, "_Flat"]:
        holders: dict[str, dict[tuple[str, str | None], list[Receiver]]] = {}
        for client, wanted in self._wanted.items():
            for dialect, pattern, policy, (receiver, _) in _patterns_of(client, wanted):
                holders.setdefault(dialect, {}).setdefault((pattern, policy), []).append(receiver)
        return {
            dialect: _Flat(dialect, patterns, inner_multi=self._inner_multi and dialect == "lite")
            for dialect, patterns in holders.items()
        }

    def _index(self, dialect: str) -> PatternIndex[tuple[Receiver, int]]:
        index = self._patterns.get(dialect)
        if index is None:
            inner_multi = self._inner_multi and dialect == "lite"
            index = self._patterns[dialect] = PatternIndex(dialect, allow_inner_multi=inner_multi)
        return index


class _Flat:
    """The patterns of one dialect as arrays, with their receivers."""

    def __init__(
        self, dialect: str, patterns: Mapping[tuple[str, str | None], list[Receiver]], *, inner_multi: bool
    ) -> None:
        parse = get_dialect(dialect).parse
        parsed = [parse(text, policy=policy, allow_inner_multi=inner_multi) for text, policy in patterns]
        self._index = FlatPatterns(parsed, dialect, allow_inner_multi=inner_multi)
        self._texts = [text for text, _ in patterns]
        self._receivers = list(patterns.values())

    def match(self, topics: Sequence[str], found: list[Found]) -> None:
        """Adds who receives each topic."""
        rows, patterns = self._index.match_batch(topics)
        for row, number in zip(rows.tolist(), patterns.tolist(), strict=True):
            text, receivers = self._texts[number], found[row]
            for receiver in self._receivers[number]:
                texts = receivers.get(receiver)
                if texts is None:
                    receivers[receiver] = [text]
                else:
                    texts.append(text)


def pattern_of(entry: str, notation: Notation) -> str:
    """What an entry matches with: the filter of an MQTT shared subscription, else the entry itself."""
    share = _share_of(entry, notation)
    return entry if share is None else share.filter


def _share_of(entry: str, notation: Notation) -> SharedSubscription | None:
    return shared(entry) if notation.dialect == MQTT and entry.startswith("$share/") else None


def _patterns_of(client: ClientKey, wanted: Interest) -> Iterator[tuple[str, str, str | None, tuple[Receiver, int]]]:
    """The patterns of an interest: dialect, pattern and policy, with who receives by it and its order."""
    if not wanted.patterns:
        return
    plain = Receiver(*client)
    for block in wanted.blocks:
        dialect, policy, _ = block.notation
        for entry in block.entries:
            share = _share_of(entry, block.notation)
            receiver = plain._replace(part=_part(entry, block.notation, share)) if block.notation is not LITE else plain
            yield dialect, entry if share is None else share.filter, policy, (receiver, block.order)


def _part(entry: str, notation: Notation, share: SharedSubscription | None) -> str:
    if share is not None:
        return SHARE + share.group
    return f"{notation.dialect}:{notation.policy or ''}:{entry}" if notation.per_subscription else ""


def _names_of(wanted: Interest) -> Iterator[tuple[str, int]]:
    """The names of an interest, each with its order."""
    if not wanted.patterns:
        yield from ((name, block.order) for block in wanted.blocks for name in block.entries)
