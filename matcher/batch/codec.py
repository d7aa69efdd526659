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


def load(data: bytes, kind: str) -> tuple[dict[str, Any], dict[str, npt.NDArray[Any]]]:
    """Read what `dump` wrote; the arrays are read-only views of the data.

    Raises:
        CorruptIndex: the data is not what `dump` wrote, or facts of another kind.
    """
    if data[: len(_MAGIC)] != _MAGIC:
        raise CorruptIndex("the data does not begin like an index")
    if zlib.crc32(memoryview(data)[8:]) != int.from_bytes(data[4:8], "little"):
        raise CorruptIndex("the checksum of the index is wrong")
    position = _HEAD + int.from_bytes(data[8:_HEAD], "little")
    facts, layout = json.loads(data[_HEAD:position])
    if facts["kind"] != kind:
        raise CorruptIndex(f"the data holds {facts['kind']}, not {kind}")
    arrays = {}
    for name, kind_of_number, count in layout:
        arrays[name] = np.frombuffer(data, kind_of_number, count, position)
        position += arrays[name].nbytes + -arrays[name].nbytes % _ALIGNED
    return facts, arrays
