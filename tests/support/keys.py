"""Keys of patterns, for tests of `PatternKeys`."""

from collections.abc import Sequence

import numpy as np

from matcher.batch.pattern_keys import PatternKeys
from matcher.batch.segments import Ints
from matcher.batch.shapes import shape_of
from matcher.dialects import Dialect
from matcher.pattern import Pattern


def match_by_keys(patterns: Sequence[Pattern], topics: Sequence[str], dialect: Dialect) -> list[tuple[int, int]]:
    """Return (number of the topic, number of the pattern) for each match of a pattern that has a key, sorted."""
    shaped = [(row, pattern.text, shape) for row, pattern in enumerate(patterns) if (shape := shape_of(pattern))]
    shapes = list(dict.fromkeys(shape for *_, shape in shaped))
    numbers = np.array([shapes.index(shape) for *_, shape in shaped], np.int64)
    rows = np.array([row for row, *_ in shaped], np.int64)
    arrays = PatternKeys.empty(shapes, dialect, b"secret").filled([text for _, text, _ in shaped], rows, numbers)

    def texts_of(rows: Ints) -> list[str]:
        return [patterns[row].text for row in rows]

    found = PatternKeys(arrays, shapes, dialect, b"secret").match_batch(topics, texts_of)
    return sorted(zip(*(each.tolist() for each in found), strict=True))
