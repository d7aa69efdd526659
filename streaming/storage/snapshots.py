"""Snapshots of large states: files that all workers of a machine map into memory, instead of decoding journals.

A snapshot is derived from a journal up to a position, and named after it. It is only a shortcut: a journal that does
not continue a snapshot, or a damaged snapshot, is read from its beginning. So snapshots need no backup.

A file ends with the boot id of the machine that wrote or verified it. So its checksum is verified once per boot, not by
each worker.
"""

import os
import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NamedTuple
from uuid import UUID, uuid4

import msgpack
import numpy as np
import numpy.typing as npt

from matcher import CorruptIndex
from matcher.batch.codec import dump, load
from streaming.storage.journal import Journal, Position

_NAME: Final = re.compile(r"snapshot-(\d+)-([0-9a-f]{32})")
_ABANDONED_SECONDS: Final = 3_600
"""Time after which an unfinished snapshot is of a worker that was killed."""

_UNKNOWN: Final = bytes(16)
"""Boot id of a system that has none."""

_KIND: Final = "shard 5"
"""Name and version of the content; a snapshot of another version is not used. Within a version, a pattern that
`Spelling` accepts must stay accepted."""

_TYPES: Final = {
    "secret": "|u1",
    **{
        f"{table}_{part}": number
        for table in ("topic", "client", "entry")
        for part, number in (("texts", "|u1"), ("bounds", "<u4"), ("hashed", "<u8"))
    },
    "values": "|u1",
    "value_bounds": "<u4",
    "holder_bounds": "<u4",
    "holders": "<u4",
    "block_clients": "<u4",
    "block_orders": "<f8",
    "block_kinds": "|u1",
    "pattern_keys": "<u8",
    "pattern_shapes": "|u1",
    "posting_rows": "<u4",
    "posting_bounds": "<u4",
    "posting_counts": "|u1",
    "others": "|u1",
}
"""Arrays (see `TextTable`, `Postings`, `ClientTable`, `SettledInterests`), and all else as MessagePack, with the types
of their numbers."""


class Content(NamedTuple):
    """Content of a snapshot: arrays, and all that is not in arrays, as plain values."""

    arrays: Mapping[str, npt.NDArray[Any]]
    others: Any


class Snapshots(NamedTuple):
    """Snapshots of one key.

    Attributes:
        folder: their folder, which the first one creates.
    """

    folder: Path

    def latest(self, journal: Journal, known: Position | None = None) -> Position | None:
        """Return the position of the latest snapshot that a journal continues; None if there is none.

        If it is the known one, the journal is taken to continue it.
        """
        positions = sorted(self._positions(), reverse=True)
        if known in positions[:1]:
            return known
        return next(filter(journal.continues, positions), None)

    def read(self, position: Position) -> Content | None:
        """Map a snapshot; return None if it is gone. A damaged one is removed."""
        from pyarrow import memory_map  # noqa: PLC0415 - the extra inspect does without

        path, boot = self.folder / _name(position), _boot_id()
        try:
            with memory_map(str(path)) as file:
                data = memoryview(file.read_buffer())  # keeps the mapping, not the file
            is_intact = boot != _UNKNOWN and bytes(data[-len(boot) :]) == boot
            _, arrays = load(data[: -len(boot)], _KIND, _TYPES, is_intact=is_intact)
            others = msgpack.unpackb(arrays.pop("others"), use_list=False)
        except (CorruptIndex, ValueError):  # those of Arrow and MessagePack
            _remove(path)
            return None
        except OSError:
            return None
        if not is_intact and boot != _UNKNOWN:
            _mark(path, boot)
        return Content(arrays, others)

    def write(self, position: Position, content: Content, former: Position | None) -> bool:
        """Write a snapshot, and remove all but it and a former one, which a repeated micro-batch would continue.

        Returns:
            False if it cannot be written.
        """
        path = self.folder / _name(position)
        others = np.frombuffer(msgpack.packb(content.others), np.uint8)
        unfinished = path.with_name(f".{path.name}.{uuid4().hex}")
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with unfinished.open("wb") as file:
                file.write(dump({"kind": _KIND}, {**content.arrays, "others": others}))
                file.write(_boot_id())
                file.flush()
                os.fsync(file.fileno())  # a failed write must not leave a file that counts as intact
            unfinished.replace(path)
        except OSError:
            _remove(unfinished)
            return False
        with suppress(OSError):
            unwanted = {self.folder / _name(each) for each in self._positions() if each not in (position, former)}
            abandoned_at = path.stat().st_mtime - _ABANDONED_SECONDS
            for each in (*unwanted, *self.folder.glob(".snapshot-*")):
                if each in unwanted or each.stat().st_mtime < abandoned_at:
                    _remove(each)
        return True

    def clear(self) -> None:
        """Remove all snapshots."""
        for each in self._positions():
            _remove(self.folder / _name(each))

    def _positions(self) -> list[Position]:
        try:
            found = [_NAME.fullmatch(path.name) for path in self.folder.iterdir()]
        except OSError:
            return []
        return [Position(int(each[1]), bytes.fromhex(each[2])) for each in found if each is not None]


def _boot_id() -> bytes:
    """Return an id that changes at each boot (`random(4)`), or `_UNKNOWN`."""
    try:
        return UUID(Path("/proc/sys/kernel/random/boot_id").read_text().strip()).bytes
    except (OSError, ValueError):
        return _UNKNOWN


def _mark(path: Path, boot: bytes) -> None:
    """Write the boot id at the end of a snapshot."""
    with suppress(OSError), path.open("r+b") as file:
        file.seek(-len(boot), os.SEEK_END)
        file.write(boot)


def _remove(path: Path) -> None:
    with suppress(OSError):
        path.unlink()


def _name(position: Position) -> str:
    return f"snapshot-{position.end}-{position.digest.hex()}"
