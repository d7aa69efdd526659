"""Settled: mappings whose settled items are in arrays that all workers of a machine share."""

import os
from abc import abstractmethod
from bisect import bisect_left
from collections.abc import Collection, ItemsView, Iterable, Iterator, Mapping, MutableMapping, Sequence
from functools import lru_cache
from hashlib import blake2b, shake_128
from itertools import accumulate, chain, compress, islice, pairwise
from operator import mul, sub
from struct import Struct, unpack
from typing import Any, Final, Generic, Self, TypeVar

import numpy as np
import numpy.typing as npt

from matcher.batch.segments import join

Arrays = Mapping[str, npt.NDArray[Any]]

K = TypeVar("K")
V = TypeVar("V")

_ROW_BITS: Final = 28
_ROW: Final = (1 << _ROW_BITS) - 1
_MAX_TEXT_BYTES: Final = (1 << 32) - 1
_SECRET_BYTES: Final = 16
_ROWS_AT_ONCE: Final = 4_096
_FOUND: Final = 1_024  # texts of a micro-batch that is not in columns
_LONG: Final = 128  # characters of a text that is looked up each time, as it takes memory
_FOUND_BYTES: Final = 400  # estimated memory of a text that was asked for
_WORD_BYTES: Final = 4
_ARRAY_BYTES: Final = 128  # longest text in bytes that arrays hash
_ARRAY_TEXTS: Final = 64  # smallest number of texts for which arrays are faster
_WORDS: Final = [Struct(f"<{count}I").unpack for count in range(_ARRAY_BYTES // _WORD_BYTES + 1)]
_MASKS: Final = np.array([(1 << 8 * size) - 1 for size in range(_WORD_BYTES + 1)], np.uint32)
_HASH: Final = (1 << 64) - 1 - _ROW


class TextTable:
    """Different texts by row, in arrays that take 12 bytes per text besides the text.

    They are never decoded as a whole: a look-up of a text takes 2 us, instead of 0.1 us in a dict.

        texts   the texts in UTF-8, one after the other
        bounds  start of each text, and the end of the last one
        hashed  36 bits of the keyed hash of a text, then 28 bits of its row; sorted
        secret  key of the hashes, so that a producer cannot choose texts with equal hashes

    Args:
        arrays: those of `replaced`.

    Attributes:
        secret: as above.
    """

    def __init__(self, arrays: Arrays) -> None:
        self._arrays = arrays
        self._texts, self._bounds, self._hashed = (arrays[name].data for name in ("texts", "bounds", "hashed"))
        self.secret: bytes = arrays["secret"].tobytes()
        self._found: dict[str, int | None] = {}  # rows of texts that were asked for lately

    @classmethod
    def empty(cls, secret: bytes | None = None) -> Self:
        """Return a table without texts; its secret is random unless given."""
        arrays = {
            "texts": np.zeros(0, np.uint8),
            "bounds": np.zeros(1, "<u4"),
            "hashed": np.zeros(0, "<u8"),
            "secret": np.frombuffer(secret or os.urandom(_SECRET_BYTES), np.uint8),
        }
        return cls(arrays)

    @property
    def text_bytes(self) -> int:
        """Bytes of all texts."""
        return len(self._texts)

    @property
    def memory_bytes(self) -> int:
        """Estimated memory of what was decoded."""
        return len(self._found) * _FOUND_BYTES

    def __len__(self) -> int:
        return len(self._bounds) - 1

    def __getitem__(self, row: int) -> str:
        return bytes(self._texts[self._bounds[row] : self._bounds[row + 1]]).decode("utf-8", "surrogatepass")

    def blocks(self, first: int = 0) -> Iterator[tuple[int, list[str]]]:
        """Yield some rows at a time: the number of the first one, and the texts."""
        for start in range(first, len(self), _ROWS_AT_ONCE):
            yield start, self._block(start)

    def reversed_blocks(self) -> Iterator[tuple[int, list[str]]]:
        """Yield the blocks of `blocks`, the last one first."""
        for start in reversed(range(0, len(self), _ROWS_AT_ONCE)):
            yield start, self._block(start)

    def at(self, rows: npt.NDArray[np.int64]) -> list[str]:
        """Return the texts of some rows."""
        bounds = self._arrays["bounds"]
        starts, ends = bounds[rows].tolist(), bounds[rows + 1].tolist()
        data = b"".join(map(self._texts.__getitem__, map(slice, starts, ends)))
        return _cut(data, list(accumulate(map(sub, ends, starts), initial=0)))

    def _block(self, first: int) -> list[str]:
        bounds = self._bounds[first : first + _ROWS_AT_ONCE + 1].tolist()
        return _cut(bytes(self._texts[bounds[0] : bounds[-1]]), bounds)

    def row(self, text: str) -> int | None:
        """Return the row of a text; None if there is none. A micro-batch asks several times for each text."""
        if len(text) > _LONG:
            return self._find(text)
        if text not in self._found:
            if len(self._found) == _FOUND:
                self._found.clear()
            self._found[text] = self._find(text)
        return self._found[text]

    def _find(self, text: str) -> int | None:
        data = text.encode("utf-8", "surrogatepass")
        wanted = _hash(data, self.secret)
        place = bisect_left(self._hashed, wanted)
        while place < len(self._hashed) and self._hashed[place] ^ wanted <= _ROW:
            row = self._hashed[place] & _ROW
            if self._texts[self._bounds[row] : self._bounds[row + 1]] == data:
                return row
            place += 1
        return None

    def candidates(self, texts: Sequence[str]) -> Iterator[str]:
        """Return those of some texts that may have a row; many take far less time than in as many look-ups."""
        hashed = self._arrays["hashed"]
        if not len(hashed):
            return iter(())
        wanted = _hashes(*join(texts, ""), self.secret)
        places = np.searchsorted(hashed, wanted).clip(max=len(hashed) - 1)
        return compress(texts, hashed[places] ^ wanted <= _ROW)

    def replaced(self, gone: Collection[int], added: Iterable[str]) -> Arrays | None:
        """Return the arrays without some rows, with other texts behind the rest; None if they are too many."""
        kept = np.ones(len(self), bool)
        kept[list(gone)] = False
        lengths = np.diff(self._arrays["bounds"]).astype(np.int64)
        texts, hashed = self._arrays["texts"], self._arrays["hashed"]
        if gone:
            texts = texts[np.repeat(kept, lengths)]
            rows = (hashed & np.uint64(_ROW)).astype(np.int64)
            places = (np.cumsum(kept) - 1).astype(np.uint64)
            hashed = (hashed >> np.uint64(_ROW_BITS) << np.uint64(_ROW_BITS) | places[rows])[kept[rows]]
            lengths = lengths[kept]
        data, sizes = join(list(added), "")
        bounds = np.cumsum(np.concatenate(([0], lengths, sizes)))
        if len(bounds) > _ROW or bounds[-1] > _MAX_TEXT_BYTES:
            return None
        entries = _hashes(data, sizes, self.secret) | np.arange(len(lengths), len(bounds) - 1, dtype=np.uint64)
        return {
            "texts": np.concatenate((texts, data[: sizes.sum()])),
            "bounds": bounds.astype("<u4"),
            "hashed": np.sort(np.concatenate((hashed, np.sort(entries))), kind="stable").astype("<u8", copy=False),
            "secret": self._arrays["secret"],
        }


def _cut(data: bytes, bounds: list[int]) -> list[str]:
    """Return the texts between bounds, of which the first one is the beginning of the data."""
    offset = bounds[0]
    if data.isascii():
        text = data.decode("ascii")
        return [text[start - offset : end - offset] for start, end in pairwise(bounds)]
    pieces = (data[start - offset : end - offset] for start, end in pairwise(bounds))
    return [piece.decode("utf-8", "surrogatepass") for piece in pieces]


@lru_cache
def _multipliers(secret: bytes) -> tuple[int, list[int]]:
    """Return the secret multipliers: of the length of a text, and of each of its words."""
    count = 1 + _ARRAY_BYTES // _WORD_BYTES
    length, *others = unpack(f"<{count}Q", shake_128(secret).digest(8 * count))
    return length, others


def _hash(text: bytes, secret: bytes) -> int:
    """Return the hash of a text, in the upper bits of 64.

    The hash is the sum of length and words, each times a secret number. Two texts have equal sums in the upper 33 bits
    with a probability of 2 to the power of -33 (Lemire and Kaser, "Strongly universal string hashing is fast", 2014).
    """
    if len(text) > _ARRAY_BYTES:
        return int.from_bytes(blake2b(text, digest_size=8, key=secret).digest()) & _HASH
    length, others = _multipliers(secret)
    words: tuple[int, ...] = _WORDS[-(-len(text) // _WORD_BYTES)](text + bytes(-len(text) % _WORD_BYTES))
    products: int = sum(map(mul, words, others))
    return (len(text) * length + products) & _HASH


def _hashes(data: npt.NDArray[np.uint8], lengths: npt.NDArray[np.int64], secret: bytes) -> npt.NDArray[np.uint64]:
    """Return the hashes of texts, whose lengths and joined data are given."""
    starts = np.cumsum(lengths) - lengths
    found = np.zeros(len(lengths), np.uint64)
    in_arrays = lengths <= (_ARRAY_BYTES if len(lengths) >= _ARRAY_TEXTS else -1)
    for row in (~in_arrays).nonzero()[0].tolist():
        found[row] = _hash(data[starts[row] : starts[row] + lengths[row]].tobytes(), secret)
    left = in_arrays.nonzero()[0]
    length, others = _multipliers(secret)
    found[left] = lengths[left].astype(np.uint64) * np.uint64(length)
    words = np.ndarray((len(data) - _WORD_BYTES + 1,), "<u4", data.data, strides=(1,))
    for offset, number in zip(range(0, _ARRAY_BYTES, _WORD_BYTES), others, strict=True):
        left = left[lengths[left] > offset]
        if not len(left):
            break
        word = words[starts[left] + offset] & _MASKS[np.minimum(lengths[left] - offset, _WORD_BYTES)]
        found[left] += word * np.uint64(number)
    return found & np.uint64(_HASH)


class _SettledItems(ItemsView[K, V]):
    _mapping: "Settled[K, V]"

    def __iter__(self) -> Iterator[tuple[K, V]]:
        mapping = self._mapping
        yield from mapping.settled_items()
        yield from mapping.recent.items()


class Settled(MutableMapping[K, V], Generic[K, V]):
    """Mapping with settled items in arrays, and recent changes beside them: a changed item is the last one.

    Attributes:
        table: texts of the settled keys.
        recent: items that are not settled.
        gone: rows of the table without an item.

    Args:
        table, gone: as above.
    """

    def __init__(self, table: TextTable, gone: Iterable[int] = ()) -> None:
        self.table = table
        self.recent: dict[K, V] = {}
        self.gone = set(gone)

    @staticmethod
    @abstractmethod
    def _text(key: K) -> str:
        """Return the text of a key."""

    @staticmethod
    @abstractmethod
    def _keys(texts: list[str]) -> Sequence[K]:
        """Return the keys of texts."""

    @abstractmethod
    def _value(self, key: K, row: int) -> V:
        """Return the value of a settled key."""

    def items(self) -> ItemsView[K, V]:
        """Return all items."""
        return _SettledItems(self)

    def settled_items(self) -> Iterator[tuple[K, V]]:
        """Yield the settled items."""
        for first, texts in self.table.blocks():
            for row, key in enumerate(self._keys(texts), first):
                if row not in self.gone:
                    yield key, self._value(key, row)

    def __len__(self) -> int:
        return len(self.table) - len(self.gone) + len(self.recent)

    def __contains__(self, key: object) -> bool:
        return key in self.recent or self._row(key) is not None  # type: ignore[arg-type]

    def __getitem__(self, key: K) -> V:
        found = self.recent.get(key)
        if found is None:
            row = self._row(key)
            if row is None:
                raise KeyError(key)
            found = self._value(key, row)
        return found

    def __setitem__(self, key: K, value: V) -> None:
        row = self._row(key)
        if row is not None:
            self._forget(key, row)
        self.recent[key] = value

    def __delitem__(self, key: K) -> None:
        if key in self.recent:
            del self.recent[key]
            return
        row = self._row(key)
        if row is None:
            raise KeyError(key)
        self._forget(key, row)

    def _forget(self, key: K, row: int) -> None:  # noqa: ARG002 - for subclasses
        self.gone.add(row)

    def _row(self, key: K) -> int | None:
        """Return the row of a settled key; None if it is gone, or was never there."""
        row = self.table.row(self._text(key))
        return None if row in self.gone else row

    def __iter__(self) -> Iterator[K]:
        return self.since(0)

    def since(self, place: int) -> Iterator[K]:
        """Return an iterator over the keys from a place in the order of addition."""
        row = place
        for gone in sorted(self.gone):
            if gone > row:
                break
            row += 1
        settled = (self._kept(first, texts) for first, texts in self.table.blocks(row))
        return chain(chain.from_iterable(settled), islice(self.recent, max(0, row - len(self.table)), None))

    def __reversed__(self) -> Iterator[K]:
        yield from reversed(self.recent)
        for first, texts in self.table.reversed_blocks():
            yield from reversed(self._kept(first, texts))

    def _kept(self, first: int, texts: list[str]) -> Sequence[K]:
        """Return the keys of a block that are not gone."""
        if self.gone:
            texts = [text for row, text in enumerate(texts, first) if row not in self.gone]
        return self._keys(texts)
