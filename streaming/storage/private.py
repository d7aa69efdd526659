"""Files of a checkpoint that only its owner may read, on local file systems."""

import os
from contextlib import suppress
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlparse

_OTHERS: Final = 0o077
_OWNER: Final = 0o600


def local_path(checkpoint: str, name: str) -> Path | None:
    """Return the path of a file of a checkpoint, or None if the checkpoint is not on a local file system."""
    url = urlparse(checkpoint)
    if url.scheme not in ("", "file"):
        return None
    return Path(unquote(url.path) if url.scheme else checkpoint) / name


def write_private(path: Path, content: bytes) -> None:
    """Create or replace a file at once, which nobody but its owner may read at any time.

    Raises:
        OSError: the file cannot be written.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    unfinished.unlink(missing_ok=True)
    try:
        with os.fdopen(os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _OWNER), "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        path.with_name(f".{path.name}.crc").unlink(missing_ok=True)  # Hadoop's checksum of a former content
        unfinished.replace(path)
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise


def make_private(path: Path) -> None:
    """Take a file, which an earlier release may have written, from all but its owner; leave one of another owner."""
    with suppress(OSError):
        mode = path.stat().st_mode
        if mode & _OTHERS:
            path.chmod(mode & ~_OTHERS)
