"""Figures of micro-batches: Spark's report of each, the lag of the inputs, and the sizes of the shards."""

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

import orjson

from streaming.kafka.facts import Offsets

if TYPE_CHECKING:
    from streaming.worker.rows import KeyFacts

TOTAL = "triggerExecution"
"""Spark's name for the duration of a whole micro-batch."""

PHASES: Final = {
    TOTAL: "total",
    "latestOffset": "look",
    "getBatch": "plan-source",
    "queryPlanning": "plan",
    "walCommit": "log-offsets",
    "addBatch": "work",
    "commitOffsets": "commit",
}
"""Labels of the phases of a micro-batch, by Spark's names."""

_RATE_SECONDS: Final = 20.0
"""Interval of the average rate of reading, in seconds."""

SHOWN_PARENTS: Final = 20
"""Number of the largest parents that have metrics per shard."""


class BatchReport(NamedTuple):
    """A committed micro-batch.

    Attributes:
        ended: time of its commit, in seconds since the epoch.
        phases: seconds of each phase, by Spark's name.
        counts: number of updates, dead letters and ignored entries, by kind.
        state_bytes: memory of Spark's state stores, in bytes.
    """

    number: int
    records: int
    ended: float
    phases: Mapping[str, float]
    counts: Counter[str]
    keys: "list[KeyFacts]"
    state_keys: int
    state_bytes: int

    @classmethod
    def of(cls, progress: Mapping[str, Any], counts: Counter[str], keys: "list[KeyFacts]") -> Self:
        """Create the report from Spark's progress and counts."""
        phases = {name: milliseconds / 1_000 for name, milliseconds in progress["durationMs"].items()}
        began = datetime.fromisoformat(progress["timestamp"]).timestamp() if "timestamp" in progress else 0.0
        operators = progress.get("stateOperators", [])
        return cls(
            progress["batchId"],
            progress["numInputRows"],
            began + phases.get(TOTAL, 0.0),
            phases,
            counts,
            keys,
            sum(each.get("numRowsTotal", 0) for each in operators),
            sum(each.get("memoryUsedBytes", 0) for each in operators),
        )


class InputLag(NamedTuple):
    """Lag of an input: unread records, and the age of the oldest of them in seconds."""

    records: int
    seconds: float


class LagMeter:
    """Meter of the lag of each input.

    The lag of a partition in seconds is the smaller of two upper bounds: the time since the last look without unread
    records, and the age of the newest record that was read.
    """

    def __init__(self, now: Callable[[], float] = time.time) -> None:
        self._now = now
        self._began = now()
        self._level: dict[tuple[str, int], float] = {}
        self._newest: dict[tuple[str, int], float] = {}
        self._reads: list[tuple[float, dict[str, int]]] = []
        self.lags: dict[str, InputLag] = {}

    @property
    def records(self) -> int:
        """Unread records of all inputs."""
        return sum(lag.records for lag in self.lags.values())

    @property
    def seconds(self) -> float:
        """Largest lag of an input, in seconds."""
        return max((lag.seconds for lag in self.lags.values()), default=0.0)

    @property
    def rate(self) -> float:
        """Records read per second, over the last looks."""
        return sum(self.rates.values())

    @property
    def rates(self) -> dict[str, float]:
        """Records read per second by input, over the last looks; empty before the second look."""
        reads = self._reads
        if not reads:
            return {}
        (began, first), (ended, last) = reads[0], reads[-1]
        seconds = ended - began
        return {topic: max(0, read - first.get(topic, read)) / seconds for topic, read in last.items() if seconds > 0}

    def learn_newest(self, topic: str, partition: int, timestamp: float) -> None:
        """Record the time of a record that was read, in seconds since the epoch.

        The clock of its producer may be fast, and a future time would hide the lag until then.
        """
        place, timestamp = (topic, partition), min(timestamp, self._now())
        self._newest[place] = max(timestamp, self._newest.get(place, timestamp))

    def look(self, ends: Offsets, read: Offsets) -> None:
        """Compare the ends of the inputs with the positions after the last micro-batch."""
        now = self._now()
        self.lags = {topic: self._lag(topic, offsets, read.get(topic, {}), now) for topic, offsets in ends.items()}
        totals = {topic: sum(offsets.values()) for topic, offsets in read.items()}
        self._reads = [*(each for each in self._reads if now - each[0] <= _RATE_SECONDS), (now, totals)]

    def _lag(self, topic: str, ends: Mapping[int, int], read: Mapping[int, int], now: float) -> InputLag:
        records, seconds = 0, 0.0
        for number, end in ends.items():
            place, unread = (topic, number), max(0, end - read.get(number, 0))
            if not unread:
                self._level[place] = now
                continue
            since = [times[place] for times in (self._level, self._newest) if place in times]
            seconds = max(seconds, now - max(since, default=self._began))
            records += unread
        return InputLag(records, seconds)


class ShardSize(NamedTuple):
    """Size of a shard."""

    topics: int
    clients: int
    state_bytes: int


_NOTHING: Final = ShardSize(0, 0, 0)
"""Size of a shard without topics and clients. Such shards are removed."""


class ShardSizes:
    """Sizes of all processed shards with topics or clients."""

    def __init__(self) -> None:
        self._shards: defaultdict[str, dict[int, ShardSize]] = defaultdict(dict)
        self._topics: defaultdict[str, int] = defaultdict(int)
        self._coordinator: dict[int, int] = {}
        self.topics = 0
        self.state_bytes = 0

    def follow(self, key: "KeyFacts") -> None:
        """Update the size of a key."""
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
        """Encode the sizes as JSON, for `load`."""
        shards = [(parent, number, *size) for parent, sizes in self._shards.items() for number, size in sizes.items()]
        return orjson.dumps({"shards": shards, "clients": list(self._coordinator.items())})

    def load(self, data: bytes) -> None:
        """Load the sizes of a former driver; raise `ValueError` if they are not from `dump`."""
        try:
            found = orjson.loads(data)
            for parent, number, *size in found["shards"]:
                self._resize(parent, number, ShardSize(*size))
            self._coordinator.update((number, count) for number, count in found["clients"])
        except (KeyError, TypeError) as error:
            raise ValueError(f"invalid sizes of shards: {error}") from None

    @property
    def parents(self) -> int:
        """Number of processed parents with topics or clients."""
        return len(self._shards)

    @property
    def clients(self) -> int:
        """Number of clients. Each belongs to one key of the coordinator."""
        return sum(self._coordinator.values())

    def largest(self) -> dict[str, dict[int, ShardSize]]:
        """Return the shards of the parents with the most topics."""
        topics = dict(self._topics)  # a micro-batch may remove a parent meanwhile: its look-up would add it again
        names = sorted(topics, key=lambda name: (-topics[name], name))[:SHOWN_PARENTS]
        return {name: dict(sorted(self._shards.get(name, {}).items())) for name in names}


def skew(shards: dict[int, ShardSize]) -> float:
    """Return the size of the largest shard of a parent as a multiple of the mean; 1 if all are equal."""
    topics = [size.topics for size in shards.values()]
    return max(topics) * len(topics) / sum(topics) if sum(topics) else 1.0
