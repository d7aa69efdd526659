"""Parts of large states, as files beside the checkpoint."""

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyarrow.fs import LocalFileSystem

from streaming.errors import StateCorrupted
from streaming.storage import archive
from streaming.storage.archive import Folder
from streaming.storage.journal import Archive


def test_parts_are_files_of_their_key(tmp_path: Path) -> None:
    folder = Folder(str(tmp_path / "a checkpoint"))
    assert folder.problem() is None
    one, other = folder.of("p", 0), folder.of("p", 1)
    for parts in (one, other):
        parts.write("x", b"1")
        parts.write("x", b"1")
    one.remove("x")
    one.remove("x")
    assert other.read("x") == b"1"
    with pytest.raises(StateCorrupted, match=r"is missing, .*/x; restore the checkpoint"):
        one.read("x")
    assert files_in(tmp_path) == ["x"]


@pytest.mark.parametrize("form", ["{}", "{}/", "file:{}", "file://{}"])
def test_a_checkpoint_is_a_path_or_a_uri(tmp_path: Path, form: str) -> None:
    """In either its name is literal, as for Hadoop."""
    folder = tmp_path / "50%20 #1?"
    Folder(form.format(folder)).of("p", 0).write("x", b"1")
    assert Folder(str(folder)).of("p", 0).read("x") == b"1"
    assert list(tmp_path.iterdir()) == [folder]


@pytest.mark.parametrize("checkpoint", ["/proc/nowhere", "nosuch://host/path"])
def test_a_folder_that_cannot_be_created_is_reported(checkpoint: str) -> None:
    assert Folder(checkpoint).problem()


# Faults: a disk without room, a rename that fails, an upload that is broken off.


class Disk:
    """A local file system that passes for any kind, and counts the files opened for writing.

    A full disk takes one byte of each file; a disk that is stuck renames nothing.
    """

    def __init__(self, type_name: str = "local", *, full: bool = False, stuck: bool = False) -> None:
        self.type_name = type_name
        self.writes = 0
        self._full, self._stuck = full, stuck
        self._files = LocalFileSystem()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._files, name)

    @contextmanager
    def open_output_stream(self, path: str, **options: Any) -> Iterator[Any]:
        """Open a file."""
        self.writes += 1
        with self._files.open_output_stream(path, **options) as stream:
            yield SimpleNamespace(write=lambda data: self._write(stream, data))

    def _write(self, stream: Any, data: bytes) -> None:
        stream.write(data[:1] if self._full else data)
        if self._full:
            raise OSError(errno.ENOSPC, "No space left on device")

    def move(self, source: str, target: str) -> None:
        """Rename a file."""
        if self._stuck:
            raise OSError(errno.EIO, "Input/output error")
        self._files.move(source, target)


On = Callable[[Disk], Archive]


@pytest.fixture
def on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> On:
    """Reach the archive of one key through one disk after another."""

    def on(disk: Disk) -> Archive:
        monkeypatch.setattr(archive, "opened", lambda checkpoint: (disk, checkpoint))
        return Folder(str(tmp_path)).of("p", 0)

    return on


@pytest.mark.parametrize("disk", [Disk(full=True), Disk(stuck=True)])
@pytest.mark.rule("full-disk")
def test_a_part_that_cannot_be_written_leaves_nothing(tmp_path: Path, on: On, disk: Disk) -> None:
    """Each attempt has a file of its own, and a file left behind would keep a full disk full for ever."""
    with pytest.raises(OSError, match=r"No space left|Input/output"):
        on(disk).write("x", b"123")
    assert files_in(tmp_path) == []
    on(Disk()).write("x", b"123")
    assert on(Disk()).read("x") == b"123"


@pytest.mark.parametrize("kind", ["local", "s3"])
def test_a_part_that_is_there_is_not_written_again(on: On, kind: str) -> None:
    """Its name stands for its content. A repeated micro-batch goes on, although the disk is full by now."""
    on(Disk(kind)).write("x", b"123")
    full = Disk(kind, full=True)
    on(full).write("x", b"123")
    assert full.writes == 0
    assert on(full).read("x") == b"123"


def test_a_part_that_was_uploaded_in_part_is_written_again(on: On) -> None:
    """A failed write closes the stream, and closing completes the upload with the bytes sent so far."""
    with pytest.raises(OSError, match="No space left"):
        on(Disk("s3", full=True)).write("x", b"123")
    on(Disk("s3")).write("x", b"123")
    assert on(Disk("s3")).read("x") == b"123"


def test_a_part_whose_bytes_were_damaged_is_written_again(on: On) -> None:
    parts = on(Disk())
    parts.write("x", b"1?3")
    parts.write("x", b"123")
    assert parts.read("x") == b"123"


def files_in(folder: Path) -> list[str]:
    """Return the names of all files below a folder."""
    return [path.name for path in folder.rglob("*") if path.is_file()]


def test_a_part_is_on_the_disk_before_it_has_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A power loss must not leave a name without its bytes, nor a state that refers to a part without a name."""
    steps: list[str] = []

    def synced(descriptor: int) -> None:
        steps.append(str(Path(f"/proc/self/fd/{descriptor}").readlink().relative_to(tmp_path)))

    monkeypatch.setattr(os, "fsync", synced)
    parts = Folder(str(tmp_path)).of("p", 0)
    parts.write("one", b"1")
    (key,) = (tmp_path / "parts").iterdir()
    folder = f"parts/{key.name}"
    assert steps == ["parts", f"{folder}/one.{os.getpid()}", folder]
    parts.write("one", b"1")
    assert len(steps) == 3, "it is there already"
    parts.write("two", b"2")
    assert steps[3:] == [f"{folder}/two.{os.getpid()}", folder]
    assert parts.read("two") == b"2"
