"""The folder of a checkpoint: names in it, checks of a local folder, and local files that only their owner may read."""

import errno
import os
import stat
from contextlib import suppress
from pathlib import Path
from typing import Final
from urllib.parse import urlparse

from streaming.errors import CheckpointUnusable

IDENTITY: Final = "reexpand.json"
"""File with the settings that are fixed for the life of the checkpoint."""

QUERY: Final = "query"
"""Folder in which Spark keeps the query's progress and state."""

SIZES: Final = "monitor/sizes.json"
"""File with the sizes of the shards, for the metrics of the next driver."""

PARTS: Final = "parts"
"""Folder with the larger part of the states."""

_OTHERS: Final = 0o077
_OWNER: Final = 0o600
_PRIVATE: Final = 0o700
"""Mode of a folder that only its owner can read and write."""


def local_path(location: str) -> Path | None:
    """Return the folder of a checkpoint; None if it is on another file system than this machine's."""
    scheme = urlparse(location).scheme
    if scheme == "file":
        return Path(f"/{path_of(location).partition('/')[2]}")
    return None if scheme else Path(location)


def path_of(uri: str) -> str:
    """Return the part of a URI after its scheme: host or bucket, and path.

    Hadoop takes a path literally: it decodes nothing, and `?` and `#` belong to the path.
    """
    return uri.partition(":")[2].removeprefix("//")


def check(location: str, *, writes: bool) -> None:
    """Check that the folder of a checkpoint can be used, or created if it is to be written; skip other file systems.

    Raises:
        CheckpointUnusable: it is no folder, or may not be read or written.
    """
    path = local_path(location)
    if path is None:
        return
    try:
        problem = _problem(path.absolute(), writes=writes)
    except (OSError, ValueError) as error:
        problem = (error.strerror if isinstance(error, OSError) else None) or str(error)
    if problem:
        raise CheckpointUnusable(
            f"the checkpoint {location} cannot be used: {problem}. Give --checkpoint for a folder that this user may "
            f"{'read and write' if writes else 'read'}."
        )


def _problem(path: Path, *, writes: bool) -> str:
    existing = path
    while True:
        try:
            existing.lstat()  # also of a broken link
            break
        except (FileNotFoundError, NotADirectoryError):
            existing = existing.parent
    if not existing.is_dir():
        return f"{existing} is {'a link that leads nowhere' if not existing.exists() else 'not a folder'}"
    if existing != path:
        return _refusal(existing) if writes else ""
    names = (path, *(each for each in (path / QUERY, path / PARTS) if each.is_dir()))
    if not all(os.access(each, os.R_OK | os.X_OK) for each in names):
        return os.strerror(errno.EACCES)
    return next(filter(None, map(_refusal, names)), "") if writes else ""


def _refusal(folder: Path) -> str:
    if os.access(folder, os.W_OK | os.X_OK):
        return ""
    is_read_only = bool(os.statvfs(folder).f_flag & os.ST_RDONLY)
    return f"{folder}: {os.strerror(errno.EROFS if is_read_only else errno.EACCES)}"


def sync(path: Path | str) -> None:
    """Flush a local file or folder from memory to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_private(path: Path, content: bytes) -> None:
    """Create or replace a file atomically. Only its owner may read it at any time.

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


def private_folder(parent: Path) -> Path | None:
    """Return a folder for temporary files in another folder, which only this user can read and write.

    None if it cannot be made, or another user has made it.
    """
    folder = parent / f"reexpand-{os.getuid()}"
    try:
        folder.mkdir(mode=_PRIVATE, exist_ok=True)
        found = folder.lstat()
    except OSError:
        return None
    is_private = stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and stat.S_IMODE(found.st_mode) == _PRIVATE
    return folder if is_private else None


def make_private(path: Path) -> None:
    """Let only the owner read a file that an earlier release may have written; skip files of other users."""
    with suppress(OSError):
        mode = path.stat().st_mode
        if mode & _OTHERS:
            path.chmod(mode & ~_OTHERS)
