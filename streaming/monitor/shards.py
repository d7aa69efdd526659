"""Sizes of the shards, as far as micro-batches have visited them."""

from collections import defaultdict
from typing import Final, NamedTuple

import orjson

from streaming.worker.facts import KeyFacts

SHOWN_PARENTS: Final = 20
"""Number of parents, the largest ones, whose shards are shown one by one."""


class ShardSize(NamedTuple):
    """Size of one shard."""

    topics: int
    clients: int
    state_bytes: int


_NOTHING: Final = ShardSize(0, 0, 0)
"""Size of a shard without topics and clients, which is forgotten."""


class ShardSizes:
    """Sizes of all shards that were visited and have topics or clients."""

    def __init__(self) -> None:
        self._shards: defaultdict[str, dict[int, ShardSize]] = defaultdict(dict)
        self._topics: defaultdict[str, int] = defaultdict(int)
        self._coordinator: dict[int, int] = {}
        self.topics = 0
        self.state_bytes = 0

    def follow(self, key: KeyFacts) -> None:
        """Take over the size of a key."""
        if not key.parent:
            self._coordinator[key.shard] = key.clients
            return
        self._resize(key.parent, key.shard, ShardSize(key.topics, key.clients, key.state_bytes))

    def _resize(self, parent: str, shard: int, size: ShardSize) -> None:
        if not (size.topics or size.clients):
            size = _NOTHING
        former = self._shards[parent].pop(shard, _NOTHING)
        self._topics[parent] += size.topics - former.topics
        self.topics += size.topics - former.topics
        self.state_bytes += size.state_bytes - former.state_bytes
        if size is not _NOTHING:
            self._shards[parent][shard] = size
        elif not self._shards[parent]:
            del self._shards[parent], self._topics[parent]

    def dump(self) -> bytes:
        """Return the sizes as JSON, for `load`."""
        shards = [(parent, number, *size) for parent, sizes in self._shards.items() for number, size in sizes.items()]
        return orjson.dumps({"shards": shards, "clients": list(self._coordinator.items())})

    def load(self, data: bytes) -> None:
        """Take over the sizes of a former driver.

        Raises:
            ValueError: it is no JSON of `dump`.
        """
        try:
            found = orjson.loads(data)
            for parent, number, *size in found["shards"]:
                self._resize(parent, number, ShardSize(*size))
            self._coordinator.update((number, count) for number, count in found["clients"])
        except (KeyError, TypeError) as error:
            raise ValueError(f"not the sizes of shards: {error}") from None

    @property
    def parents(self) -> int:
        """Number of parents that were visited and have topics or clients."""
        return len(self._shards)

    @property
    def clients(self) -> int:
        """Number of clients: each of them belongs to one bucket of the coordinator."""
        return sum(self._coordinator.values())

    def largest(self) -> dict[str, dict[int, ShardSize]]:
        """Return the shards of the parents with most topics."""
        names = sorted(self._topics, key=lambda name: (-self._topics[name], name))[:SHOWN_PARENTS]
        return {name: dict(sorted(self._shards[name].items())) for name in names}


def skew(shards: dict[int, ShardSize]) -> float:
    """Return the size of the fullest shard of a parent as a multiple of the mean; 1 where all are equal."""
    topics = [size.topics for size in shards.values()]
    return max(topics) * len(topics) / sum(topics) if sum(topics) else 1.0
