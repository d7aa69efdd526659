"""Which topics of a batch can be matched at all, by the rules that the dialect declares."""

import numpy as np
import numpy.typing as npt

from matcher.batch.segments import Segments
from matcher.dialects import Dialect

Flags = npt.NDArray[np.bool_]

_SURROGATE_LEAD = 0xED  # the first byte of a surrogate; the second is at least 0xA0
_SURROGATE_NEXT = 0xA0


def matchable(segments: Segments, dialect: Dialect) -> Flags:
    """Whether `dialect.split` takes each topic."""
    first, last = segments.first[:-1], segments.first[1:] - 1
    sizes = segments.starts[last] + segments.lengths[last] - segments.starts[first]
    fine = sizes > 0 if not dialect.empty_topic else np.ones(len(first), np.bool_)
    for code in dialect.forbidden_characters.encode():
        _strike(fine, segments, np.flatnonzero(segments.data[: _end(segments)] == code))
    for text in dialect.forbidden_segments:
        word = np.uint64(int.from_bytes(text.encode(), "little"))
        found = np.flatnonzero((segments.lengths == len(text.encode())) & (segments.words == word))
        _strike(fine, segments, segments.starts[found])
    if dialect.max_bytes is not None:
        fine &= sizes <= dialect.max_bytes
        data = segments.data
        _strike(fine, segments, np.flatnonzero((data[:-1] == _SURROGATE_LEAD) & (data[1:] >= _SURROGATE_NEXT)))
    return fine


def hidden(segments: Segments, dialect: Dialect) -> Flags | None:
    """Whether each topic is hidden from wildcards in the first segment; None where none is."""
    if not dialect.reserved:
        return None
    flags = segments.data[segments.starts[segments.first[:-1]]] == ord(dialect.reserved)
    return flags if flags.any() else None


def _end(segments: Segments) -> int:
    return int(segments.starts[-1] + segments.lengths[-1]) if len(segments.starts) else 0


def _strike(fine: Flags, segments: Segments, positions: npt.NDArray[np.int64]) -> None:
    """Strike the topics out that hold these bytes."""
    if len(positions):
        begins = segments.starts[segments.first[:-1]]
        fine[np.searchsorted(begins, positions, side="right") - 1] = False
