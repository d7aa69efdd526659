"""Rule behind the advice: number of shards of each parent, route depth, and number of partitions.

One core at a time works on a shard. A worker process that opens a shard for the first time decodes it and counts the
topics held by clients: 0.6 s for 100,000 topics with 10,000 patterns, 5 s for ten times as many topics. On the other
hand, each shard in a micro-batch costs one more call into Python, and a request reaches every shard of its parent. So:

- A parent gets the smallest power of two of shards, up to `MOST_SHARDS`, with at most `TOPICS_PER_SHARD` topics in the
  fullest shard. If most topics share one routing prefix, no number may be enough. The parent then gets the smallest
  number that comes near the best.
- The route depth, one for the whole job, minimizes the bytes of the largest shard of each such parent, at the number of
  shards of an even spread. A deeper one spreads topics more evenly, a shallower one keeps more patterns in one shard.
  Among depths near the best, the fewest copies of patterns win, then the default, then the lowest.
- State and Kafka have one partition per core. Each partition is a task in every micro-batch, so fewer leave cores idle,
  and more cost time even without work.
"""

from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Final, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from streaming.operations.advise.inventory import Holding
from streaming.records.routing import Routing
from streaming.state import ShardDelta, ShardState, append
from streaming.state.client import Client, Subscription
from streaming.storage.journal import Journal

K = TypeVar("K")
V = TypeVar("V")

TOPICS_PER_SHARD = 100_000
"""Largest advisable number of topics in a shard."""

MOST_SHARDS: Final = 64
"""Largest number of shards of a parent."""

SHARD_COUNTS: Final = tuple(1 << power for power in range(MOST_SHARDS.bit_length()))
"""Numbers of shards to choose from."""

DEFAULT_DEPTH: Final = 1
DEPTHS = (DEFAULT_DEPTH, 2, 3, 4, 0)
"""Route depths to choose from, preferred ones first; 0 is the whole name."""

TOLERANCE: Final = 1.1
"""Ratio to the best value up to which a choice counts as equally good."""

_SAMPLE: Final = 1_000
"""Number of topics, and of clients, in the sample whose bytes are counted."""


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
    """Parent at one route depth, with any number of shards; it keeps four bytes for each topic and entry."""

    def __init__(self, holding: Holding, depth: int) -> None:
        self._routing = routing = Routing(depth=depth)
        self._holding = holding
        entries = list(holding.entries())
        routed = [entry.pattern for entry in entries if not routing.may_touch_all(*entry)]
        self._everywhere = len(entries) - len(routed)
        self._topics = self._numbers(holding.topics, len(holding.topics))
        self._patterns = self._numbers(routed, len(routed))

    def placed(self, shards: int) -> Placement:
        """Return the contents of this number of shards."""
        topics = np.bincount(self._topics % shards, minlength=shards)
        patterns = np.bincount(self._patterns % shards, minlength=shards) + self._everywhere
        entries = len(self._patterns) + self._everywhere
        return Placement(self._routing.depth, topics, patterns, entries, self._everywhere)

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


class ParentAdvice(NamedTuple):
    """Advice for one parent, with the resulting contents of its shards.

    Attributes:
        clients: number of subscribed clients.
        candidates: placements to choose from, by depth and number of shards; none for a parent that fits in one shard.
        least_quota: smallest quota of a client; None if no client has a quota.
        prefix: routing prefix with the most topics, and their number; None for small parents.
    """

    name: str
    clients: int
    placement: Placement
    sizes: Sizes
    candidates: tuple[Placement, ...] = ()
    least_quota: int | None = None
    prefix: tuple[str, int] | None = None

    @property
    def topics(self) -> int:
        """Number of topics."""
        return int(self.placement.topics.sum())

    @property
    def largest_bytes(self) -> int:
        """Size of the largest shard, in bytes."""
        return self.placement.largest_bytes(self.sizes)


class Depth(NamedTuple):
    """Outcome of a route depth over all large parents, each with the number of shards of an even spread.

    Attributes:
        skew: worst skew of a parent.
        copies: number of copies of patterns over all shards.
        largest_bytes: total size of each parent's largest shard, in bytes.
    """

    depth: int
    skew: float
    copies: int
    largest_bytes: int


class Advice(NamedTuple):
    """Settings to choose.

    Attributes:
        parents: advice for each parent, in the given order.
        depths: compared route depths, preferred ones first; none if every parent fits in one shard.
    """

    depth: int
    parents: tuple[ParentAdvice, ...]
    depths: tuple[Depth, ...]
    cores: int

    @property
    def sharded(self) -> tuple[ParentAdvice, ...]:
        """Parents with several shards."""
        return tuple(parent for parent in self.parents if parent.placement.shards > 1)

    @property
    def warnings(self) -> list[str]:
        """Remaining problems and side effects, as sentences."""
        return [text for parent in self.parents for text in _warnings(parent)]


def advise(holdings: Mapping[str, Holding], cores: int) -> Advice:
    """Apply the rule.

    Args:
        holdings: contents of each parent.
        cores: number of cores of the job, on all machines together.
    """
    measured = {name: sizes(holding) for name, holding in holdings.items()}
    candidates = {
        name: {depth: _placements(Spread(holding, depth)) for depth in DEPTHS}
        for name, holding in holdings.items()
        if len(holding.topics) > TOPICS_PER_SHARD
    }
    depths = tuple(
        _outcome(depth, {name: _even(found[depth]) for name, found in candidates.items()}, measured)
        for depth in (DEPTHS if candidates else ())
    )
    depth = _choose_depth(depths)
    parents = []
    for name, holding in holdings.items():
        spread, clients = Spread(holding, depth), len(holding.subscriptions.clients)
        parent = ParentAdvice(name, clients, spread.placed(1), measured[name], least_quota=holding.least_quota)
        found = candidates.get(name)
        if found is not None:
            every = tuple(placement for placements in found.values() for placement in placements)
            parent = parent._replace(placement=best(found[depth]), candidates=every, prefix=spread.largest_prefix())
        parents.append(parent)
    return Advice(depth, tuple(parents), depths, cores)


def best(placements: tuple[Placement, ...]) -> Placement:
    """Return the placement with the smallest sufficient number of shards.

    Args:
        placements: placements of a parent at one depth, in ascending order of shards.
    """
    fewest_topics = min(placement.fullest for placement in placements)
    limit = max(TOPICS_PER_SHARD, TOLERANCE * fewest_topics if fewest_topics > TOPICS_PER_SHARD else 0)
    return next(placement for placement in placements if placement.fullest <= limit)


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


def _placements(spread: Spread) -> tuple[Placement, ...]:
    return tuple(map(spread.placed, SHARD_COUNTS))


def _even(placements: tuple[Placement, ...]) -> Placement:
    """Return the placement with the number of shards of an even spread."""
    topics = int(placements[0].topics.sum())
    return next((each for each in placements if topics <= TOPICS_PER_SHARD * each.shards), placements[-1])


def _outcome(depth: int, placements: Mapping[str, Placement], measured: Mapping[str, Sizes]) -> Depth:
    return Depth(
        depth,
        max(placement.skew for placement in placements.values()),
        sum(int(placement.patterns.sum()) for placement in placements.values()),
        sum(placement.largest_bytes(measured[name]) for name, placement in placements.items()),
    )


def _choose_depth(depths: tuple[Depth, ...]) -> int:
    if not depths:
        return DEFAULT_DEPTH
    least = min(found.largest_bytes for found in depths)
    near = [found for found in depths if found.largest_bytes <= TOLERANCE * least]
    return min(near, key=lambda found: found.copies).depth  # the first among equals


def _warnings(parent: ParentAdvice) -> list[str]:
    placement, name = parent.placement, parent.name
    found = []
    if placement.fullest > TOPICS_PER_SHARD and parent.prefix is not None:
        prefix, topics = parent.prefix
        if topics > TOPICS_PER_SHARD:
            found.append(
                f"{name}: {topics / parent.topics:.0%} of the topics ({topics:,}) share {prefix!r}, which decides the "
                "shard, so they stay in one shard at any number of shards"
            )
        else:
            found.append(
                f"{name}: the fullest shard has {placement.fullest:,} topics; more than {MOST_SHARDS} shards are not "
                "advised, since each request reaches all of them: consider several parents"
            )
    if placement.shards > 1 and placement.everywhere:
        found.append(
            f"{name}: {placement.everywhere:,} of {placement.entries:,} patterns have a wildcard in the segments that "
            f"decide the shard, so each of the {placement.shards} shards keeps them"
        )
    if placement.shards > 1 and parent.least_quota is not None:
        found.append(
            f"{name}: the shards divide a client's quota; of the smallest, {parent.least_quota:,}, each grants "
            f"{parent.least_quota // placement.shards:,}, even if others have room"
        )
    return found
