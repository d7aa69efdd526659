"""Operations on arrays of ranges, and checks of arrays read from bytes."""

from typing import Any

import numpy as np

from matcher.batch.segments import Ints


def ranges(starts: Ints, ends: Ints) -> tuple[Ints, Ints]:
    """Return (place of the range, number) for every number in every range, as two arrays."""
    sizes = ends - starts
    owners = np.repeat(np.arange(len(sizes)), sizes)
    ends_in_result = sizes.cumsum()
    return owners, np.arange(len(owners)) + np.repeat(starts - ends_in_result + sizes, sizes)


def firsts_of(sizes: Ints) -> Any:
    """Return the start of each of consecutive runs, and the end of the last one."""
    return np.concatenate((np.zeros(1, np.int64), sizes.cumsum())).astype(np.int32)


def is_partition(bounds: Any, parts: int, whole: int) -> bool:
    """Return True if bounds cut the range from 0 to `whole` into `parts` consecutive ranges."""
    if len(bounds) != parts + 1 or not len(bounds) or bounds[0] != 0 or bounds[-1] != whole:
        return False
    return bool((bounds[1:] >= bounds[:-1]).all())


def all_below(numbers: Any, limit: int) -> bool:
    """Return True if all numbers are at least 0 and below the limit."""
    return not len(numbers) or bool(numbers.min() >= 0 and numbers.max() < limit)
