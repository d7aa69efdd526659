"""Cache of a function's results, bounded by their size in bytes."""

from collections.abc import Callable, Hashable
from typing import Final, Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

ENTRY_BYTES: Final = 256
"""Size in bytes that the cache itself takes for an entry: tuples, and places in a dict."""

_LARGEST_SHARE: Final = 16  # larger entries than this part of the cache are computed each time


class BoundedCache(dict[K, V], Generic[K, V]):
    """Results of a function of one argument, `cache[argument]`. Results that were not used recently go first.

    Users choose the texts that are cached here, so a bound on the number of entries does not bound memory. The entries
    are in two generations of at most half the size. The new generation is this dict: a hit is one look-up in C.
    When it is full, it becomes the old generation, and the previous old generation is dropped. An entry of the old
    generation that is used again returns to the new one.

    Any number of threads can use the cache at once. An entry that a thread loses is computed again.

    Args:
        compute: function without side effects; an exception is raised, and not cached.
        size: memory of an argument and its result, in bytes, without `ENTRY_BYTES`.
        max_bytes: memory of all entries.
    """

    __slots__ = ("_compute", "_half", "_new_bytes", "_old", "_size")

    def __init__(self, compute: Callable[[K], V], size: Callable[[K, V], int], max_bytes: int) -> None:
        super().__init__()
        self._compute = compute
        self._size = size
        self._half = max_bytes // 2
        self._old: dict[K, V] = {}
        self._new_bytes = 0

    def __len__(self) -> int:
        """Return the number of entries."""
        return len(self.keys() | self._old.keys())

    def __missing__(self, key: K) -> V:
        """Return the result for an argument that is not in the new generation."""
        try:
            value = self._old[key]
        except KeyError:
            value = self._compute(key)
        self._keep(key, value)
        return value

    def clear(self) -> None:
        """Drop all entries."""
        super().clear()
        self._old, self._new_bytes = {}, 0

    def _keep(self, key: K, value: V) -> None:
        size = ENTRY_BYTES + self._size(key, value)
        if size > 2 * self._half // _LARGEST_SHARE:
            return
        if self._new_bytes + size > self._half:
            self._old = self.copy()
            super().clear()
            self._new_bytes = 0
        self[key] = value
        self._new_bytes += size
