"""State values as journals of changes: a small change is a small write and a small read, however much is stored.

    header   "rx", format version
    head     length (4 bytes), MessagePack of (bytes that would do, parts, retired), digest (16 bytes);
             only the length, which is 0, while there are no parts
    segment  length of the body (4 bytes), body (MessagePack), digest (16 bytes)
    ...

The digest of a segment covers its body and the digest before it. So the last digest is the checksum of the whole and
the identity of what the journal amounts to: a worker that has read it up to a digest reads on from there.

Spark reads and writes the value of a key as a whole in each micro-batch that touches it. So segments do not stay in it
for ever: when they outgrow `Tuning.inline_bytes` they become a part, an immutable file in an archive beside the
checkpoint, and the value keeps its name. Parts no larger than a new one are merged with it, so that their number grows
with the logarithm of the journal, and a byte is written anew as often.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Any, NamedTuple, Protocol, Self, TypeVar

import msgpack

from streaming.errors import StateCorrupted, StateFormatUnknown
from streaming.tuning import DEFAULT_TUNING, Tuning

K = TypeVar("K")
V = TypeVar("V")

FORMAT = 4
READ_FORMATS = (3, FORMAT)
"""Format 3 knows less of when a client asked; what lacks that is read as before."""
_HEADER = b"rx" + bytes([FORMAT])
_DIGEST_BYTES = 16
_LENGTH_BYTES = 4

_WAY_OUT = "restore the checkpoint from a copy or start with an empty one"


class Archive(Protocol):
    """Where the parts of one key's journal are."""

    def write(self, name: str, data: bytes) -> None:
        """Writes a part, whole or not at all; what has the same name is the same."""

    def read(self, name: str) -> bytes:
        """A part.

        Raises:
            StateCorrupted: it is not there.
        """

    def remove(self, name: str) -> None:
        """Removes a part; one that is not there is no error."""


class Position(NamedTuple):
    """A place in a journal: how many bytes of segments are before it, and the digest of the last one."""

    end: int
    digest: bytes


START = Position(0, b"")


class Part(NamedTuple):
    """Segments in the archive: how many bytes, and the last one's digest."""

    length: int
    digest: bytes

    @property
    def name(self) -> str:
        """Names the content, so that a repeated micro-batch writes the same again."""
        return f"{self.digest.hex()}-{self.length}"


@dataclass(frozen=True, slots=True)
class Journal:
    """The value of one key.

    Attributes:
        archive: where its parts are; None keeps everything in the value.
        batch: the micro-batch that works on it.
        tail: the segments in the value.
        parts: the ones before them.
        live: of so many bytes, more or less, would be a journal of what it amounts to alone.
        retired: parts of former values, each with the micro-batch that needed it last.
    """

    archive: Archive | None = None
    batch: int = 0
    tail: bytes = b""
    parts: tuple[Part, ...] = ()
    live: int = 0
    retired: tuple[tuple[str, int], ...] = ()
    tuning: Tuning = DEFAULT_TUNING

    @classmethod
    def open(
        cls, value: bytes | None, archive: Archive | None = None, batch: int = 0, tuning: Tuning = DEFAULT_TUNING
    ) -> Self:
        """The journal of a stored value; None for one of nothing.

        Raises:
            StateCorrupted: the bytes are not those that were written.
            StateFormatUnknown: another release wrote them.
        """
        if value is None:
            return cls(archive, batch, tuning=tuning)
        start = _after_header(value)
        head = value[start : start + _length(value, start - _LENGTH_BYTES)]
        if not head:
            tail = value[start:]
            return cls(archive, batch, tail, live=_segment_length(tail), tuning=tuning)
        end = start + len(head) + _DIGEST_BYTES
        if value[end - _DIGEST_BYTES : end] != _digest(head, b""):
            raise StateCorrupted(f"the head of a state value fails its checksum; {_WAY_OUT}")
        live, parts, retired = msgpack.unpackb(head, use_list=False)
        return cls(archive, batch, value[end:], tuple(Part(*part) for part in parts), live, retired, tuning)

    @property
    def stored(self) -> bytes | None:
        """The value to store; None when nothing is left to remember."""
        if not (self.parts or self.retired):
            return b"".join((_HEADER, bytes(_LENGTH_BYTES), self.tail)) if self.tail else None
        head: bytes = msgpack.packb((self.live, self.parts, self.retired))
        return b"".join((_HEADER, len(head).to_bytes(_LENGTH_BYTES), head, _digest(head, b""), self.tail))

    @property
    def position(self) -> Position:
        """The end."""
        if self.tail:
            return Position(self._archived + len(self.tail), self.tail[-_DIGEST_BYTES:])
        return Position(self._archived, self.parts[-1].digest) if self.parts else START

    @property
    def _archived(self) -> int:
        return sum(part.length for part in self.parts)

    def continues(self, read: Position) -> bool:
        """Whether this is what was read up to that position, and what came after it."""
        end = 0
        for piece in self._pieces():
            if read.end < end + piece.length:
                at = read.end - end
                return self._content(piece)[max(0, at - _DIGEST_BYTES) : at] == read.digest
            end += piece.length
            if read.end == end:
                return piece.digest == read.digest
        return False

    def changes(self, after: Position = START) -> Iterator[Any]:
        """The changes in order, from the beginning or from a position that this journal `continues`.

        Raises:
            StateCorrupted: the bytes are not those that were written.
        """
        end, last = 0, after.digest
        for piece in self._pieces():
            if after.end < end + piece.length:
                yield from _read(self._content(piece), max(0, after.end - end), last)
                last = piece.digest
            end += piece.length

    def _pieces(self) -> list[Part]:
        """Where the segments are: the parts, and the value itself."""
        return [*self.parts, Part(len(self.tail), self.tail[-_DIGEST_BYTES:])] if self.tail else list(self.parts)

    def _content(self, piece: Part) -> bytes:
        return self._load(piece) if piece in self.parts else self.tail

    def _load(self, part: Part) -> bytes:
        if self.archive is None:
            raise StateCorrupted(
                "a part of the state is beside the checkpoint, which Python does not reach now; "
                "see the warning at the start of the job"
            )
        data = self.archive.read(part.name)
        if len(data) != part.length:
            raise StateCorrupted(f"a part of the state is {len(data)} bytes long, not {part.length}; {_WAY_OUT}")
        return data

    def append(self, change: Any, whole: Callable[[], Any], lasting: int = 0) -> Self:
        """The journal with one more change at its end, or one that begins with the whole where that is better.

        Writing anew then costs as much as was said since the last time that holds no more: constant work for each byte
        of change. What only adds is not written anew once it has parts, nor read again by other workers.

        Args:
            change: made of plain values.
            whole: gives the one change that amounts to all of it.
            lasting: how many bytes larger, more or less, the whole is for this change.
        """
        tail = self.tail + _segment(change, self.position.digest)
        live = max(1, self.live + lasting)
        if self.live and self._archived + len(tail) <= 2 * live + self.tuning.journal_slack_bytes:
            return replace(self._swept(), live=live).spill(tail)
        tail = _segment(whole(), b"")
        return replace(self.cleared(), live=len(tail)).spill(tail)

    def cleared(self) -> Self:
        """A journal of nothing, which remembers what to remove."""
        swept = self._swept()
        retired = (*swept.retired, *((part.name, self.batch) for part in self.parts))
        return replace(swept, tail=b"", parts=(), live=0, retired=retired)

    def spill(self, tail: bytes) -> Self:
        """With these segments behind its parts, in the archive if they are many."""
        if self.archive is None or len(tail) <= self.tuning.inline_bytes:
            return replace(self, tail=tail)
        parts, retired = list(self.parts), list(self.retired)
        while parts and parts[-1].length <= len(tail):
            merged = parts.pop()
            tail = self._load(merged) + tail
            retired.append((merged.name, self.batch))
        part = Part(len(tail), tail[-_DIGEST_BYTES:])
        self.archive.write(part.name, tail)
        kept = tuple(each for each in retired if each[0] != part.name)
        return replace(self, tail=b"", parts=(*parts, part), retired=kept)

    def _swept(self) -> Self:
        """Without the retired parts that no state refers to that Spark may go back to."""
        if (
            self.archive is None
            or not self.retired
            or self.retired[0][1] + self.tuning.retained_micro_batches > self.batch
        ):
            return self
        kept = tuple(each for each in self.retired if each[1] + self.tuning.retained_micro_batches > self.batch)
        for name, _ in self.retired[: len(self.retired) - len(kept)]:  # they stand in order of their batches
            self.archive.remove(name)
        return replace(self, retired=kept)


def overlay(target: dict[K, V], changes: Mapping[K, V | None]) -> None:
    """Makes changes by key; None forgets one."""
    for key, value in changes.items():
        if value is None:
            target.pop(key, None)
        else:
            target[key] = value


def _segment(change: Any, former: bytes) -> bytes:
    body: bytes = msgpack.packb(change)
    return b"".join((len(body).to_bytes(_LENGTH_BYTES), body, _digest(body, former)))


def _segment_length(data: bytes) -> int:
    return _LENGTH_BYTES + _length(data, 0) + _DIGEST_BYTES


def _digest(body: bytes | memoryview, former: bytes) -> bytes:
    return blake2b(body, key=former, digest_size=_DIGEST_BYTES).digest()


def _length(data: bytes, at: int) -> int:
    return int.from_bytes(data[at : at + _LENGTH_BYTES])


def _read(data: bytes, at: int, digest: bytes) -> Iterator[Any]:
    view = memoryview(data)
    while at < len(data):
        start = at + _LENGTH_BYTES
        end = start + _length(data, at)
        body = view[start:end]
        digest = _digest(body, digest)
        at = end + _DIGEST_BYTES
        if data[end:at] != digest:
            raise StateCorrupted(f"a state value fails its checksum; {_WAY_OUT}")
        yield msgpack.unpackb(body, use_list=False)


def _after_header(value: bytes) -> int:
    start = len(_HEADER) + _LENGTH_BYTES
    if value[:2] != _HEADER[:2] or len(value) <= start:
        raise StateCorrupted(f"a state value lacks its header; {_WAY_OUT}")
    if value[2] not in READ_FORMATS:
        raise StateFormatUnknown(
            f"a state value has format {value[2]}, this release reads {' and '.join(map(str, READ_FORMATS))}; "
            "use the one that wrote it"
        )
    return start
