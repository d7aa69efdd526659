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
        newest: latest timestamp of each input stream, in the order of `STREAMS`; 0 where nothing was read.
    """

    parent: str
    shard: int
    topics: int
    clients: int
    state_bytes: int
    times: list[int]
    weight: float
    newest: list[int]


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
    newest = [int(rows.timestamps[rows.streams == each].max(initial=0)) for each in range(len(STREAMS))]
    name = "" if parent == COORDINATOR else parent
    return KeyFacts(name, number, *size, times.tolist(), count / max(1, len(times)), newest)
