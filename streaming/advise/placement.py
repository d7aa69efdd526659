"""Contents of the shards of a parent at any route depth and number of shards, in topics, patterns and bytes."""

from collections.abc import Iterable, Mapping
from itertools import islice
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from streaming.advise.inventory import Holding
from streaming.events.routing import Routing
from streaming.state import ShardDelta, ShardState, append
from streaming.storage.journal import Journal
from streaming.subscription.client import Client, Subscription

K = TypeVar("K")
V = TypeVar("V")

_SAMPLE = 1_000
"""Number of topics, and of clients, in the sample for the count of bytes; the rest is taken to be alike."""


class Sizes(NamedTuple):
    """Sizes of the state, in bytes.

    Attributes:
        topic: average size of a topic.
        pattern: average size of an entry of a client's set.
        fixed: size of the parts in every shard: groups, clients and their last requests.
    """

    topic: float
    pattern: float
    fixed: float


class Placement(NamedTuple):
    """Contents of the shards of a parent.

    Attributes:
        depth: the route depth.
        topics: number of topics, by shard.
        patterns: number of entries of clients' sets, by shard; an entry of several shards counts in each.
        entries: number of distinct entries.
        everywhere: number of entries in every shard.
    """

    depth: int
    topics: NDArray[np.int64]
    patterns: NDArray[np.int64]
    entries: int
    everywhere: int

    @property
    def shards(self) -> int:
        """Number of shards."""
        return len(self.topics)

    @property
    def fullest(self) -> int:
        """Number of topics in the fullest shard."""
        return int(self.topics.max())

    @property
    def skew(self) -> float:
        """Ratio of the topics in the fullest shard to the mean; 1 is even."""
        total = int(self.topics.sum())
        return self.fullest * self.shards / total if total else 1.0

    @property
    def replicas(self) -> float:
        """Average number of shards of an entry; 1 is best."""
        return int(self.patterns.sum()) / self.entries if self.entries else 1.0

    def largest_bytes(self, sizes: Sizes) -> int:
        """Return the size of the largest shard, in bytes."""
        return round(float((self.topics * sizes.topic + self.patterns * sizes.pattern).max()) + sizes.fixed)


class Spread:
    """A parent at one route depth, with any number of shards.

    It keeps one number for each topic and each entry; a million of them take 4 MB.
    """

    def __init__(self, holding: Holding, depth: int) -> None:
        self._routing = routing = Routing(depth=depth)
        self._holding = holding
        entries = list(holding.entries())
        routed = [entry.pattern for entry in entries if not routing.may_touch_all(*entry)]
        self._everywhere = len(entries) - len(routed)
        self._topics = self._numbers(holding.topics, len(holding.topics))
        self._patterns = self._numbers(routed, len(routed))

    def placed(self, shards: int) -> Placement:
        """Return the contents of the shards, given their number."""
        topics = np.bincount(self._topics % shards, minlength=shards)
        patterns = np.bincount(self._patterns % shards, minlength=shards)
        everywhere = self._everywhere
        entries = len(self._patterns) + everywhere
        return Placement(self._routing.depth, topics, patterns + everywhere, entries, everywhere)

    def largest_prefix(self) -> tuple[str, int]:
        """Return the routing prefix with the most topics, and their number; no number of shards splits them.

        The parent must have a topic.
        """
        _, first, counts = np.unique(self._topics, return_index=True, return_counts=True)
        most = int(counts.argmax())
        topic = next(islice(self._holding.topics, int(first[most]), None))
        return self._routing.prefix_of(topic), int(counts[most])

    def _numbers(self, texts: Iterable[str], count: int) -> NDArray[np.uint32]:
        return np.fromiter(map(self._routing.number_of, texts), np.uint32, count)


def sizes(holding: Holding) -> Sizes:
    """Measure the sizes of a parent's state on a sample, encoded as by the job."""
    topics, common, clients, bare = (ShardState() for _ in range(4))
    subscriptions = holding.subscriptions
    topics.topics = _sample(holding.topics)
    for state in (common, clients, bare):
        state.groups, state.selectors = subscriptions.groups, subscriptions.selectors
    clients.clients = _sample(subscriptions.clients)
    bare.clients = {key: Client(*map(_without_entries, client)) for key, client in clients.clients.items()}
    clients.last_requests = bare.last_requests = {
        key: subscriptions.last_requests[key] for key in clients.clients if key in subscriptions.last_requests
    }
    entries = sum(1 for _ in Holding({}, clients).entries())
    fixed = _bytes(common)
    return Sizes(
        _bytes(topics) / max(1, len(topics.topics)),
        (_bytes(clients) - _bytes(bare)) / max(1, entries),
        fixed + (_bytes(bare) - fixed) * len(subscriptions.clients) / max(1, len(clients.clients)),
    )


def _bytes(state: ShardState) -> int:
    """Return the size of a state as one journal entry, in bytes."""
    return len(append(Journal(), state, ShardDelta()).tail)


def _without_entries(subscription: Subscription) -> Subscription:
    return subscription._replace(blocks=())


def _sample(items: Mapping[K, V]) -> dict[K, V]:
    """Return a sample of the items, evenly spaced."""
    return dict(islice(items.items(), 0, None, max(1, len(items) // _SAMPLE)))
