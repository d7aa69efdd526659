"""State values as bytes: a log of changes, so that a small change costs a small write and a small read.

    header   "rx", format version
    segment  length of the body (4 bytes), body (MessagePack), digest (16 bytes)
    ...

The digest of a segment covers its body and the digest before it. So the last digest is the checksum of the whole and
the identity of what the log amounts to: a worker that has read the log up to a digest reads on from there.
"""

from collections.abc import Callable, Iterator, Mapping
from hashlib import blake2b
from typing import Any, NamedTuple, TypeVar

import msgpack

from streaming.errors import StateCorrupted, StateFormatUnknown

K = TypeVar("K")
V = TypeVar("V")

FORMAT = 2
_HEADER = b"rx" + bytes([FORMAT])
_DIGEST_BYTES = 16
_LENGTH_BYTES = 4
_SLACK_BYTES = 4_096

_WAY_OUT = "restore the checkpoint from a copy or start with an empty one"


class Position(NamedTuple):
    """A place in a log: where a segment ends, and its digest."""

    end: int
    digest: bytes


def begin(change: Any) -> bytes:
    """A log of one change, made of plain values."""
    return _HEADER + _segment(change, b"")


def append(log: bytes, change: Any) -> bytes:
    """The log with one more change at its end."""
    return log + _segment(change, log[-_DIGEST_BYTES:])


def grow(log: bytes | None, change: Any, whole: Callable[[], Any]) -> bytes:
    """The log with one more change at its end, or a fresh one of the whole where that is better.

    Args:
        log: what there is; None for nothing.
        change: made of plain values.
        whole: gives the one change that amounts to all of it.
    """
    if log is not None:
        grown = append(log, change)
        if not is_long(grown):
            return grown
    return begin(whole())


def overlay(target: dict[K, V], changes: Mapping[K, V | None]) -> None:
    """Makes changes by key; None forgets one."""
    for key, value in changes.items():
        if value is None:
            target.pop(key, None)
        else:
            target[key] = value


def position(log: bytes) -> Position:
    """The end of a log."""
    return Position(len(log), log[-_DIGEST_BYTES:])


def continues(log: bytes, read: Position) -> bool:
    """Whether a log begins with what was read up to that position."""
    return len(log) >= read.end and log[read.end - _DIGEST_BYTES : read.end] == read.digest


def is_long(log: bytes) -> bool:
    """Whether the changes have outgrown the first segment, so that one fresh segment is the better log.

    Rewriting then costs as much as was appended since the last time: constant work for each byte of change.
    """
    first = len(_HEADER) + _LENGTH_BYTES + _body_length(log, len(_HEADER)) + _DIGEST_BYTES
    return len(log) > 2 * first + _SLACK_BYTES


def read(log: bytes, after: Position | None = None) -> Iterator[Any]:
    """The changes of a log in order, from its beginning or from a position.

    Raises:
        StateCorrupted: the bytes are not those that were written.
        StateFormatUnknown: another release wrote them.
    """
    if after is None:
        _check_header(log)
        at, digest = len(_HEADER), b""
    else:
        at, digest = after
    view = memoryview(log)
    while at < len(log):
        start = at + _LENGTH_BYTES
        end = start + _body_length(log, at)
        body = view[start:end]
        digest = _digest(body, digest)
        at = end + _DIGEST_BYTES
        if log[end:at] != digest:
            raise StateCorrupted(f"a state value fails its checksum; {_WAY_OUT}")
        yield msgpack.unpackb(body, use_list=False)


def _segment(change: Any, former: bytes) -> bytes:
    body: bytes = msgpack.packb(change)
    return b"".join((len(body).to_bytes(_LENGTH_BYTES), body, _digest(body, former)))


def _digest(body: bytes | memoryview, former: bytes) -> bytes:
    return blake2b(body, key=former, digest_size=_DIGEST_BYTES).digest()


def _body_length(log: bytes, at: int) -> int:
    return int.from_bytes(log[at : at + _LENGTH_BYTES])


def _check_header(log: bytes) -> None:
    if len(log) <= len(_HEADER) or log[:2] != _HEADER[:2]:
        raise StateCorrupted(f"a state value lacks its header; {_WAY_OUT}")
    if log[2] != FORMAT:
        raise StateFormatUnknown(
            f"a state value has format {log[2]}, this release reads {FORMAT}; use the one that wrote it"
        )
