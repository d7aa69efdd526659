"""Topics of a batch in flat arrays: one byte string, its segments, their hashes, and the dialect's rules."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from matcher.pattern import Tail

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matcher.dialects import Dialect

U8 = npt.NDArray[np.uint8]
U64 = npt.NDArray[np.uint64]
Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

MAX_POSITIONS: Final = 16  # segments from the left that take part in keys
TOPICS_AT_ONCE: Final = 16384  # the arrays of this many stay in the cache of a core

_WORD_BYTES: Final = 8
_ARRAY_BYTES: Final = 64  # longest segment in bytes that arrays handle; longer ones are rare, and go one by one
_MASKS: Final = np.array([(1 << 8 * size) - 1 for size in range(_WORD_BYTES + 1)], np.uint64)
_LEADING_BITS: Final = 0xC0  # mask of the leading bits of a byte of UTF-8 ...
_CONTINUATION: Final = 0x80  # ... and their value in every byte of a character but the first
_M1: Final = np.uint64(0xFF51AFD7ED558CCD)
_M2: Final = np.uint64(0xC4CEB9FE1A85EC53)
_SHIFT: Final = np.uint64(32)
_SURROGATE_LEAD: Final = 0xED  # the first byte of a surrogate; the second is at least 0xA0
_SURROGATE_NEXT: Final = 0xA0


class Salt:
    """Secret numbers of an index, derived from a few bytes, so that users cannot choose names with equal hashes."""

    __slots__ = ("ends", "factor", "key", "positions", "rests", "seed")

    def __init__(self, salt: bytes) -> None:
        self.key = salt if len(salt) <= hashlib.blake2b.MAX_KEY_SIZE else hashlib.blake2b(salt).digest()
        numbers = np.frombuffer(hashlib.shake_128(salt).digest(8 * (3 * MAX_POSITIONS + 4)), "<u8")
        self.seed, self.factor = numbers[0], numbers[1] | np.uint64(1)
        self.positions = numbers[2 : 2 + MAX_POSITIONS]
        self.ends = numbers[2 + MAX_POSITIONS : 3 + 2 * MAX_POSITIONS]
        self.rests = numbers[3 + 2 * MAX_POSITIONS : 4 + 3 * MAX_POSITIONS]

    def of(self, tail: Tail, count: int) -> np.uint64:
        """Return the number added to keys of patterns with this tail and count of segments, to keep them apart."""
        number: np.uint64 = (self.ends if tail is Tail.END else self.rests)[count]
        return number


class Segments(NamedTuple):
    """Segments of a batch of topics, in the order of the batch.

    Attributes:
        data: bytes of all topics, one separator after each, padded so that a word can be read anywhere.
        first: number of the first segment of each topic, and at the end the number of all segments.
        starts: start of each segment in the data.
        lengths: length of each segment, in bytes.
        words: first eight bytes of each segment as a number; missing ones are zero.
    """

    data: U8
    first: Ints
    starts: Ints
    lengths: Ints
    words: U64

    @property
    def counts(self) -> Ints:
        """Number of segments of each topic."""
        return np.diff(self.first)

    def text(self, number: int) -> bytes:
        """Return the bytes of one segment."""
        start = int(self.starts[number])
        return self.data[start : start + int(self.lengths[number])].tobytes()


def cut(topics: Sequence[str], dialect: Dialect) -> Segments:
    """Cut topics at the separator of the dialect, valid or not."""
    separator = dialect.separator
    if not separator.isascii() or separator not in (separator[0], separator[0] * 2):
        return _cut_one_by_one(topics, separator)
    single = len(separator) == 1
    data, sizes = join(topics, separator if single else "\n")
    boundaries = (sizes + 1).cumsum() - 1
    code = ord(separator[0])
    if single:
        ends = (data[:-_WORD_BYTES] == code).nonzero()[0]
        starts = _starts_after(ends, 1)
    else:
        ends = np.sort(np.concatenate((_leftmost_pairs(data, code), boundaries)), kind="stable")  # merges them
        starts = _starts_after(ends, 1 + (data[ends] == code))
    first = np.zeros(len(topics) + 1, np.int64)
    first[1:] = ends.searchsorted(boundaries) + 1
    return _segments(data, first, starts, ends - starts)


def _cut_one_by_one(topics: Sequence[str], separator: str) -> Segments:
    """Cut topics at any separator, which no dialect of the package has."""
    parts = [topic.split(separator) for topic in topics]
    data, sizes = join([part for each in parts for part in each], separator)
    width = len(separator.encode())
    starts = (sizes + width).cumsum() - (sizes + width)
    first = np.zeros(len(topics) + 1, np.int64)
    first[1:] = np.cumsum(list(map(len, parts)))
    return _segments(data, first, starts, sizes)


def pack(texts: Sequence[str]) -> Segments:
    """Return the segments of texts, one segment for each text."""
    data, sizes = join(texts, "\n")
    ends = (sizes + 1).cumsum() - 1
    return _segments(data, np.arange(len(texts) + 1), ends - sizes, sizes)


def unpack(data: U8, sizes: npt.NDArray[np.int32]) -> Segments:
    """Return the result of `pack` from its data and lengths."""
    lengths = sizes.astype(np.int64)
    ends = (lengths + 1).cumsum() - 1
    return _segments(data, np.arange(len(lengths) + 1), ends - lengths, lengths)


def is_packed(data: U8, sizes: npt.NDArray[np.int32]) -> bool:
    """Return True if data and lengths can be a result of `pack`."""
    return bool((sizes >= 0).all()) and int(sizes.sum(dtype=np.int64)) + len(sizes) + _WORD_BYTES == len(data)


def are_texts(segments: Segments) -> bool:
    """Return True if each segment is UTF-8 by itself, surrogates included."""
    try:
        segments.data.tobytes().decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return False
    borders = np.concatenate((segments.starts, segments.starts + segments.lengths))
    return bool((segments.data[borders] & _LEADING_BITS != _CONTINUATION).all())


def hashes(segments: Segments, salt: Salt) -> U64:
    """Hash each segment to 64 bits; segments of at most eight bytes and one length never collide.

    Before each further word, the hash is multiplied by a secret factor. Without the factor, users could choose
    segments of more than eight bytes that have equal hashes with one salt in five.
    """
    mixed: U64 = _mix(segments.words ^ salt.seed) + segments.lengths.astype(np.uint64) * salt.factor
    longer = (segments.lengths > _WORD_BYTES).nonzero()[0]
    words = _words(segments.data)
    for offset in range(_WORD_BYTES, _ARRAY_BYTES, _WORD_BYTES):
        longer = longer[segments.lengths[longer] > offset]
        if not len(longer):
            return mixed
        word = words[segments.starts[longer] + offset]
        word &= _MASKS[np.minimum(segments.lengths[longer] - offset, _WORD_BYTES)]
        mixed[longer] = _mix(mixed[longer] * salt.factor ^ word)
    for number in longer[segments.lengths[longer] > _ARRAY_BYTES].tolist():
        digest = hashlib.blake2b(segments.text(number), digest_size=_WORD_BYTES, key=salt.key).digest()
        mixed[number] = int.from_bytes(digest, "little")
    return mixed


def at_positions(hashed: U64, positions: Ints, salt: Salt) -> U64:
    """Mix the position of each segment into its hash; positions from `MAX_POSITIONS` on count as one."""
    mixed: U64 = _mix(hashed ^ salt.positions[np.minimum(positions, MAX_POSITIONS - 1)])
    mixed *= _M2
    mixed ^= mixed >> _SHIFT
    return mixed


def same_text(one: Segments, numbers: Ints, other: Segments, others: Ints) -> Flags:
    """Return a mask of the pairs of segments, from two batches, with the same bytes."""
    lengths = one.lengths.take(numbers)
    same: Flags = lengths == other.lengths.take(others)
    same &= one.words.take(numbers) == other.words.take(others)
    pairs = (same & (lengths > _WORD_BYTES)).nonzero()[0]
    here, there = _words(one.data), _words(other.data)
    for offset in range(_WORD_BYTES, _ARRAY_BYTES, _WORD_BYTES):
        pairs = pairs[lengths[pairs] > offset]
        if not len(pairs):
            return same
        differing = here[one.starts[numbers[pairs]] + offset] ^ there[other.starts[others[pairs]] + offset]
        equal = differing & _MASKS[np.minimum(lengths[pairs] - offset, _WORD_BYTES)] == 0
        same[pairs] = equal
        pairs = pairs[equal]
    for pair in pairs[lengths[pairs] > _ARRAY_BYTES].tolist():
        same[pair] = one.text(int(numbers[pair])) == other.text(int(others[pair]))
    return same


def matchable(segments: Segments, dialect: Dialect) -> Flags:
    """Return a mask of the topics accepted by `dialect.split`."""
    first, last = segments.first[:-1], segments.first[1:] - 1
    sizes = segments.starts[last] + segments.lengths[last] - segments.starts[first]
    accepted = sizes > 0 if not dialect.empty_topic else np.ones(len(first), np.bool_)
    end = int(segments.starts[-1] + segments.lengths[-1]) if len(segments.starts) else 0
    for code in dialect.forbidden_characters.encode():
        _exclude(accepted, segments, np.flatnonzero(segments.data[:end] == code))
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
    firsts = segments.first[:-1]
    prefix = dialect.reserved.encode()
    flags: Flags = segments.lengths[firsts] >= len(prefix)
    for offset, code in enumerate(prefix):
        places = segments.starts[firsts] + offset
        flags &= segments.data.take(places, mode="clip") == code
    return flags if flags.any() else None


def ranges(starts: Ints, ends: Ints) -> tuple[Ints, Ints]:
    """Return (place of the range, number) for every number in every range, as two arrays."""
    sizes = ends - starts
    owners = np.repeat(np.arange(len(sizes)), sizes)
    ends_in_result = sizes.cumsum()
    return owners, np.arange(len(owners)) + np.repeat(starts - ends_in_result + sizes, sizes)


def firsts_of(sizes: Ints) -> Any:
    """Return the start of each of consecutive runs, and the end of the last run."""
    return np.concatenate((np.zeros(1, np.int64), sizes.cumsum())).astype(np.int32)


def join(texts: Sequence[str], filler: str) -> tuple[U8, Ints]:
    """Encode texts into one padded array, with a filler after each; return it and the length of each text in bytes."""
    parts: Sequence[str] | list[bytes] = texts
    joined = filler.join(texts)
    if joined.isascii():
        raw = joined.encode()
    else:
        parts = [text.encode("utf-8", "surrogatepass") for text in texts]
        raw = filler.encode().join(parts)
    sizes = np.fromiter(map(len, parts), np.int64, len(parts))
    return np.frombuffer(raw + filler.encode() * bool(parts) + bytes(_WORD_BYTES), np.uint8), sizes


def _starts_after(ends: Ints, widths: Ints | int) -> Ints:
    """Return the start of each segment: the start of the data, then the end of each separator but the last."""
    starts: Ints = np.zeros_like(ends)
    starts[1:] = (ends + widths)[:-1]
    return starts


def _segments(data: U8, first: Ints, starts: Ints, lengths: Ints) -> Segments:
    words = _words(data)[starts] & _MASKS[np.minimum(lengths, _WORD_BYTES)]
    return Segments(data, first, starts, lengths, words)


def _leftmost_pairs(data: U8, code: int) -> Ints:
    """Return the positions of two-byte separators as `str.split` finds them, from the left of each run of the byte."""
    found: Ints = (data == code).nonzero()[0]
    if not len(found):
        return found
    begins = np.empty(len(found), np.bool_)
    begins[0] = True
    np.not_equal(found[1:], found[:-1] + 1, out=begins[1:])
    run_starts = np.maximum.accumulate(np.where(begins, found, 0))
    paired = (found - run_starts) & 1 == 0
    paired[:-1] &= ~begins[1:]
    paired[-1] = False
    pairs: Ints = found[paired]
    return pairs


def _words(data: U8) -> U64:
    """Return the data as overlapping words, one word at each byte."""
    return np.ndarray((len(data) - _WORD_BYTES + 1,), "<u8", data.data, strides=(1,))


def _mix(values: U64) -> U64:
    mixed = values * _M1
    mixed ^= mixed >> _SHIFT
    return mixed


def _exclude(accepted: Flags, segments: Segments, positions: Ints) -> None:
    """Clear the mask for the topics at these byte positions."""
    if len(positions):
        begins = segments.starts[segments.first[:-1]]
        accepted[np.searchsorted(begins, positions, side="right") - 1] = False
