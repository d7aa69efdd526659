"""Where downloads live, and how they get there whole."""

from __future__ import annotations

import fcntl
import os
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


def cache_folder() -> Path:
    """The folder of everything downloaded: `$XDG_CACHE_HOME/reexpand`, by default `~/.cache/reexpand`."""
    given = os.environ.get("XDG_CACHE_HOME", "")
    # The XDG specification asks to ignore a relative path.
    base = Path(given) if given.startswith("/") else Path.home() / ".cache"
    return base / "reexpand"


@contextmanager
def locked(path: Path) -> Iterator[IO[str]]:
    """Hold the lock file `path`, waiting for whoever holds it; the kernel frees it when all holders are gone."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield file


def write_whole(path: Path, content: bytes, mode: int = 0o644) -> None:
    """Write a file that readers see either not at all or complete."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_bytes(content)
    temporary.chmod(mode)
    temporary.replace(path)
