"""Cache folder of downloads, its locks, and atomic writes."""

from __future__ import annotations

import fcntl
import os
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


def cache_folder() -> Path:
    """Return the folder of all downloads: `$XDG_CACHE_HOME/reexpand`, by default `~/.cache/reexpand`."""
    given = os.environ.get("XDG_CACHE_HOME", "")
    # The XDG specification asks to ignore a relative path.
    base = Path(given) if given.startswith("/") else Path.home() / ".cache"
    return base / "reexpand"


@contextmanager
def locked(path: Path) -> Iterator[IO[str]]:
    """Wait for the lock file `path` and hold it; the kernel frees it when all its holders are gone."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield file


def write_whole(path: Path, content: bytes, mode: int = 0o644) -> None:
    """Write a file atomically: readers see all of it or nothing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.unlink(missing_ok=True)
    with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(content)
    temporary.chmod(mode)
    temporary.replace(path)
