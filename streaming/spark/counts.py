"""Counts of each micro-batch: they travel from the keys to the driver in Spark's progress.

A key ends its output with a row of counts, as JSON. The query observes these rows on their way to the sink, which drops
them; the driver adds them up.
"""

from collections import Counter
from collections.abc import Mapping
from typing import Any

import orjson
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - its usual name

from streaming.worker.output import FACTS, OutputKind
from streaming.worker.rows import KeyFacts

OBSERVATION = "reexpand"
"""Name of the observation in Spark's progress."""

_COLUMN = "counts"


def observe(expanded: DataFrame) -> DataFrame:
    """Return the same output rows, and let Spark's progress report their counts."""
    return expanded.observe(OBSERVATION, column())


def column() -> Column:
    """Return the rows of counts as one column, since Spark plans each observed column in each micro-batch."""
    return F.collect_list(F.when(F.col("topic").isNull(), F.col("value").cast("string"))).alias(_COLUMN)


def total(observed: Mapping[str, Any]) -> tuple[Counter[str], list[KeyFacts]]:
    """Add up the observed counts, and return them with the facts of the keys.

    Counts are output records by kind, and ignored entries by reason.
    """
    summed: Counter[str] = Counter()
    keys = []
    for counts_of_key in observed.get(_COLUMN) or ():
        counts = orjson.loads(counts_of_key)
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
