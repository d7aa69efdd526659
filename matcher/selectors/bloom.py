"""Bloom filter of the groups whose selectors agreed with a topic, as a quick test in dispatchers.

When a topic is created, each group whose selector agreed sets its bits in the topic's bitmap, under the key
`GROUP#TOPIC`. A dispatcher tests the bitmap first, and evaluates the exact selector only if all bits of its group are
set.

Rules: `BloomFilter` and `BitsArray` of rocketmq-filter 5.5.0, whose recorded answers are
tests/conformance/vectors/bloom.json.
"""

import math
from typing import Final

_MASK: Final = (1 << 64) - 1
_C1: Final = 0x87C37B91114253D5
_C2: Final = 0x4CF5AD432745937F
_BLOCK: Final = 16


class BloomFilter:
    """Shape of a Bloom filter: its number of bits, and the positions of each text among them.

    Args:
        false_positive_percent: percentage of absent texts that pass once `expected` texts were added.
        expected: expected number of texts in a bitmap.

    Attributes:
        k: number of positions of a text.
        m: number of bits of a bitmap.

    Raises:
        ValueError: the percentage is not between 0 and 100, both excluded, or nothing is expected.
    """

    __slots__ = ("k", "m")

    def __init__(self, false_positive_percent: int = 20, expected: int = 32) -> None:
        if not 0 < false_positive_percent < 100:  # noqa: PLR2004 - percent
            raise ValueError(f"false_positive_percent is {false_positive_percent}; give one from 1 to 99")
        if expected < 1:
            raise ValueError(f"expected is {expected}; give at least 1")
        rate = false_positive_percent / 100
        self.k = math.ceil(math.log(rate) / math.log(0.5))
        bits = math.ceil(expected * (math.log(1 / rate) / math.log(2)) * (math.log(math.e) / math.log(2)))
        self.m = 8 * math.ceil(bits / 8)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} m={self.m} k={self.k}>"

    def positions(self, text: str) -> list[int]:
        """Return the `k` positions of a text, in RocketMQ's order of computation; some may coincide."""
        first = _murmur3_128(text.encode(errors="replace"))  # like Java, which makes "?" of a lone surrogate
        low, high = first & 0xFFFFFFFF, first >> 32
        found = []
        for number in range(1, self.k + 1):
            combined = (low + number * high) & 0xFFFFFFFF
            found.append((combined if combined < 1 << 31 else combined ^ 0xFFFFFFFF) % self.m)
        return found

    def bitmap(self, data: bytes | None = None) -> "Bitmap":
        """Return an empty bitmap of this shape, or the bitmap with these bytes."""
        return Bitmap(self, data)


class Bitmap:
    """Set of texts; a look-up finds every added text, and sometimes an absent one.

    Bit `i` is bit `i % 8` of byte `i // 8`, as in RocketMQ.

    Args:
        shape: filter with the positions of texts.
        data: bytes of another bitmap of this shape.

    Raises:
        ValueError: the data does not have the length of the shape.
    """

    __slots__ = ("_bits", "_shape")

    def __init__(self, shape: BloomFilter, data: bytes | None = None) -> None:
        self._shape = shape
        self._bits = bytearray(shape.m // 8 if data is None else data)
        if len(self._bits) * 8 != shape.m:
            raise ValueError(f"expected a bitmap of {shape.m} bits, got {len(self._bits) * 8}")

    def __repr__(self) -> str:
        return f"<{type(self).__name__} m={self._shape.m} set={int.from_bytes(self._bits).bit_count()}>"

    def __bytes__(self) -> bytes:
        return bytes(self._bits)

    def __contains__(self, text: str) -> bool:
        return all(self._bits[position >> 3] >> (position & 7) & 1 for position in self._shape.positions(text))

    def add(self, text: str) -> None:
        """Set the bits of a text."""
        for position in self._shape.positions(text):
            self._bits[position >> 3] |= 1 << (position & 7)


def _murmur3_128(data: bytes) -> int:
    """Return the first 64 bits of MurmurHash3 x64 128 with seed 0, as Guava computes it."""
    first = second = 0
    whole = len(data) - len(data) % _BLOCK
    for start in range(0, whole, _BLOCK):
        first ^= _mix(int.from_bytes(data[start : start + 8], "little"), _C1, 31, _C2)
        first = (_rotate(first, 27) + second) * 5 + 0x52DCE729 & _MASK
        second ^= _mix(int.from_bytes(data[start + 8 : start + 16], "little"), _C2, 33, _C1)
        second = (_rotate(second, 31) + first) * 5 + 0x38495AB5 & _MASK
    tail = data[whole:]
    second ^= _mix(int.from_bytes(tail[8:], "little"), _C2, 33, _C1)
    first ^= _mix(int.from_bytes(tail[:8], "little"), _C1, 31, _C2)
    first ^= len(data)
    second ^= len(data)
    first = first + second & _MASK
    second = second + first & _MASK
    return _finalize(first) + _finalize(second) & _MASK


def _mix(word: int, before: int, turn: int, after: int) -> int:
    return _rotate(word * before & _MASK, turn) * after & _MASK


def _rotate(word: int, turn: int) -> int:
    return (word << turn | word >> 64 - turn) & _MASK


def _finalize(word: int) -> int:
    word = (word ^ word >> 33) * 0xFF51AFD7ED558CCD & _MASK
    word = (word ^ word >> 33) * 0xC4CEB9FE1A85EC53 & _MASK
    return word ^ word >> 33
