"""Small operations on arrays that describe ranges, and checks of those that come from elsewhere."""

from typing import Any

import numpy as np

from matcher.batch.segments import Ints


def ranges(starts: Ints, ends: Ints) -> tuple[Ints, Ints]:
    """Return every number of every range, behind the number of its range."""
    sizes = ends - starts
    owners = np.repeat(np.arange(len(sizes)), sizes)
    behind = sizes.cumsum()
    return owners, np.arange(len(owners)) + np.repeat(starts - behind + sizes, sizes)


def firsts_of(sizes: Ints) -> Any:
    """Return where each of some runs begins, and where the last one ends."""
    return np.concatenate((np.zeros(1, np.int64), sizes.cumsum())).astype(np.int32)


def cuts(bounds: Any, parts: int, whole: int) -> bool:
    """Whether bounds cut a whole into so many parts, one behind the other."""
    if len(bounds) != parts + 1 or not len(bounds) or bounds[0] != 0 or bounds[-1] != whole:
        return False
    return bool((bounds[1:] >= bounds[:-1]).all())


def within(numbers: Any, limit: int) -> bool:
    """Whether all numbers are at least 0 and below the limit."""
    return not len(numbers) or bool(numbers.min() >= 0 and numbers.max() < limit)
