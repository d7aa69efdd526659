"""State values as journals of changes: a small change costs a small write and a small read, however large the state.

    header   "rx", format version, its complement
    head     length (4 bytes), MessagePack of (compact bytes, parts, retired parts), digest (16 bytes);
             only the length, which is 0, while there are no parts
    segment  length of the body (4 bytes), body (MessagePack), digest (16 bytes)
    ...

The digest of a segment covers its body and the digest before it. So the last digest is both a checksum of the whole
journal and the identity of the resulting state: a worker that has read it up to a digest continues from there.

Spark reads and writes the value of a key as a whole in each micro-batch that touches it. So segments do not stay in the
value for ever: when they outgrow `Tuning.inline_bytes` they become a part, an immutable file in an archive next to the
checkpoint, and the value keeps its name. A new part is merged with the parts before it that are not larger. So the
number of parts, and the number of times a byte is rewritten, grow with the logarithm of the journal.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Any, NamedTuple, Protocol, Self

import msgpack

from streaming.errors import StateCorrupted, StateFormatUnknown
from streaming.tuning import DEFAULT_TUNING, Tuning

Key = tuple[str, int]
"""Parent topic and number of a shard, or of a bucket of the coordinator."""

FORMAT = 7
"""Version of the format that is written."""

READ_FORMATS = (3, 4, 5, 6, FORMAT)
"""Versions of the format that are read.

Formats 3 and 4 lack the number of the last request, the versions of clients, and pending ends. Format 3 has less
about last requests. Up to format 5, a row of an MQTT share has the name of the share alone in its key. Up to format 6,
the header lacks the complement of the version.
"""

_FORMAT_WITH_COMPLEMENT = 7
_HEADER = bytes([*b"rx", FORMAT, 255 - FORMAT])
_DIGEST_BYTES = 16
_LENGTH_BYTES = 4

_WAY_OUT = "restore the checkpoint from a copy or start with an empty one"


class Archive(Protocol):
    """Store for the parts of one key's journal."""

    def write(self, name: str, data: bytes) -> None:
        """Write a part, whole or not at all; equal names mean equal content."""

    def read(self, name: str, start: int = 0) -> bytes:
        """Return the content of a part, from some byte on.

        Raises:
            StateCorrupted: the part does not exist.
        """

    def remove(self, name: str) -> None:
        """Remove a part; a missing one is no error."""


class Position(NamedTuple):
    """Position in a journal: the number of segment bytes before it, and the digest of the last segment."""

    end: int
    digest: bytes


START = Position(0, b"")
"""Position before the first segment."""


class Part(NamedTuple):
    """Segments in the archive: their size in bytes, and the last digest."""

    length: int
    digest: bytes

    @property
    def name(self) -> str:
        """Name derived from the content, so that a repeated micro-batch writes the same part."""
        return f"{self.digest.hex()}-{self.length}"


@dataclass(frozen=True, slots=True)
class Journal:
    """Value of one key.

    Attributes:
        archive: store for the parts; None keeps everything in the value.
        tail: segments in the value.
        parts: segments before them, in the archive.
        compact_bytes: estimated size of a freshly compacted journal, in bytes.
        retired: names of replaced parts, each with the number of the last micro-batch that needed it.
        format: version of the format in which the value was read.
    """

    archive: Archive | None = None
    batch: int = 0
    tail: bytes = b""
    parts: tuple[Part, ...] = ()
    compact_bytes: int = 0
    retired: tuple[tuple[str, int], ...] = ()
    tuning: Tuning = DEFAULT_TUNING
    format: int = FORMAT

    @classmethod
    def open(
        cls, value: bytes | None, archive: Archive | None = None, batch: int = 0, tuning: Tuning = DEFAULT_TUNING
    ) -> Self:
        """Read a stored value; None gives an empty journal.

        Raises:
            StateCorrupted: the bytes differ from the bytes that were written.
            StateFormatUnknown: another release wrote them.
        """
        if value is None:
            return cls(archive, batch, tuning=tuning)
        if value[:2] != _HEADER[:2] or len(value) <= len(_HEADER) + _LENGTH_BYTES:
            raise StateCorrupted(f"a state value lacks its header; {_WAY_OUT}")
        if value[2] not in READ_FORMATS:
            raise StateFormatUnknown(
                f"a state value has format {value[2]}, this release reads {READ_FORMATS[0]} to {FORMAT}; "
                "use the release that wrote it"
            )
        start = _LENGTH_BYTES + (len(_HEADER) if value[2] >= _FORMAT_WITH_COMPLEMENT else len(_HEADER) - 1)
        if value[2] >= _FORMAT_WITH_COMPLEMENT and value[3] != 255 - value[2]:
            raise StateCorrupted(f"the header of a state value is damaged; {_WAY_OUT}")
        head = value[start : start + _length(value, start - _LENGTH_BYTES)]
        if not head:
            tail = value[start:]
            compact_bytes = _segment_length(tail)
            return cls(archive, batch, tail, compact_bytes=compact_bytes, tuning=tuning, format=value[2])
        end = start + len(head) + _DIGEST_BYTES
        if value[end - _DIGEST_BYTES : end] != _digest(head, b""):
            raise StateCorrupted(f"the head of a state value fails its checksum; {_WAY_OUT}")
        compact_bytes, parts, retired = msgpack.unpackb(head, use_list=False)
        found = tuple(Part(*part) for part in parts)
        return cls(archive, batch, value[end:], found, compact_bytes, retired, tuning, value[2])

    @property
    def stored(self) -> bytes | None:
        """Value to store; None if there is nothing to remember."""
        if not (self.parts or self.retired):
            return b"".join((_HEADER, bytes(_LENGTH_BYTES), self.tail)) if self.tail else None
        return self._with_head()

    @property
    def kept(self) -> bytes:
        """Value to store if the key must have a value."""
        return self.stored or self._with_head()

    def _with_head(self) -> bytes:
        head: bytes = msgpack.packb((self.compact_bytes, self.parts, self.retired))
        return b"".join((_HEADER, len(head).to_bytes(_LENGTH_BYTES), head, _digest(head, b""), self.tail))

    @property
    def position(self) -> Position:
        """Position behind the last segment."""
        if self.tail:
            return Position(self._archived + len(self.tail), self.tail[-_DIGEST_BYTES:])
        return Position(self._archived, self.parts[-1].digest) if self.parts else START

    @property
    def _archived(self) -> int:
        return sum(part.length for part in self.parts)

    def continues(self, read: Position) -> bool:
        """Return True if this journal begins with everything up to a position, be it in a part or in the value."""
        end = 0
        for piece in self._pieces():
            if read.end < end + piece.length:
                start = max(0, read.end - end - _DIGEST_BYTES)
                return self._content(piece, start)[: read.end - end - start] == read.digest
            end += piece.length
            if read.end == end:
                return piece.digest == read.digest
        return False

    def changes(self, after: Position = START, until: Position | None = None) -> Iterator[Any]:
        """Yield the changes in order, between two positions for which `continues` holds, by default all of them.

        Raises:
            StateCorrupted: the bytes differ from the bytes that were written.
        """
        begin, digest = 0, after.digest
        last = self.position.end if until is None else until.end
        for piece in self._pieces():
            start, end = max(0, after.end - begin), min(piece.length, last - begin)
            if start < end:
                where = _part_named(piece) if piece in self.parts else "a state value"
                yield from _decode_segments(self._content(piece, start)[: end - start], 0, digest, where)
                digest = piece.digest
            begin += piece.length

    def _pieces(self) -> list[Part]:
        """Return the parts, and the segments in the value as if they were one more."""
        return [*self.parts, Part(len(self.tail), self.tail[-_DIGEST_BYTES:])] if self.tail else list(self.parts)

    def _content(self, part: Part, start: int = 0) -> bytes:
        if part not in self.parts:
            return self.tail[start:]
        if self.archive is None:
            raise StateCorrupted(
                "a part of the state is a file next to the checkpoint, which Python cannot reach now; "
                "see the warning at the start of the job"
            )
        data = self.archive.read(part.name, start)
        if start + len(data) != part.length:
            length = start + len(data)
            raise StateCorrupted(f"{_part_named(part)} is {length} bytes long, not {part.length}; {_WAY_OUT}")
        return data

    def append(self, change: Any, whole: Callable[[], Any], growth: int = 0) -> Self:
        """Return this journal with one more change at its end, or a compacted one if that is better.

        A journal is compacted when it is larger than about twice its compact size, so the work is constant for each
        byte of change. A journal that has parts and only grows is never compacted, nor read again by other workers.

        Args:
            change: made of plain values.
            whole: returns a single change equal to all changes together.
            growth: estimated number of bytes by which this change makes a compacted journal larger.
        """
        tail = self.tail + _segment(change, self.position.digest)
        compact_bytes = max(1, self.compact_bytes + growth)
        if self.compact_bytes and self._archived + len(tail) <= 2 * compact_bytes + self.tuning.journal_slack_bytes:
            return replace(self.swept(), compact_bytes=compact_bytes).spill(tail)
        tail = _segment(whole(), b"")
        return replace(self.cleared(), compact_bytes=len(tail)).spill(tail)

    def cleared(self) -> Self:
        """Return a journal without changes; it still lists the parts to remove."""
        swept = self.swept()
        retired = (*swept.retired, *((part.name, self.batch) for part in self.parts))
        return replace(swept, tail=b"", parts=(), compact_bytes=0, retired=retired)

    def spill(self, tail: bytes) -> Self:
        """Return this journal with other segments behind its parts; too large ones move to the archive."""
        if self.archive is None or len(tail) <= self.tuning.inline_bytes:
            return replace(self, tail=tail)
        parts, retired = list(self.parts), list(self.retired)
        while parts and parts[-1].length <= len(tail):
            merged = parts.pop()
            tail = self._content(merged) + tail
            retired.append((merged.name, self.batch))
        part = Part(len(tail), tail[-_DIGEST_BYTES:])
        self.archive.write(part.name, tail)
        kept = tuple((name, batch) for name, batch in retired if name != part.name)
        return replace(self, tail=b"", parts=(*parts, part), retired=kept)

    @property
    def has_left_parts(self) -> bool:
        """True if the journal has become small, and parts of the large journal are still to be removed."""
        return bool(self.retired) and not self.parts

    def swept(self) -> Self:
        """Remove the retired parts of states that Spark no longer keeps, and return the journal without them."""
        kept_from = self.batch - self.tuning.retained_micro_batches
        if self.archive is None or not self.retired or self.retired[0][1] > kept_from:
            return self
        kept = tuple((name, batch) for name, batch in self.retired if batch > kept_from)
        for name, _ in self.retired[: len(self.retired) - len(kept)]:  # in order of their micro-batches
            self.archive.remove(name)
        return replace(self, retired=kept)


def flaw_of_part(name: str, data: bytes) -> str | None:
    """Return the defect visible in the part's own bytes, or None.

    The digest of the first segment also covers the previous part, so this digest is not checked here. It is checked
    when the journal is read.
    """
    digest, _, length = name.partition("-")
    if str(len(data)) != length:
        return f"it is {len(data)} bytes long"
    first = _segment_length(data[:_LENGTH_BYTES])
    if data[-_DIGEST_BYTES:].hex() != digest or first > len(data):
        return "it does not end with its digest"
    try:
        for _ in _decode_segments(data, first, data[first - _DIGEST_BYTES : first]):
            pass
    except (StateCorrupted, ValueError):
        return "it fails its checksum"
    return None


def _segment(change: Any, previous_digest: bytes) -> bytes:
    body: bytes = msgpack.packb(change)
    return b"".join((len(body).to_bytes(_LENGTH_BYTES), body, _digest(body, previous_digest)))


def _segment_length(data: bytes) -> int:
    return _LENGTH_BYTES + _length(data, 0) + _DIGEST_BYTES


def _digest(body: bytes | memoryview, previous_digest: bytes) -> bytes:
    return blake2b(body, key=previous_digest, digest_size=_DIGEST_BYTES).digest()


def _length(data: bytes, start: int) -> int:
    return int.from_bytes(data[start : start + _LENGTH_BYTES])


def _part_named(part: Part) -> str:
    return f"the part {part.name} of the state, a file in `parts` of the checkpoint,"


def _decode_segments(data: bytes, start: int, digest: bytes, where: str = "a state value") -> Iterator[Any]:
    """Yield the changes of the segments from an offset on; the first continues the given digest."""
    view = memoryview(data)
    while start < len(data):
        body_start = start + _LENGTH_BYTES
        body_end = body_start + _length(data, start)
        body = view[body_start:body_end]
        digest = _digest(body, digest)
        start = body_end + _DIGEST_BYTES
        if data[body_end:start] != digest:
            raise StateCorrupted(f"{where} fails its checksum; {_WAY_OUT}")
        yield msgpack.unpackb(body, use_list=False)
