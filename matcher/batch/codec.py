"""Binary form of an index: a header and named arrays in one byte string, read without copying, and checks of them."""

import json
import zlib
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, Final, Self

import numpy as np
import numpy.typing as npt

from matcher.dialects import DIALECTS, Dialect, get_dialect
from matcher.errors import CorruptIndex, UnknownDialect

Arrays = Mapping[str, npt.NDArray[Any]]

_MAGIC: Final = b"rxf2"  # another number whenever arrays or hashes change their meaning
_PREFIX_BYTES: Final = len(_MAGIC) + 8  # the magic, the checksum of all bytes after it, the length of the header
_ALIGNMENT: Final = 8  # bytes


class FlatIndex(ABC):
    """Immutable index whose header and arrays are its binary form."""

    _kind: ClassVar[str]
    _types: ClassVar[Mapping[str, str]]
    _header: dict[str, Any]
    _arrays: Arrays
    _dialect: Dialect

    @classmethod
    def from_bytes(cls, data: bytes | memoryview) -> Self:
        """Open a result of `to_bytes`, without copying its arrays or parsing its patterns.

        Raises:
            CorruptIndex: the data is not a result of `to_bytes`.
        """
        header, arrays = load(data, cls._kind, cls._types)
        if not cls._is_consistent(header, arrays):
            raise CorruptIndex("the parts of the index contradict one another")
        index = cls.__new__(cls)
        index._open(header, arrays, get_dialect(header["dialect"]))  # noqa: SLF001 - same class
        return index

    def to_bytes(self) -> bytes:
        """Return the index as bytes, without tables that are derived from its arrays.

        Raises:
            UnknownDialect: the dialect is one of your own, which `from_bytes` could not find.
        """
        if DIALECTS.get(self._dialect.name) is not self._dialect:
            raise UnknownDialect(self._dialect.name, DIALECTS)
        return dump({**self._header, "dialect": self._dialect.name}, self._arrays)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} dialect={self._dialect.name!r} len={len(self)}>"

    @abstractmethod
    def __len__(self) -> int:
        pass

    @staticmethod
    @abstractmethod
    def _is_consistent(header: dict[str, Any], arrays: Arrays) -> bool:
        """Return True if no look-up in an index of this header and these arrays can fail."""

    @abstractmethod
    def _open(self, header: dict[str, Any], arrays: Arrays, dialect: Dialect) -> None:
        pass


def dump(header: Mapping[str, Any], arrays: Arrays) -> bytes:
    """Encode a header as JSON, then the arrays, little-endian and aligned."""
    layout = [(name, array.dtype.newbyteorder("<").str, len(array)) for name, array in arrays.items()]
    text = json.dumps([header, layout], separators=(",", ":")).encode()
    text += b" " * (-(_PREFIX_BYTES + len(text)) % _ALIGNMENT)
    parts = [len(text).to_bytes(4, "little"), text]
    for array in arrays.values():
        raw = array.astype(array.dtype.newbyteorder("<"), copy=False).tobytes()
        parts.append(raw + bytes(-len(raw) % _ALIGNMENT))
    body = b"".join(parts)
    return _MAGIC + zlib.crc32(body).to_bytes(4, "little") + body


def load(
    data: bytes | memoryview, kind: str, types: Mapping[str, str], *, is_intact: bool = False
) -> tuple[dict[str, Any], dict[str, npt.NDArray[Any]]]:
    """Decode a result of `dump`; the arrays are read-only views of the data.

    The checksum detects damage, not forgery: the caller must check that header and arrays are consistent. It is not
    computed for data that is known to be intact. `types` has the names of the expected arrays, in order, with the types
    of their numbers.

    Raises:
        CorruptIndex: the data is not a result of `dump`, or it holds another kind of index.
    """
    if data[: len(_MAGIC)] != _MAGIC:
        if data[:3] == _MAGIC[:3]:
            raise CorruptIndex("the index is of another release; build it again from its texts")
        raise CorruptIndex("the data does not begin with the magic bytes of an index")
    if not is_intact and zlib.crc32(memoryview(data)[8:]) != int.from_bytes(data[4:8], "little"):
        raise CorruptIndex("the checksum of the index is wrong")
    position = _PREFIX_BYTES + int.from_bytes(data[8:_PREFIX_BYTES], "little")
    try:
        content = json.loads(bytes(data[_PREFIX_BYTES:position]))
    except (ValueError, RecursionError):
        raise CorruptIndex("the header of the index is not JSON") from None
    match content:
        case [{"kind": str()} as header, [*layout]]:
            pass
        case _:
            raise CorruptIndex("the header of the index does not name its kind")
    if header["kind"] != kind:
        raise CorruptIndex(f"the data holds {header['kind']}, not {kind}")
    if len(layout) != len(types):
        raise CorruptIndex(f"the data holds {len(layout)} arrays, not {len(types)}")
    arrays = {}
    for (name, number), entry in zip(types.items(), layout, strict=True):
        available = (len(data) - position) // np.dtype(number).itemsize
        match entry:
            case [str(), str(), int(count)] if entry[:2] == [name, number] and 0 <= count <= available:
                arrays[name] = np.frombuffer(data, number, count, position)
            case _:
                raise CorruptIndex(f"the data does not hold the whole array {name!r}")
        position += arrays[name].nbytes + -arrays[name].nbytes % _ALIGNMENT
    return header, arrays


def is_partition(bounds: Any, parts: int, whole: int) -> bool:
    """Return True if bounds cut the range from 0 to `whole` into `parts` consecutive ranges."""
    if len(bounds) != parts + 1 or not len(bounds) or bounds[0] != 0 or bounds[-1] != whole:
        return False
    return bool((bounds[1:] >= bounds[:-1]).all())


def all_below(numbers: Any, limit: int) -> bool:
    """Return True if all numbers are at least 0 and below the limit."""
    return not len(numbers) or bool(numbers.min() >= 0 and numbers.max() < limit)
