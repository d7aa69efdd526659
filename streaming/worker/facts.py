"""Facts about a key after a micro-batch, for the metrics of the driver."""

from hashlib import blake2b
from typing import Final, NamedTuple

import numpy as np

from streaming.coordinator import COORDINATOR
from streaming.worker.rows import CLOCK, InputRows

LABEL_CHARACTERS: Final = 128
"""Greatest length of the name of a parent in metrics."""

_TIMES: Final = 16
"""Largest number of timestamps that a key reports."""


class KeyFacts(NamedTuple):
    """A key after a micro-batch, and the events that it has applied.

    Attributes:
        parent: the parent topic as `label` returns it; empty for a bucket of the coordinator.
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
        rows: its input rows, in the order in which they are read.
    """
    times = rows.timestamps[rows.streams != CLOCK]
    count = len(times)
    if count > _TIMES:
        times = np.sort(times)[(2 * np.arange(_TIMES) + 1) * count // (2 * _TIMES)]
    name = "" if parent == COORDINATOR else label(parent)
    return KeyFacts(name, number, *size, times.tolist(), count / max(1, len(times)), _newest(rows))


def label(name: str) -> str:
    """Return a name in the length that metrics show; a long one ends in its digest."""
    if len(name) <= LABEL_CHARACTERS:
        return name
    digest = blake2b(name.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()
    return f"{name[: LABEL_CHARACTERS - len(digest) - 3]}...{digest}"


def _newest(rows: InputRows) -> list[tuple[int, int, int]]:
    """Return the latest timestamp of each stream and partition among the rows, which are ordered by both."""
    streams, partitions, times = rows.streams, rows.partitions, rows.timestamps
    if streams[0] == streams[-1] and partitions[0] == partitions[-1]:  # nearly always: a parent's events are together
        return [(int(streams[0]), int(partitions[0]), int(times.max()))]
    changes = (streams[1:] != streams[:-1]) | (partitions[1:] != partitions[:-1])
    begins = np.concatenate(([0], np.flatnonzero(changes) + 1))
    newest = np.maximum.reduceat(times, begins)
    return list(zip(streams[begins].tolist(), partitions[begins].tolist(), newest.tolist(), strict=True))
