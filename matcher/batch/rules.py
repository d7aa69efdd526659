"""Masks of matchable and of hidden topics in a batch, by the rules of the dialect."""

import numpy as np
import numpy.typing as npt

from matcher.batch.segments import Segments
from matcher.dialects import Dialect

Flags = npt.NDArray[np.bool_]

_SURROGATE_LEAD = 0xED  # the first byte of a surrogate; the second is at least 0xA0
_SURROGATE_NEXT = 0xA0


def matchable(segments: Segments, dialect: Dialect) -> Flags:
    """Return a mask of the topics accepted by `dialect.split`."""
    first, last = segments.first[:-1], segments.first[1:] - 1
    sizes = segments.starts[last] + segments.lengths[last] - segments.starts[first]
    accepted = sizes > 0 if not dialect.empty_topic else np.ones(len(first), np.bool_)
    for code in dialect.forbidden_characters.encode():
        _exclude(accepted, segments, np.flatnonzero(segments.data[: _end_of_topics(segments)] == code))
    for text in dialect.forbidden_segments:
        word = np.uint64(int.from_bytes(text.encode(), "little"))
        found = np.flatnonzero((segments.lengths == len(text.encode())) & (segments.words == word))
        _exclude(accepted, segments, segments.starts[found])
    if dialect.max_bytes is not None:
        accepted &= sizes <= dialect.max_bytes
        data = segments.data
        _exclude(accepted, segments, np.flatnonzero((data[:-1] == _SURROGATE_LEAD) & (data[1:] >= _SURROGATE_NEXT)))
    return accepted


def hidden(segments: Segments, dialect: Dialect) -> Flags | None:
    """Return a mask of the topics hidden from wildcards in the first segment; None without any."""
    if not dialect.reserved:
        return None
    flags = segments.data[segments.starts[segments.first[:-1]]] == ord(dialect.reserved)
    return flags if flags.any() else None


def _end_of_topics(segments: Segments) -> int:
    return int(segments.starts[-1] + segments.lengths[-1]) if len(segments.starts) else 0


def _exclude(accepted: Flags, segments: Segments, positions: npt.NDArray[np.int64]) -> None:
    """Clear the mask for the topics at these byte positions."""
    if len(positions):
        begins = segments.starts[segments.first[:-1]]
        accepted[np.searchsorted(begins, positions, side="right") - 1] = False
