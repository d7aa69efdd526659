"""Indexes over the topics of a shard, built when first asked and kept up to date."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from heapq import heappop, heappush
from itertools import takewhile

from matcher import TopicIndex, get_dialect
from streaming.events.model import TopicMetadata
from streaming.state.delta import Backfill, ShardDelta
from streaming.subscription.client import Client, Interest
from streaming.subscription.interests import Interests, pattern_of
from streaming.subscription.subscribers import ClientKey, Matches

Topics = Mapping[str, TopicMetadata]

_STALE_TIMES = 64
"""Times that may be stale in a heap, besides as many as there are."""


class PatternTargets:
    """Stored topics by pattern: one `TopicIndex` for each dialect in use."""

    def __init__(self, *, inner_multi: bool) -> None:
        self._inner_multi = inner_multi
        self._indexes: dict[str, TopicIndex] = {}

    def __len__(self) -> int:
        return len(self._indexes)

    def expand(self, wanted: Interest, topics: Topics) -> Iterator[str]:
        """Yield the stored topics that the patterns of an interest match; one may come several times."""
        patterns: dict[tuple[str, str | None], list[str]] = defaultdict(list)
        for block in wanted.blocks:
            patterns[block.notation[:2]].extend(pattern_of(entry, block.notation) for entry in block.entries)
        for (dialect, policy), texts in patterns.items():
            yield from self._index(dialect, topics).expand_any(texts, policy=policy)

    def apply(self, delta: ShardDelta) -> None:
        """Follow a micro-batch."""
        for index in self._indexes.values():
            for topic in delta.removed:
                index.remove(topic)
            for topic in delta.added:
                index.add(topic)

    def _index(self, dialect: str, topics: Topics) -> TopicIndex:
        index = self._indexes.get(dialect)
        if index is None:
            inner_multi = self._inner_multi and get_dialect(dialect).has_inner_multi
            index = self._indexes[dialect] = TopicIndex(dialect, allow_inner_multi=inner_multi)
            for topic in topics:
                index.add(topic)
        return index


class Times:
    """Distinct times, of which those that are over are found without a look at the others."""

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
        if len(self._heap) > 2 * len(self._times) + _STALE_TIMES:
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
        """Return those at or before `now`; `alarms` are all of them, in case that nobody asked before."""
        if self._times is None:
            self._times = Times()
            for time in alarms:
                self._times.add(time)
        return self._times.due(now)

    def apply(self, alarms: Mapping[int, bool | None]) -> None:
        """Follow a micro-batch."""
        if self._times is not None:
            for time, is_set in alarms.items():
                (self._times.add if is_set else self._times.remove)(time)


class Deadlines:
    """Topics by the time at which their TTL ends them."""

    def __init__(self) -> None:
        self._topics: dict[int, dict[str, None]] | None = None
        self._times = Times()

    def due(self, now: int, topics: Topics) -> list[str]:
        """Return the stored topics whose deadline is at or before `now`, in milliseconds since the epoch."""
        if self._topics is None:
            self._topics = {}
            self.add(topics)
        return [topic for deadline in self._times.due(now) for topic in self._topics[deadline]]

    def add(self, topics: Topics) -> None:
        """Note topics that are stored now."""
        if self._topics is not None:
            for topic, metadata in topics.items():
                if metadata.deadline is not None:
                    self._topics.setdefault(metadata.deadline, {})[topic] = None
                    self._times.add(metadata.deadline)

    def remove(self, topic: str, deadline: int | None) -> None:
        """Forget a topic."""
        if self._topics is not None and deadline is not None:
            del self._topics[deadline][topic]
            if not self._topics[deadline]:
                del self._topics[deadline]
                self._times.remove(deadline)


class Members:
    """Clients by group, in the order of the state."""

    def __init__(self) -> None:
        self._groups: dict[str, dict[ClientKey, None]] | None = None

    def of(self, group: str, clients: Iterable[ClientKey]) -> Collection[ClientKey]:
        """Return the clients of a group.

        Args:
            group: its name.
            clients: all clients, in case that nobody asked before.
        """
        if self._groups is None:
            self._groups = {}
            self._add(clients)
        return self._groups.get(group, {})

    def apply(self, clients: Mapping[ClientKey, Client | None]) -> None:
        """Follow a micro-batch."""
        if self._groups is None:
            return
        self._add(key for key, client in clients.items() if client is not None)
        for key, client in clients.items():
            if client is None and key.group in self._groups:
                self._groups[key.group].pop(key, None)
                if not self._groups[key.group]:
                    del self._groups[key.group]

    def _add(self, clients: Iterable[ClientKey]) -> None:
        if self._groups is not None:
            for key in clients:
                self._groups.setdefault(key.group, {})[key] = None


class RemainingTopics:
    """Topics that backfills have still to go through, and the former interests in force there."""

    def __init__(self, *, inner_multi: bool) -> None:
        self._inner_multi = inner_multi
        self._topics: dict[ClientKey, dict[str, None]] = {}
        self._former: dict[ClientKey, Interests] = {}

    def of(self, key: ClientKey, backfill: Backfill, topics: Topics) -> dict[str, None]:
        """Return the remaining topics of a backfill, in order of creation."""
        known = self._topics.get(key)
        if known is None:
            known = self._topics[key] = {}
            for topic in topics:
                if known or topic == backfill.first:
                    known[topic] = None
                    if topic == backfill.last:
                        break
        return known

    def matches(self, key: ClientKey, backfill: Backfill, topic: str) -> Matches:
        """Return the subscribers of one client to a remaining topic."""
        former = self._former.get(key)
        if former is None:
            former = self._former[key] = Interests(self._inner_multi)
            former.add(key, backfill.before)
        return former.match(topic)

    def apply(self, backfills: Mapping[ClientKey, Backfill | None], removed: Iterable[str]) -> None:
        """Drop topics that are done or gone."""
        for key, backfill in backfills.items():
            if backfill is None:
                self._topics.pop(key, None)
                self._former.pop(key, None)
            elif key in self._topics:
                remaining, first = self._topics[key], backfill.first
                for topic in list(takewhile(lambda topic, first=first: topic != first, remaining)):  # type: ignore[misc]
                    del remaining[topic]
        for remaining in self._topics.values():
            for topic in removed:
                remaining.pop(topic, None)
