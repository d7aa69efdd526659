"""Small operations on arrays that describe ranges."""

from typing import Any

import numpy as np

from matcher.batch.segments import Ints


def ranges(starts: Ints, ends: Ints) -> tuple[Ints, Ints]:
    """Return every number of every range, behind the number of its range."""
    sizes = ends - starts
    owners = np.repeat(np.arange(len(sizes)), sizes)
    behind = np.cumsum(sizes)
    return owners, np.arange(len(owners)) + np.repeat(starts - behind + sizes, sizes)


def firsts_of(sizes: Ints) -> Any:
    """Return where each of some runs begins, and where the last one ends."""
    return np.concatenate((np.zeros(1, np.int64), np.cumsum(sizes))).astype(np.int32)
