"""The rule behind the advice: number of shards of each parent, route depth, and number of partitions.

One core at a time works on a shard. A worker process that meets a shard for the first time, after a start for instance,
decodes it and counts the topics held by clients: 0.6 s for 100,000 topics with 10,000 patterns, 5 s for ten times as
many topics. Yet each shard in a micro-batch costs one more call into Python, and a request reaches every shard of its
parent. Hence:

- the number of shards of a parent is the smallest power of two, up to `MOST_SHARDS`, that leaves the fullest shard with
  at most `TOPICS_PER_SHARD` topics. If most topics share one routing prefix, even `MOST_SHARDS` may not be enough: the
  parent then gets the smallest number of shards that comes near the best;
- the route depth, one for the whole job, is the one with the smallest largest shards of these parents, in bytes, at the
  numbers of shards that an even spread would need. A deeper one spreads topics more evenly; a shallower one leaves more
  patterns in a single shard. Among depths near the best, the fewest copies of patterns win, then the default, then the
  lowest;
- state and Kafka have one partition for each core: each partition is a task in every micro-batch, so fewer leave cores
  idle, and more cost time even without work.
"""

from collections.abc import Mapping
from typing import NamedTuple

from streaming.advise.inventory import Holding
from streaming.advise.placement import Placement, Sizes, Spread, sizes

TOPICS_PER_SHARD = 100_000
"""Largest advisable number of topics in a shard."""

MOST_SHARDS = 64
"""Largest number of shards of a parent."""

SHARD_COUNTS = tuple(1 << power for power in range(MOST_SHARDS.bit_length()))
"""Numbers of shards to choose from."""

DEFAULT_DEPTH = 1
DEPTHS = (DEFAULT_DEPTH, 2, 3, 4, 0)
"""Route depths to choose from, preferred ones first; 0 is the whole name."""

TOLERANCE = 1.1
"""Ratio to the best value up to which a choice counts as equally good."""


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
    large = {name: holding for name, holding in holdings.items() if len(holding.topics) > TOPICS_PER_SHARD}
    measured = {name: sizes(holding) for name, holding in holdings.items()}
    candidates = {
        name: tuple(spread.placed(count) for spread in _spreads(holding) for count in SHARD_COUNTS)
        for name, holding in large.items()
    }
    depths = tuple(
        _outcome(depth, {name: _even(_placements_at(depth, found)) for name, found in candidates.items()}, measured)
        for depth in (DEPTHS if large else ())
    )
    depth = _choose_depth(depths)
    parents = []
    for name, holding in holdings.items():
        spread = Spread(holding, depth)
        parent = ParentAdvice(
            name, len(holding.subscriptions.clients), spread.placed(1), measured[name], least_quota=holding.least_quota
        )
        if name in large:
            parent = parent._replace(
                placement=best(_placements_at(depth, candidates[name])),
                candidates=candidates[name],
                prefix=spread.largest_prefix(),
            )
        parents.append(parent)
    return Advice(depth, tuple(parents), depths, cores)


def best(placements: tuple[Placement, ...]) -> Placement:
    """Return the placement of a parent with the smallest sufficient number of shards.

    Args:
        placements: placements at one depth, with ever more shards.
    """
    fewest_topics = min(placement.fullest for placement in placements)
    limit = max(TOPICS_PER_SHARD, TOLERANCE * fewest_topics if fewest_topics > TOPICS_PER_SHARD else 0)
    return next(placement for placement in placements if placement.fullest <= limit)


def _even(placements: tuple[Placement, ...]) -> Placement:
    """Return the placement of a parent at one depth with the number of shards of an even spread."""
    topics = int(placements[0].topics.sum())
    return next((each for each in placements if topics <= TOPICS_PER_SHARD * each.shards), placements[-1])


def _spreads(holding: Holding) -> list[Spread]:
    return [Spread(holding, depth) for depth in DEPTHS]


def _placements_at(depth: int, placements: tuple[Placement, ...]) -> tuple[Placement, ...]:
    return tuple(placement for placement in placements if placement.depth == depth)


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
    return min(near, key=lambda found: found.copies).depth  # of equals, the first


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
    if placement.shards == 1:
        return found
    if placement.everywhere:
        found.append(
            f"{name}: {placement.everywhere:,} of {placement.entries:,} patterns have a wildcard in what decides the "
            f"shard, so each of the {placement.shards} shards keeps them"
        )
    if parent.least_quota is not None:
        found.append(
            f"{name}: the shards divide a client's quota; of the smallest, {parent.least_quota:,}, each grants "
            f"{parent.least_quota // placement.shards:,}, and others may have room"
        )
    return found
