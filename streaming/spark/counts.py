"""Counts of each micro-batch: they travel from the keys to the driver in Spark's progress.

A key ends its output with a row of counts, as JSON. The sink reports these rows as a metric, and the driver adds them
up. Spark would plan `DataFrame.observe` in each micro-batch.
"""

from collections import Counter
from collections.abc import Mapping
from typing import Any

import orjson

from streaming.worker.output import FACTS, OutputKind
from streaming.worker.rows import KeyFacts


def total(progress: Mapping[str, Any]) -> tuple[Counter[str], list[KeyFacts]]:
    """Add up the counts in Spark's progress of a micro-batch, and return them with the facts of the keys.

    Counts are output records by kind, and ignored entries by reason.
    """
    summed: Counter[str] = Counter()
    keys = []
    for counts in orjson.loads(progress.get("sink", {}).get("metrics", {}).get("counts", "[]")):
        facts = counts.pop(FACTS, None)
        if facts is not None:
            keys.append(KeyFacts(*facts))
        summed.update(counts)
    return summed, keys


def suspects(counts: Counter[str]) -> list[tuple[str, str, str]]:
    """Remove the literal groups with an apparent pattern from counts; return parent, group and entry of each."""
    return [tuple(each) for each in _taken(counts, OutputKind.SUSPECT)]


def failures(counts: Counter[str]) -> list[tuple[str, int, int, int, str]]:
    """Remove the entries that raised an exception from counts.

    Returns:
        Kafka topic, partition, offset, position in the record, and message of each, in the order of their places.
    """
    return sorted(tuple(each) for each in _taken(counts, OutputKind.FAILURE))


def _taken(counts: Counter[str], start: str) -> list[Any]:
    """Remove the kinds with a prefix from counts; return the JSON after it."""
    kinds = [kind for kind in counts if kind.startswith(start)]
    for kind in kinds:
        del counts[kind]
    return [orjson.loads(kind.removeprefix(start)) for kind in kinds]
