"""Facts about a key after a micro-batch, for the metrics of the driver."""

from typing import Final, NamedTuple

import numpy as np

from streaming.coordinator import COORDINATOR
from streaming.worker.rows import CLOCK, STREAMS, InputRows

_TIMES: Final = 64
"""Largest number of timestamps that a key reports."""


class KeyFacts(NamedTuple):
    """A key after a micro-batch, and the events that it has applied.

    Attributes:
        parent: the parent topic; empty for a bucket of the coordinator.
        shard: number of the shard, or of the bucket.
        topics: number of lite topics of the shard.
        clients: number of clients on the shard; in a bucket of the coordinator, of those that it knows.
        state_bytes: size of its journal, parts included.
        times: timestamps of the events, in milliseconds since the epoch: all, or a fair choice of them.
        weight: number of events for which each of these times stands.
        newest: latest timestamp of each input partition that was read: number of the stream, partition, timestamp.
    """

    parent: str
    shard: int
    topics: int
    clients: int
    state_bytes: int
    times: list[int]
    weight: float
    newest: list[tuple[int, int, int]]


def facts(parent: str, number: int, size: tuple[int, int, int], rows: InputRows) -> KeyFacts:
    """Return the facts about a key.

    Args:
        parent: the parent topic.
        number: the shard.
        size: numbers of its topics, of its clients, and of its journal's bytes.
        rows: its input rows.
    """
    times = rows.timestamps[rows.streams != CLOCK]
    count = len(times)
    if count > _TIMES:
        middles = (np.arange(_TIMES) + 0.5) * count / _TIMES
        times = np.sort(times)[middles.astype(np.int64)]
    name = "" if parent == COORDINATOR else parent
    return KeyFacts(name, number, *size, times.tolist(), count / max(1, len(times)), _newest(rows))


def _newest(rows: InputRows) -> list[tuple[int, int, int]]:
    """Return the latest timestamp of each stream and partition among the rows."""
    found = []
    for stream in range(len(STREAMS)):
        of_stream = rows.streams == stream
        partitions, times = rows.partitions[of_stream], rows.timestamps[of_stream]
        if not len(partitions):
            continue
        # Nearly always one: events are keyed by their parent or group.
        several = partitions.min() != partitions.max()
        for partition in np.unique(partitions).tolist() if several else [int(partitions[0])]:
            newest = times[partitions == partition] if several else times
            found.append((stream, partition, int(newest.max())))
    return found
