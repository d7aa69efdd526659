"""A micro-batch as Spark's progress reports it."""

from collections import Counter
from collections.abc import Mapping
from datetime import datetime
from typing import Any, NamedTuple, Self

from streaming.kafka.facts import Offsets
from streaming.worker.facts import KeyFacts

TOTAL = "triggerExecution"
"""Name under which Spark reports the time of a whole micro-batch."""


class BatchReport(NamedTuple):
    """A micro-batch that was committed.

    Attributes:
        number: its number.
        records: number of records that it has read.
        ended: time at which it was committed, in seconds since the epoch.
        phases: seconds of each phase, by Spark's name.
        read: positions up to which it has read the inputs.
        counts: number of updates, dead letters and ignored entries, by kind.
        keys: facts of the keys that it has visited.
        state_keys: number of keys that have a state.
        state_bytes: memory of Spark's state stores, in bytes.
    """

    number: int
    records: int
    ended: float
    phases: Mapping[str, float]
    read: Offsets
    counts: Counter[str]
    keys: list[KeyFacts]
    state_keys: int
    state_bytes: int

    @classmethod
    def of(cls, progress: Mapping[str, Any], counts: Counter[str], keys: list[KeyFacts]) -> Self:
        """Return the report of Spark's progress, with what was counted in it."""
        phases = {name: milliseconds / 1_000 for name, milliseconds in progress["durationMs"].items()}
        began = datetime.fromisoformat(progress["timestamp"]).timestamp() if "timestamp" in progress else 0.0
        operators = progress.get("stateOperators", [])
        sources = progress.get("sources", [])
        return cls(
            progress["batchId"],
            progress["numInputRows"],
            began + phases.get(TOTAL, 0.0),
            phases,
            _positions(sources[0].get("endOffset") if sources else None),
            counts,
            keys,
            sum(each.get("numRowsTotal", 0) for each in operators),
            sum(each.get("memoryUsedBytes", 0) for each in operators),
        )


def _positions(offsets: Mapping[str, Mapping[str, int]] | None) -> Offsets:
    return {topic: {int(number): end for number, end in ends.items()} for topic, ends in (offsets or {}).items()}
