"""Which shard of a parent would hold what, and how many bytes that is."""

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
"""Of how many topics, and of how many clients, the bytes are counted; the others are taken to be like them."""


class Sizes(NamedTuple):
    """Bytes of state.

    Attributes:
        topic: of a topic, on average.
        pattern: of an entry of a client's set, on average.
        fixed: of what every shard has: groups, clients, and when they asked.
    """

    topic: float
    pattern: float
    fixed: float


class Placement(NamedTuple):
    """What each shard of a parent would hold.

    Attributes:
        depth: the route depth.
        topics: how many topics, by shard.
        patterns: how many entries of clients' sets, by shard; one that can touch several shards counts in each.
        asked: how many such entries there are.
        everywhere: how many of them every shard keeps.
    """

    depth: int
    topics: NDArray[np.int64]
    patterns: NDArray[np.int64]
    asked: int
    everywhere: int

    @property
    def shards(self) -> int:
        """How many shards there are."""
        return len(self.topics)

    @property
    def fullest(self) -> int:
        """How many topics the fullest shard has."""
        return int(self.topics.max())

    @property
    def skew(self) -> float:
        """How many times more topics the fullest shard has than the mean; 1 is even."""
        total = int(self.topics.sum())
        return self.fullest * self.shards / total if total else 1.0

    @property
    def replicas(self) -> float:
        """How many shards keep an entry, on average; 1 is the best."""
        return int(self.patterns.sum()) / self.asked if self.asked else 1.0

    def largest_bytes(self, sizes: Sizes) -> int:
        """The bytes of the largest shard."""
        return round(float((self.topics * sizes.topic + self.patterns * sizes.pattern).max()) + sizes.fixed)


class Spread:
    """A parent at one route depth, with any number of shards.

    One number for each topic and each entry is kept: a million of them take 4 MB.
    """

    def __init__(self, holding: Holding, depth: int) -> None:
        self._routing = routing = Routing(depth=depth)
        self._holding = holding
        entries = list(holding.entries())
        some = [entry.pattern for entry in entries if not routing.may_touch_all(*entry)]
        self._everywhere = len(entries) - len(some)
        self._topics = self._numbers(holding.topics, len(holding.topics))
        self._patterns = self._numbers(some, len(some))

    def placed(self, shards: int) -> Placement:
        """What the shards would hold if there were so many."""
        topics = np.bincount(self._topics % shards, minlength=shards)
        patterns = np.bincount(self._patterns % shards, minlength=shards)
        everywhere = self._everywhere
        asked = len(self._patterns) + everywhere
        return Placement(self._routing.depth, topics, patterns + everywhere, asked, everywhere)

    def largest_prefix(self) -> tuple[str, int]:
        """What of their names decides the shard of the most topics, and how many topics that are: no shards part them.

        There must be a topic.
        """
        _, first, counts = np.unique(self._topics, return_index=True, return_counts=True)
        most = int(counts.argmax())
        topic = next(islice(self._holding.topics, int(first[most]), None))
        return self._routing.prefix_of(topic), int(counts[most])

    def _numbers(self, texts: Iterable[str], count: int) -> NDArray[np.uint32]:
        return np.fromiter(map(self._routing.number_of, texts), np.uint32, count)


def sizes(holding: Holding) -> Sizes:
    """The bytes that what is under a parent takes in a shard, counted on a sample that is encoded as the job does."""
    topics, common, clients, bare = (ShardState() for _ in range(4))
    asked = holding.asked
    topics.topics = _sample(holding.topics)
    for state in (common, clients, bare):
        state.groups, state.selectors = asked.groups, asked.selectors
    clients.clients = _sample(asked.clients)
    bare.clients = {key: Client(*map(_without_entries, client)) for key, client in clients.clients.items()}
    clients.last_requests = bare.last_requests = {
        key: asked.last_requests[key] for key in clients.clients if key in asked.last_requests
    }
    entries = sum(1 for _ in Holding({}, clients).entries())
    fixed = _bytes(common)
    return Sizes(
        _bytes(topics) / max(1, len(topics.topics)),
        (_bytes(clients) - _bytes(bare)) / max(1, entries),
        fixed + (_bytes(bare) - fixed) * len(asked.clients) / max(1, len(clients.clients)),
    )


def _bytes(state: ShardState) -> int:
    """How many bytes of journal a state is as one change from nothing."""
    return len(append(Journal(), state, ShardDelta()).tail)


def _without_entries(subscription: Subscription) -> Subscription:
    return subscription._replace(blocks=())


def _sample(items: Mapping[K, V]) -> dict[K, V]:
    """Some of the items, evenly spaced."""
    return dict(islice(items.items(), 0, None, max(1, len(items) // _SAMPLE)))
