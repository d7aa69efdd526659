"""An array of distinct 64-bit keys in which many are looked up at once."""

from typing import Final

import numpy as np

from matcher.batch.segments import U64, Ints

EMPTY: Final = np.uint64(0)  # never a key

_SLOTS_PER_KEY: Final = 16  # of the presence table: at most one key in 8 that is not there passes it
_PLACES_PER_KEY: Final = 4  # of the hash table, which is at most half full


class Keys:
    """A hash table of keys that are sorted, distinct and not `EMPTY`, derived with a few array operations.

    A key lies at the place that its first bits name, or at the next one that is free behind it. Before that, a byte a
    slot says whether any key falls there, which drops nearly all that are not there.
    """

    __slots__ = ("_near", "_numbers", "_present", "_table", "_wide")

    def __init__(self, keys: U64) -> None:
        self._wide = np.uint64(64 - _bits(_SLOTS_PER_KEY * len(keys)))
        self._near = np.uint64(64 - _bits(_PLACES_PER_KEY * len(keys)))
        self._present = np.zeros(1 << 64 - int(self._wide), np.bool_)
        self._present[keys >> self._wide] = True
        order = np.arange(len(keys))
        wanted = (keys >> self._near).view(np.int64)
        places = np.maximum.accumulate(wanted - order) + order
        size = max(1 << 64 - int(self._near), int(places[-1]) + 1 if len(keys) else 0) + 1
        self._table = np.full(size, EMPTY)
        self._table[places] = keys
        self._numbers = np.zeros(size, np.int32)
        self._numbers[places] = order

    @property
    def nbytes(self) -> int:
        """Bytes of the tables."""
        return self._present.nbytes + self._table.nbytes + self._numbers.nbytes

    def maybe(self, keys: U64) -> Ints:
        """Return which of these may be there."""
        return self._present.take((keys >> self._wide).view(np.int64)).nonzero()[0]

    def find(self, keys: U64) -> tuple[Ints, Ints]:
        """Return which of these are there, and the number of each among the sorted ones."""
        asked = np.arange(len(keys))
        places = (keys >> self._near).view(np.int64)
        found_asked, found_numbers = [asked[:0]], [self._numbers[:0]]
        while len(asked):
            there = self._table.take(places)
            hits = (there == keys).nonzero()[0]
            found_asked.append(asked.take(hits))
            found_numbers.append(self._numbers.take(places.take(hits)))
            others = ((there < keys) & (there != EMPTY)).nonzero()[0]  # they lie in order, so a larger one ends it
            asked, keys, places = asked.take(others), keys.take(others), places.take(others) + 1
        return np.concatenate(found_asked), np.concatenate(found_numbers)


def usable(keys: U64) -> bool:
    """Whether sorted keys are distinct and none is `EMPTY`."""
    return bool((keys[1:] != keys[:-1]).all() and (keys[:1] != EMPTY).all())


def _bits(number: int) -> int:
    return max(8, number.bit_length() - 1)
