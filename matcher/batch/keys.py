"""Hash table of distinct 64-bit keys, for many look-ups at once."""

from typing import Final

import numpy as np

from matcher.batch.segments import U64, Ints

EMPTY: Final = np.uint64(0)  # never a key

_SLOTS_PER_KEY: Final = 16  # in the presence table: at most one absent key in 8 passes it
_PLACES_PER_KEY: Final = 4  # in the hash table, which is at most half full


class Keys:
    """Hash table of sorted, distinct keys other than `EMPTY`, built with a few array operations.

    A key lies at the place given by its first bits, or at the next free place after it. A presence table is asked
    first: one byte for each slot tells whether any key falls there, which drops nearly all absent keys.
    """

    __slots__ = ("_numbers", "_presence_shift", "_present", "_table", "_table_shift")

    def __init__(self, keys: U64) -> None:
        self._presence_shift = np.uint64(64 - _index_bits(_SLOTS_PER_KEY * len(keys)))
        self._table_shift = np.uint64(64 - _index_bits(_PLACES_PER_KEY * len(keys)))
        self._present = np.zeros(1 << 64 - int(self._presence_shift), np.bool_)
        self._present[keys >> self._presence_shift] = True
        order = np.arange(len(keys))
        wanted = (keys >> self._table_shift).view(np.int64)
        places = np.maximum.accumulate(wanted - order) + order
        size = max(1 << 64 - int(self._table_shift), int(places[-1]) + 1 if len(keys) else 0) + 1
        self._table = np.full(size, EMPTY)
        self._table[places] = keys
        self._numbers = np.zeros(size, np.int32)
        self._numbers[places] = order

    @property
    def nbytes(self) -> int:
        """Size of the tables, in bytes."""
        return self._present.nbytes + self._table.nbytes + self._numbers.nbytes

    def candidates(self, keys: U64) -> Ints:
        """Return the places of keys to look up: all present ones, and a few absent ones."""
        return self._present.take((keys >> self._presence_shift).view(np.int64)).nonzero()[0]

    def find(self, keys: U64) -> tuple[Ints, Ints]:
        """Return (place, number among the sorted keys) for each key that is present, as two arrays."""
        asked = np.arange(len(keys))
        places = (keys >> self._table_shift).view(np.int64)
        found_asked, found_numbers = [asked[:0]], [self._numbers[:0]]
        while len(asked):
            stored = self._table.take(places)
            hits = (stored == keys).nonzero()[0]
            found_asked.append(asked.take(hits))
            found_numbers.append(self._numbers.take(places.take(hits)))
            # Keys lie in order, so a larger one ends the search.
            others = ((stored < keys) & (stored != EMPTY)).nonzero()[0]
            asked, keys, places = asked.take(others), keys.take(others), places.take(others) + 1
        return np.concatenate(found_asked), np.concatenate(found_numbers)


def usable(keys: U64) -> bool:
    """Return True if sorted keys are distinct and none is `EMPTY`."""
    return bool((keys[1:] != keys[:-1]).all() and (keys[:1] != EMPTY).all())


def _index_bits(number: int) -> int:
    return max(8, number.bit_length() - 1)
