"""Indexes and counts over the content of a shard, built when first needed and kept up to date."""

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from heapq import heappop, heappush
from itertools import chain
from typing import Final

from matcher import InvalidPattern, Pattern, TopicIndex, get_dialect
from matcher.index.topics import accepted
from streaming.records.model import DEFAULT_QUOTA, NO_METADATA, TopicMetadata
from streaming.records.subscribers import ClientKey
from streaming.state.client import Client, Interest, is_absent
from streaming.state.client_table import ClientTable
from streaming.state.delta import ShardDelta
from streaming.state.group import Group
from streaming.state.interests import Interests, allows_inner_multi, pattern_of
from streaming.state.topic_table import STALE, StoredTopics, Topics, TopicTable, described

_QUESTIONS: Final = 32
"""Patterns for each of which all recent topics are visited; for more, they are indexed.

One with an inner multi-segment wildcard counts as four.
"""


class PatternTargets:
    """Stored topics by pattern.

    Settled topics are found by their postings, if these are of the dialect. For other dialects topics are indexed.

    Attributes:
        indexes: indexes of all topics, by dialect.
        recent: indexes of the topics that are not settled, by dialect.
    """

    def __init__(self, *, inner_multi: bool) -> None:
        self._inner_multi = inner_multi
        self._questions = Counter[str]()
        self.indexes: dict[str, TopicIndex] = {}
        self.recent: dict[str, TopicIndex] = {}

    def expand(self, wanted: Interest, topics: StoredTopics) -> Iterable[str]:
        """Return the stored topics that the patterns of an interest match, perhaps several times."""
        patterns: dict[tuple[str, str | None], list[str]] = defaultdict(list)
        for block in wanted.blocks:
            patterns[block.notation[:2]].extend(pattern_of(entry, block.notation) for entry in block.entries)
        if isinstance(topics, TopicTable):
            return chain.from_iterable([self._expand(*key, texts, topics) for key, texts in patterns.items()])
        return chain.from_iterable(
            [
                self._indexed(self.indexes, dialect, topics).expand_any(texts, policy=policy)
                for (dialect, policy), texts in patterns.items()
            ]
        )

    def _expand(self, dialect: str, policy: str | None, texts: list[str], topics: TopicTable) -> Iterable[str]:
        postings = topics.postings.get(dialect)
        patterns = self._parsed(dialect, policy, texts)
        literals = [pattern.literal for pattern in patterns if pattern.literal is not None]
        wild = [pattern for pattern in patterns if pattern.literal is None]
        found: list[Iterable[str]] = [filter(topics.__contains__, literals)]
        if postings is not None and wild:
            found.append(self._among_recent(dialect, wild, topics.recent))
            found.append(chain.from_iterable(postings.expand(wild, topics.at)))  # some topics at a time
        elif wild:
            found.append(self._indexed(self.indexes, dialect, topics).expand_any(wild))
        return chain.from_iterable(found)

    def _among_recent(self, dialect: str, patterns: list[Pattern], recent: Topics) -> list[str]:
        self._questions[dialect] += sum([4 if pattern.has_many else 1 for pattern in patterns])
        if dialect not in self.recent and self._questions[dialect] <= _QUESTIONS:
            rules, names = get_dialect(dialect), list(recent)
            return [
                topic
                for pattern in patterns
                for topic in accepted(names, pattern, rules.separator)
                if rules.matches(pattern, topic)  # which is slower, and also knows topics that no pattern matches
            ]
        return self._indexed(self.recent, dialect, recent).expand_any(patterns)

    def _indexed(self, indexes: dict[str, TopicIndex], dialect: str, topics: Iterable[str]) -> TopicIndex:
        """Return the index of topics for a dialect, made at the first question."""
        index = indexes.get(dialect)
        if index is None:
            inner_multi = allows_inner_multi(dialect, self._inner_multi)
            index = indexes[dialect] = TopicIndex(dialect, allow_inner_multi=inner_multi)
            for topic in topics:
                index.add(topic)
        return index

    def _parsed(self, dialect: str, policy: str | None, texts: Iterable[str]) -> list[Pattern]:
        rules, found = get_dialect(dialect), list[Pattern]()
        inner_multi = allows_inner_multi(dialect, self._inner_multi)
        for text in texts:
            with suppress(InvalidPattern):
                found.append(rules.parse(text, policy=policy, allow_inner_multi=inner_multi))
        return found

    def apply(self, delta: ShardDelta) -> None:
        """Apply a micro-batch."""
        for index in chain(self.indexes.values(), self.recent.values()):
            for topic in delta.removed:
                index.remove(topic)
            for topic in delta.added:
                index.add(topic)

    def settle(self, postings: Collection[str]) -> None:
        """Forget indexes: all topics are settled now, with postings for some dialects."""
        for dialect in postings:
            self.indexes.pop(dialect, None)
        self.recent, self._questions = {}, Counter()


class Times:
    """Distinct times; times that are over are found without a scan of the others."""

    def __init__(self) -> None:
        self._times: set[int] = set()
        self._heap: list[int] = []

    def add(self, time: int) -> None:
        """Note a time."""
        if time not in self._times:
            self._times.add(time)
            heappush(self._heap, time)

    def remove(self, time: int) -> None:
        """Forget a time; its place in the heap is freed when it is over, or when most of the heap is stale."""
        self._times.discard(time)
        if len(self._heap) > 2 * len(self._times) + STALE:
            self._heap = sorted(self._times)

    def due(self, now: int) -> list[int]:
        """Return the times at or before `now`, in order."""
        found: list[int] = []
        while self._heap and self._heap[0] <= now:
            time = heappop(self._heap)
            if time in self._times and time not in found[-1:]:
                found.append(time)
        for time in found:
            heappush(self._heap, time)
        return found


class Alarms:
    """Times at which a shard wants to be woken."""

    def __init__(self) -> None:
        self._times: Times | None = None

    def due(self, now: int, alarms: Iterable[int]) -> list[int]:
        """Return those at or before `now`; `alarms` are all of them, needed for the first call."""
        if self._times is None:
            self._times = Times()
            for time in alarms:
                self._times.add(time)
        return self._times.due(now)

    def apply(self, alarms: Mapping[int, bool | None]) -> None:
        """Apply a micro-batch."""
        if self._times is not None:
            for time, is_set in alarms.items():
                (self._times.add if is_set else self._times.remove)(time)


class Deadlines:
    """Topics by the time at which their TTL ends them."""

    def __init__(self, topics: Topics) -> None:
        self._topics: dict[int, dict[str, None]] = {}
        self._times = Times()
        self.add(topics)

    def due(self, now: int) -> list[str]:
        """Return the stored topics whose deadline is at or before `now`, in milliseconds since the epoch."""
        return [topic for deadline in self._times.due(now) for topic in self._topics[deadline]]

    def add(self, topics: Topics) -> None:
        """Note topics that are stored now."""
        for topic, metadata in described(topics).items():
            if metadata.deadline is not None:
                self._topics.setdefault(metadata.deadline, {})[topic] = None
                self._times.add(metadata.deadline)

    def remove(self, topics: Topics) -> None:
        """Forget topics."""
        for topic, metadata in topics.items():
            deadline = metadata.deadline
            if deadline is not None:
                del self._topics[deadline][topic]
                if not self._topics[deadline]:
                    del self._topics[deadline]
                    self._times.remove(deadline)


class Members:
    """Clients in session by group, in the order of the state."""

    def __init__(self) -> None:
        self._groups: dict[str, dict[ClientKey, None]] | None = None

    def of(self, group: str, clients: Iterable[ClientKey]) -> Collection[ClientKey]:
        """Return the clients of a group.

        Args:
            group: its name.
            clients: all clients in session, needed for the first call.
        """
        if self._groups is None:
            self._groups = {}
            self._add(clients)
        return self._groups.get(group, {})

    def apply(self, clients: Mapping[ClientKey, Client | None]) -> None:
        """Apply a micro-batch."""
        if self._groups is None:
            return
        for key, client in clients.items():
            if client is not None and not is_absent(key, client):
                self._add((key,))
            elif key.group in self._groups:
                self._groups[key.group].pop(key, None)
                if not self._groups[key.group]:
                    del self._groups[key.group]

    def _add(self, clients: Iterable[ClientKey]) -> None:
        if self._groups is not None:
            for key in clients:
                self._groups.setdefault(key.group, {})[key] = None


# Measured with `tracemalloc`, on CPython 3.11 of 64 bits, and tested with it: bytes without the texts.
_SHARD: Final = 3_000
_TOPIC: Final = 80
_METADATA: Final = 360
_INDEXED_TOPIC: Final = 110
_NODE: Final = 220
_CLIENT: Final = 900
_ENTRY: Final = 90
_SEPARATE_PATTERN: Final = 400


class Footprint:
    """Counts of the content of a shard."""

    def __init__(self) -> None:
        self._described_topics = 0
        self._entries = 0

    def settle(self, topics: StoredTopics, clients: Mapping[ClientKey, Client]) -> None:
        """Count content in tables again, of which these clients are not settled."""
        self._described_topics = sum(each != NO_METADATA for each in described(topics).values())
        self._entries = sum(map(_entries, clients.values()))

    def follow(
        self, delta: ShardDelta, topics: Mapping[str, TopicMetadata], clients: Mapping[ClientKey, Client]
    ) -> None:
        """Apply a micro-batch.

        Args:
            delta: its changes.
            topics: as they were before it.
            clients: in session before it; those in a table do not count.
        """
        self._described_topics += len(delta.added) - list(delta.added.values()).count(NO_METADATA)
        self._described_topics -= sum(topics[topic] != NO_METADATA for topic in delta.removed)
        decoded = clients.recent if isinstance(clients, ClientTable) else clients
        for key, client in delta.clients.items():
            self._entries += _entries(client) - _entries(decoded.get(key))

    def memory_bytes(
        self,
        *,
        text_bytes: int,
        topics: Topics,
        targets: PatternTargets,
        has_order: bool,
        clients: Mapping[ClientKey, Client],
        interests: Interests | None,
    ) -> int:
        """Return the estimate, in bytes.

        Args:
            text_bytes: bytes of all names, patterns and properties.
            topics: all topics; those in a table take no memory of the process, unless an index decoded them.
            targets: these topics by pattern.
            has_order: their order of creation is indexed.
            clients: those in session; of those in a table, the changed and the indexed ones take memory of the process.
            interests: index of interests, if there is one.
        """
        indexes, count = [*targets.indexes.values(), *targets.recent.values()], len(topics)
        indexed = sum(map(len, indexes)) + has_order * count
        parsed_bytes, separate = (interests.parsed_bytes, interests.separate_patterns) if interests else (0, 0)
        if isinstance(topics, TopicTable):
            parsed_bytes += topics.table.memory_bytes
            if not (targets.indexes or has_order):
                text_bytes, count = text_bytes - topics.table.text_bytes, topics.changes
        decoded, entries = len(clients), self._entries
        if isinstance(clients, ClientTable):
            text_bytes, decoded = text_bytes - clients.value_bytes, len(clients.recent)
            if interests is not None:
                decoded, entries = max(decoded, interests.clients), max(entries, interests.entries)
                parsed_bytes += interests.settled_bytes
        return (
            _SHARD
            + max(0, text_bytes)
            + count * _TOPIC
            + indexed * _INDEXED_TOPIC
            + sum([index.nodes for index in indexes]) * _NODE
            + self._described_topics * _METADATA
            + decoded * _CLIENT
            + entries * _ENTRY
            + parsed_bytes
            + separate * _SEPARATE_PATTERN
        )


def _entries(client: Client | None) -> int:
    """Return the number of entries that a client's subscriptions keep."""
    if client is None:
        return 0
    literal, wildcard = client
    count = sum([len(block.entries) for block in literal.blocks])
    return count if wildcard is literal else count + sum([len(block.entries) for block in wildcard.blocks])


class Quotas:
    """Quotas in force."""

    def __init__(self) -> None:
        self._counts: Counter[int] | None = None
        self._lowest_share: int | None = None

    def lowest_share(self, groups: Mapping[str, Group], share: Callable[[int], int | None]) -> int:
        """Return the lowest number of topics that a quota allows.

        Args:
            groups: all groups.
            share: returns the number of topics that a quota allows; None for no limit.
        """
        if self._counts is None:
            self._counts = Counter([DEFAULT_QUOTA, *(group.quota for group in groups.values())])
        if self._lowest_share is None:
            shares = map(share, self._counts)
            self._lowest_share = min(each for each in shares if each is not None)  # the default quota has a limit
        return self._lowest_share

    def apply(self, changes: Mapping[str, Group | None], groups: Mapping[str, Group]) -> None:
        """Apply a micro-batch; `groups` are from before it."""
        self._lowest_share = None
        if self._counts is None:
            return
        for name, later in changes.items():
            for group, step in ((groups.get(name), -1), (later, 1)):
                if group is not None:
                    self._counts[group.quota] += step
                    if not self._counts[group.quota]:
                        del self._counts[group.quota]
