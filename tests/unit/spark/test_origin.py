"""The file with the secret of a checkpoint."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from streaming.config import Settings, load
from streaming.operations import backup as manifest
from streaming.spark import notes
from streaming.storage import folder
from streaming.worker.signature import SIGNATURE, Signer


class Files:
    """Files of a checkpoint without Spark."""

    def __init__(self, _: object, root: str) -> None:
        self._root = Path(root)

    def exists(self, name: str) -> bool:
        """As Spark's."""
        return (self._root / name).exists()

    def read(self, name: str) -> bytes:
        """As Spark's."""
        return (self._root / name).read_bytes()

    def numbers(self, _: str) -> list[int]:
        """Of a new checkpoint."""
        return []


@pytest.fixture(autouse=True)
def _open_umask(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A process whose files are open to all."""
    monkeypatch.setattr(notes, "CheckpointFiles", Files)
    former = os.umask(0)
    yield
    os.umask(former)


def mode(file: Path) -> int:
    return stat.S_IMODE(file.stat().st_mode)


def settings(folder: Path) -> Settings:
    return load({"bootstrap_servers": "b:1", "checkpoint": str(folder)})


def signer(folder: Path) -> Signer:
    spark: Any = None
    return notes.signer(spark, settings(folder), spark)


def test_only_its_owner_reads_the_secret_of_a_checkpoint(tmp_path: Path) -> None:
    made = signer(tmp_path / "checkpoint")
    assert mode(tmp_path / "checkpoint" / SIGNATURE) == 0o600
    assert signer(tmp_path / "checkpoint") == made
    assert [each.name for each in (tmp_path / "checkpoint").iterdir()] == [SIGNATURE]


def test_the_secret_of_an_earlier_release_becomes_private(tmp_path: Path) -> None:
    made = signer(tmp_path)
    (tmp_path / SIGNATURE).chmod(0o644)
    assert signer(tmp_path) == made
    assert mode(tmp_path / SIGNATURE) == 0o600


def test_the_secret_is_never_there_for_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    replace = Path.replace

    def look(self: Path, target: Path) -> Path:
        seen.append(mode(self))
        return replace(self, target)

    monkeypatch.setattr(Path, "replace", look)
    (tmp_path / f".{SIGNATURE}.crc").write_text("of a former content")
    folder.write_private(tmp_path / SIGNATURE, b"secret")
    assert seen == [0o600]
    assert [each.name for each in tmp_path.iterdir()] == [SIGNATURE]


def test_a_copy_in_a_backup_is_private_too(tmp_path: Path) -> None:
    signer(tmp_path / "checkpoint")
    manifest.copied(tmp_path / "checkpoint" / SIGNATURE, tmp_path / "backup" / SIGNATURE, SIGNATURE)
    assert mode(tmp_path / "backup" / SIGNATURE) == 0o600


@pytest.mark.parametrize(
    ("checkpoint", "path"),
    [("/c", "/c"), ("file:/c%20d", "/c d"), ("file:///c", "/c"), ("s3a://b/c", None), ("hdfs://n/c", None)],
)
def test_checkpoints_on_local_file_systems(checkpoint: str, path: str | None) -> None:
    assert folder.local_path(checkpoint) == (None if path is None else Path(path))
