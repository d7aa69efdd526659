"""The file with the secret of a checkpoint."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from streaming.config import load
from streaming.operations import backup as manifest
from streaming.spark import notes
from streaming.storage import folder as storage
from streaming.worker.signature import SIGNATURE, Signer


@pytest.fixture(autouse=True)
def _open_umask() -> Iterator[None]:
    """A process whose files are open to all."""
    former = os.umask(0)
    yield
    os.umask(former)


def mode(file: Path) -> int:
    return stat.S_IMODE(file.stat().st_mode)


def signer(folder: Path) -> Signer:
    spark: Any = None
    return notes.signer(spark, load({"bootstrap_servers": "b:1", "checkpoint": str(folder)}), spark)


def test_only_its_owner_reads_the_secret_of_a_checkpoint(folder: Path) -> None:
    """The secret of an earlier release becomes private."""
    made = signer(folder)
    file = folder / SIGNATURE
    assert mode(file) == 0o600
    file.chmod(0o644)
    assert signer(folder) == made
    assert mode(file) == 0o600
    assert [each.name for each in folder.iterdir()] == [SIGNATURE]


def test_the_secret_is_never_there_for_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    replace = Path.replace

    def look(self: Path, target: Path) -> Path:
        seen.append(mode(self))
        return replace(self, target)

    monkeypatch.setattr(Path, "replace", look)
    (tmp_path / f".{SIGNATURE}.crc").write_text("of a former content")
    storage.write_private(tmp_path / SIGNATURE, b"secret")
    assert seen == [0o600]
    assert [each.name for each in tmp_path.iterdir()] == [SIGNATURE]


def test_a_copy_in_a_backup_is_private_too(folder: Path, tmp_path: Path) -> None:
    signer(folder)
    manifest.copied(folder / SIGNATURE, tmp_path / "backup" / SIGNATURE, SIGNATURE)
    assert mode(tmp_path / "backup" / SIGNATURE) == 0o600


@pytest.mark.parametrize(
    ("checkpoint", "path"),
    [
        ("/c%20#d", "/c%20#d"),
        ("file:/c%20d", "/c%20d"),
        ("file:///c?d#e f", "/c?d#e f"),
        ("file://localhost/c", "/c"),
        ("s3a://b/c", None),
        ("hdfs://n/c", None),
    ],
)
def test_checkpoints_on_local_file_systems(checkpoint: str, path: str | None) -> None:
    """A path in a URI is literal, as for Hadoop: both must use the same folder."""
    assert storage.local_path(checkpoint) == (None if path is None else Path(path))
