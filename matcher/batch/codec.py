"""Named arrays and a few facts as one byte string that is read without copying."""

import json
import zlib
from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from matcher.errors import CorruptIndex

Arrays = Mapping[str, npt.NDArray[Any]]

_MAGIC: Final = b"rxf1"
_HEAD: Final = len(_MAGIC) + 8  # the magic, the checksum of all that follows, the length of the facts
_ALIGNED: Final = 8


def dump(facts: Mapping[str, Any], arrays: Arrays) -> bytes:
    """Write facts, as JSON, and arrays, little-endian and aligned."""
    layout = [(name, array.dtype.newbyteorder("<").str, len(array)) for name, array in arrays.items()]
    text = json.dumps([facts, layout], separators=(",", ":")).encode()
    text += b" " * (-(_HEAD + len(text)) % _ALIGNED)
    parts = [len(text).to_bytes(4, "little"), text]
    for array in arrays.values():
        raw = array.astype(array.dtype.newbyteorder("<"), copy=False).tobytes()
        parts.append(raw + bytes(-len(raw) % _ALIGNED))
    body = b"".join(parts)
    return _MAGIC + zlib.crc32(body).to_bytes(4, "little") + body


def load(data: bytes, kind: str, types: Mapping[str, str]) -> tuple[dict[str, Any], dict[str, npt.NDArray[Any]]]:
    """Read what `dump` wrote; the arrays are read-only views of the data.

    The checksum finds damage, not deceit: what the facts and the arrays say is for the caller to check.

    Args:
        data: the bytes.
        kind: what the facts must say that they are of.
        types: the arrays that there must be, in this order, and the types of their numbers.

    Raises:
        CorruptIndex: the data is not what `dump` wrote, or it holds something else.
    """
    if data[: len(_MAGIC)] != _MAGIC:
        raise CorruptIndex("the data does not begin like an index")
    if zlib.crc32(memoryview(data)[8:]) != int.from_bytes(data[4:8], "little"):
        raise CorruptIndex("the checksum of the index is wrong")
    position = _HEAD + int.from_bytes(data[8:_HEAD], "little")
    facts, layout = _read(data[_HEAD:position])
    if facts["kind"] != kind:
        raise CorruptIndex(f"the data holds {facts['kind']}, not {kind}")
    if len(layout) != len(types):
        raise CorruptIndex(f"the data holds {len(layout)} arrays, not {len(types)}")
    arrays = {}
    for (name, number), entry in zip(types.items(), layout, strict=True):
        room = (len(data) - position) // np.dtype(number).itemsize
        match entry:
            case [str(), str(), int(count)] if entry[:2] == [name, number] and 0 <= count <= room:
                arrays[name] = np.frombuffer(data, number, count, position)
            case _:
                raise CorruptIndex(f"the data does not hold the whole array {name!r}")
        position += arrays[name].nbytes + -arrays[name].nbytes % _ALIGNED
    return facts, arrays


def _read(text: bytes) -> tuple[dict[str, Any], list[Any]]:
    try:
        content = json.loads(text)
    except (ValueError, RecursionError):
        raise CorruptIndex("the facts of the index are no JSON") from None
    match content:
        case [{"kind": str()} as facts, [*layout]]:
            return facts, layout
    raise CorruptIndex("the data does not say what it holds")
