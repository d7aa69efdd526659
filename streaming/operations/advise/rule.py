"""Rule behind the advice: number of shards of each parent, route depth, and number of partitions.

docs/configuration.md has the reasons, with figures.

- A parent gets the smallest power of two of shards, up to `MOST_SHARDS`, with at most `TOPICS_PER_SHARD` topics in the
  fullest shard. If most topics share one routing prefix, no number may be enough. The parent then gets the smallest
  number that comes near the best.
- The route depth, one for the whole job, minimizes the bytes of the largest shard of each such parent, at the number of
  shards of an even spread. Among depths near the best, the fewest copies of patterns win, then the default, then the
  lowest.
- State and Kafka have one partition per core: each is a task in every micro-batch, even without work.
"""

from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Final, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from streaming.operations.advise.inventory import Holding
from streaming.printable import counted
from streaming.records.routing import Routing
from streaming.state import ShardDelta, ShardState, append
from streaming.state.client import Client
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
    """Sizes of the state in bytes: average topic, average entry, and the fixed parts of each shard, such as clients."""

    topic: float
    pattern: float
    fixed: float


class Placement(NamedTuple):
    """Contents of the shards of a parent.

    Attributes:
        topics: number of topics, by shard.
        patterns: number of entries of clients' sets, by shard; an entry of several shards counts in each.
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
        routed = [entry[0] for entry in entries if not routing.may_touch_all(*entry)]
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
        copies: number of copies of patterns over all shards.
        largest_bytes: total size of each parent's largest shard, in bytes.
    """

    depth: int
    skew: float
    copies: int
    largest_bytes: int


class Advice(NamedTuple):
    """Settings to choose; no depths were compared if every parent fits in one shard."""

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
    """Apply the rule to the contents of each parent, for a job with this number of cores on all machines together."""
    measured = {name: sizes(holding) for name, holding in holdings.items()}
    candidates = {
        name: {depth: tuple(map(Spread(holding, depth).placed, SHARD_COUNTS)) for depth in DEPTHS}
        for name, holding in holdings.items()
        if len(holding.topics) > TOPICS_PER_SHARD
    }
    depths = _compared(candidates, measured) if candidates else ()
    depth = DEFAULT_DEPTH
    if depths:
        least = min(found.largest_bytes for found in depths)
        near = [found for found in depths if found.largest_bytes <= TOLERANCE * least]
        depth = min(near, key=lambda found: found.copies).depth  # the first among equals
    parents = []
    for name, holding in holdings.items():
        spread, clients = Spread(holding, depth), len(holding.subscriptions.clients)
        parent = ParentAdvice(name, clients, spread.placed(1), measured[name], least_quota=holding.least_quota)
        if name in candidates:
            every = tuple(placement for placements in candidates[name].values() for placement in placements)
            chosen = best(candidates[name][depth])
            parent = parent._replace(placement=chosen, candidates=every, prefix=spread.largest_prefix())
        parents.append(parent)
    return Advice(depth, tuple(parents), depths, cores)


def _compared(
    candidates: Mapping[str, Mapping[int, tuple[Placement, ...]]], measured: Mapping[str, Sizes]
) -> tuple[Depth, ...]:
    """Return the outcome of each depth, with the number of shards of an even spread."""
    outcomes = []
    for depth in DEPTHS:
        even = {}
        for name, found in candidates.items():
            topics = int(found[depth][0].topics.sum())
            fitting = (each for each in found[depth] if topics <= TOPICS_PER_SHARD * each.shards)
            even[name] = next(fitting, found[depth][-1])
        outcomes.append(
            Depth(
                depth,
                max(placement.skew for placement in even.values()),
                sum(int(placement.patterns.sum()) for placement in even.values()),
                sum(placement.largest_bytes(measured[name]) for name, placement in even.items()),
            )
        )
    return tuple(outcomes)


def best(placements: tuple[Placement, ...]) -> Placement:
    """Return the smallest sufficient placement of a parent at one depth, given in ascending order of shards."""
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
    clients.clients.update(_sample(subscriptions.clients))
    bare.clients.update(
        (key, Client(*(each._replace(blocks=()) for each in client))) for key, client in clients.clients.items()
    )
    for state in (clients, bare):
        state.last_requests.update(
            (key, last) for key in state.clients if (last := subscriptions.last_requests.get(key)) is not None
        )
    entries = sum(1 for _ in Holding({}, clients).entries())
    fixed = _bytes(common)
    return Sizes(
        _bytes(topics) / max(1, len(topics.topics)),
        (_bytes(clients) - _bytes(bare)) / max(1, entries),
        fixed + (_bytes(bare) - fixed) * len(subscriptions.clients) / max(1, len(clients.clients)),
    )


def _bytes(state: ShardState) -> int:
    return len(append(Journal(), state, ShardDelta()).tail)


def _sample(items: Mapping[K, V]) -> dict[K, V]:
    return dict(islice(items.items(), 0, None, max(1, len(items) // _SAMPLE)))


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
            f"{name}: wildcards in the segments that decide the shard are in {placement.everywhere:,} of "
            f"{counted(placement.entries, 'pattern')}, so each of the {placement.shards} shards keeps them"
        )
    if placement.shards > 1 and parent.least_quota is not None:
        found.append(
            f"{name}: the shards divide a client's quota; of the smallest, {parent.least_quota:,}, each grants "
            f"{parent.least_quota // placement.shards:,}, even if others have room"
        )
    return found
