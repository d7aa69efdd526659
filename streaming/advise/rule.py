"""How many shards each parent gets, at which route depth, and over how many partitions.

One core at a time works on a shard, and a worker process that meets one for the first time, after a start for instance,
reads it and counts what clients hold: 0.6 s for 100,000 topics with 10,000 patterns, 5 s for ten times as many topics.
But each shard that a micro-batch touches is one more visit to Python, and a request reaches every shard of its parent.
Hence:

- a parent gets as few shards as leave the fullest one with at most `TOPICS_PER_SHARD` topics, a power of two, and
  `MOST_SHARDS` at most. Where even that many do not, because most topics share what decides their shard, it gets no
  more than help;
- the route depth, one for the whole job, is the one that makes the largest shards of these parents smallest, in bytes,
  with as many shards as an even spread would need. A deeper one spreads topics more evenly; a shallower one leaves more
  patterns with one shard only. Among depths that come near the best, the one with the fewest copies of patterns is
  taken, then the default, then the lowest;
- state and Kafka partitions are one for each core: each is a task in every micro-batch, so fewer leave cores idle, and
  more cost time whether there is work or not.
"""

from collections.abc import Mapping
from typing import NamedTuple

from streaming.advise.inventory import Holding
from streaming.advise.placement import Placement, Sizes, Spread, sizes

TOPICS_PER_SHARD = 100_000
"""How many topics a shard should hold at most."""

MOST_SHARDS = 64
"""How many shards a parent gets at most."""

COUNTS = tuple(1 << power for power in range(MOST_SHARDS.bit_length()))
"""The numbers of shards to choose from."""

DEFAULT_DEPTH = 1
DEPTHS = (DEFAULT_DEPTH, 2, 3, 4, 0)
"""The route depths to choose from, the preferred ones first; 0 is the whole name."""

NEARLY = 1.1
"""What is at most so many times the best is as good."""


class Parent(NamedTuple):
    """What is advised for one parent, and what its shards would then hold.

    Attributes:
        clients: how many ask for something there.
        candidates: the placements among which the rule chose, by depth and number of shards; none for parents that are
            small enough for one shard.
        least_quota: the smallest quota of a client; None when none has any.
        prefix: what decides the shard of the most topics, with how many these are; None for small parents.
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
        """How many topics there are."""
        return int(self.placement.topics.sum())

    @property
    def largest_bytes(self) -> int:
        """The bytes of the largest shard."""
        return self.placement.largest_bytes(self.sizes)


class Depth(NamedTuple):
    """A route depth over all parents that are too large for one shard, each with as many as an even spread would need.

    Attributes:
        skew: the worst one.
        copies: how many copies of patterns all shards keep together.
        largest_bytes: the largest shards of the parents together.
    """

    depth: int
    skew: float
    copies: int
    largest_bytes: int


class Advice(NamedTuple):
    """What to set.

    Attributes:
        parents: all of them, in the order in which they were given.
        depths: those that were compared, preferred ones first; none where no parent needs more than one shard.
    """

    depth: int
    parents: tuple[Parent, ...]
    depths: tuple[Depth, ...]
    cores: int

    @property
    def sharded(self) -> tuple[Parent, ...]:
        """The parents that get several shards."""
        return tuple(parent for parent in self.parents if parent.placement.shards > 1)

    @property
    def warnings(self) -> list[str]:
        """What the advice does not mend, or brings with it, in sentences."""
        return [text for parent in self.parents for text in _warnings(parent)]


def advise(holdings: Mapping[str, Holding], cores: int) -> Advice:
    """Applies the rule.

    Args:
        holdings: what there is, by parent.
        cores: how many the job has, on all machines together.
    """
    large = {name: holding for name, holding in holdings.items() if len(holding.topics) > TOPICS_PER_SHARD}
    measured = {name: sizes(holding) for name, holding in holdings.items()}
    candidates = {
        name: tuple(spread.placed(count) for spread in _spreads(holding) for count in COUNTS)
        for name, holding in large.items()
    }
    depths = tuple(
        _at_depth(depth, {name: _even(_of(depth, found)) for name, found in candidates.items()}, measured)
        for depth in (DEPTHS if large else ())
    )
    depth = _choose(depths)
    parents = []
    for name, holding in holdings.items():
        spread = Spread(holding, depth)
        parent = Parent(
            name, len(holding.asked.clients), spread.placed(1), measured[name], least_quota=holding.least_quota
        )
        if name in large:
            parent = parent._replace(
                placement=best(_of(depth, candidates[name])),
                candidates=candidates[name],
                prefix=spread.largest_prefix(),
            )
        parents.append(parent)
    return Advice(depth, tuple(parents), depths, cores)


def best(placements: tuple[Placement, ...]) -> Placement:
    """The placement of a parent at one depth that has as few shards as serve.

    Args:
        placements: with ever more shards.
    """
    least = min(placement.fullest for placement in placements)
    enough = max(TOPICS_PER_SHARD, NEARLY * least if least > TOPICS_PER_SHARD else 0)
    return next(placement for placement in placements if placement.fullest <= enough)


def _even(placements: tuple[Placement, ...]) -> Placement:
    """The placement of a parent at one depth with as many shards as would do if topics were spread evenly."""
    topics = int(placements[0].topics.sum())
    return next((each for each in placements if topics <= TOPICS_PER_SHARD * each.shards), placements[-1])


def _spreads(holding: Holding) -> list[Spread]:
    return [Spread(holding, depth) for depth in DEPTHS]


def _of(depth: int, placements: tuple[Placement, ...]) -> tuple[Placement, ...]:
    return tuple(placement for placement in placements if placement.depth == depth)


def _at_depth(depth: int, take: Mapping[str, Placement], measured: Mapping[str, Sizes]) -> Depth:
    return Depth(
        depth,
        max(placement.skew for placement in take.values()),
        sum(int(placement.patterns.sum()) for placement in take.values()),
        sum(placement.largest_bytes(measured[name]) for name, placement in take.items()),
    )


def _choose(depths: tuple[Depth, ...]) -> int:
    if not depths:
        return DEFAULT_DEPTH
    least = min(found.largest_bytes for found in depths)
    near = [found for found in depths if found.largest_bytes <= NEARLY * least]
    return min(near, key=lambda found: found.copies).depth  # of equals, the first


def _warnings(parent: Parent) -> list[str]:
    placement, name = parent.placement, parent.name
    found = []
    if placement.fullest > TOPICS_PER_SHARD and parent.prefix is not None:
        prefix, topics = parent.prefix
        if topics > TOPICS_PER_SHARD:
            found.append(
                f"{name}: {topics / parent.topics:.0%} of the topics ({topics:,}) share {prefix!r}, which decides the "
                "shard, so they stay in one however many there are"
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
            f"{name}: {placement.everywhere:,} of {placement.asked:,} patterns have a wildcard in what decides the "
            f"shard, so each of the {placement.shards} shards keeps them"
        )
    if parent.least_quota is not None:
        found.append(
            f"{name}: the shards divide a client's quota; of the smallest, {parent.least_quota:,}, each grants "
            f"{parent.least_quota // placement.shards:,}, and others may have room"
        )
    return found
