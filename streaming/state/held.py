"""Number of topics that each client may hold by all rules but its quota."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Protocol

from streaming.events.model import TopicMetadata
from streaming.subscription.interests import Interests
from streaming.subscription.subscribers import ClientKey, Matches

_CHUNK_TOPICS = 16_384
"""Number of topics that are counted at once."""


class Countable(Protocol):
    """The part of a `ShardState` that counting needs."""

    topics: dict[str, TopicMetadata]

    @property
    def is_unrestricted(self) -> bool:
        """True if every matching client receives a topic."""

    @property
    def interests(self) -> Interests:
        """Index of the interests of all clients."""

    def subscribers(self, topic: str, matches: Matches | None = None) -> Matches:
        """Return the subscribers of a stored topic by all rules but the quotas."""

    def rows_unordered(self, key: ClientKey) -> Iterator[tuple[str, Matches]]:
        """Yield the topics that a client receives."""


class HeldCounts:
    """Counts by client, made for all clients when first asked, since a micro-batch of new topics concerns many.

    The state is an argument and not kept: a cycle would outlive its use while the garbage collector rests.
    """

    def __init__(self, columnar_min_topics: float) -> None:
        self._columnar_min_topics = columnar_min_topics
        self._counts: dict[ClientKey, int | None] | None = None  # None for a client that is to be counted

    @property
    def are_kept(self) -> bool:
        """True if counts exist that have to be kept up to date."""
        return self._counts is not None

    def of(self, key: ClientKey, state: Countable) -> int:
        """Return the count of a client."""
        if self._counts is None:
            self._counts = {}
            names = list(state.topics)
            for start in range(0, len(names), _CHUNK_TOPICS):
                self.count(names[start : start + _CHUNK_TOPICS], 1, state)
        found = self._counts.get(key, 0)
        if found is None:
            found = self._counts[key] = sum(1 for _ in state.rows_unordered(key))
        return found

    def count(self, topics: Sequence[str], step: int, state: Countable) -> None:
        """Count stored topics in (`step` 1) or out (-1)."""
        if self._counts is None:
            return
        counts: Mapping[ClientKey, int]
        if state.is_unrestricted and len(topics) >= self._columnar_min_topics:
            counts = state.interests.pairs(topics).topics_by_client()
        else:
            found = zip(topics, state.interests.match_all(topics), strict=True)
            counts = Counter(chain.from_iterable(_clients(state.subscribers(topic, all_)) for topic, all_ in found))
        for client, count in counts.items():
            known = self._counts.get(client, 0)
            if known is not None:
                self._counts[client] = known + step * count

    def update(self, counts: Mapping[ClientKey, int | None]) -> None:
        """Replace counts; None has a client counted when it is asked for."""
        if self._counts is not None:
            self._counts.update(counts)

    def drop(self) -> None:
        """Forget the counts, which nobody keeps up to date any more."""
        self._counts = None


def _clients(subscribers: Matches) -> set[ClientKey]:
    return {subscriber.client for subscriber in subscribers}
