"""Choices out of the bytes that a fuzzer makes up, so that changing a byte changes one choice."""

from collections.abc import Sequence
from typing import Final, TypeVar

T = TypeVar("T")

_RAW: Final = 0xF0  # bytes from here on: any character at all
_REPEATED: Final = 0xE8  # bytes from here on: the next token many times
_MOST: Final = 32  # tokens a text


class Draw:
    """Reads choices from left to right; where the bytes have run out, every choice is the first one."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def number(self, limit: int) -> int:
        value = 0
        for _ in range((max(1, limit - 1).bit_length() + 7) // 8):
            value = value << 8 | self._byte()
        return value % limit

    def flag(self) -> bool:
        """Return yes or no; no is the first."""
        return self.number(2) == 1

    def pick(self, options: Sequence[T]) -> T:
        return options[self.number(len(options))]

    def text(self, tokens: Sequence[str]) -> str:
        """Return a text of tokens, with runs of one of them and characters of any kind among them."""
        parts = []
        for _ in range(self.number(_MOST)):
            byte = self._byte()
            if byte >= _RAW:
                parts.append(chr((byte & 0xF) << 16 | self.number(0x10000)) if byte & 1 else chr(self.number(0x10000)))
            elif byte >= _REPEATED:
                parts.append(self.pick(tokens) * 4 ** (byte - _REPEATED & 3) * 4)
            else:
                parts.append(tokens[byte % len(tokens)])
        return "".join(parts)

    def rest(self) -> bytes:
        rest, self._at = self._data[self._at :], len(self._data)
        return rest

    def _byte(self) -> int:
        self._at += 1
        return self._data[self._at - 1] if self._at <= len(self._data) else 0
