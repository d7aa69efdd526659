"""The folder of a local checkpoint: whether it can be used, before anything is started for it."""

import errno
import os
from pathlib import Path
from urllib.parse import unquote, urlparse

from streaming.errors import CheckpointUnusable


def local_path(location: str) -> Path | None:
    """Return the folder of a checkpoint; None if it is on another file system than this machine's."""
    url = urlparse(location)
    if url.scheme == "file":
        return Path(unquote(url.path))
    return None if url.scheme else Path(location)


def check(location: str, *, writes: bool) -> None:
    """Check that the folder of a checkpoint can be used; other file systems are left to their clients.

    Args:
        location: its directory or URI.
        writes: the folder is written to, and created if it does not exist.

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
    """Return the reason why a folder cannot be used; blank if it can."""
    existing = path
    while not _exists(existing):
        existing = existing.parent
    if not existing.is_dir():
        return f"{existing} is {'a link that leads nowhere' if not existing.exists() else 'not a folder'}"
    if existing != path:
        return _refusal(existing) if writes else ""
    names = (path, *(each for each in (path / "query", path / "parts") if each.is_dir()))
    if not all(os.access(each, os.R_OK | os.X_OK) for each in names):
        return os.strerror(errno.EACCES)
    return next(filter(None, map(_refusal, names)), "") if writes else ""


def _exists(path: Path) -> bool:
    """Return True if there is something of that name, if only a link; unlike `os.path.lexists`, raise other errors."""
    try:
        path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


def _refusal(folder: Path) -> str:
    """Return the reason why a folder cannot be written to; blank if it can."""
    if os.access(folder, os.W_OK | os.X_OK):
        return ""
    is_read_only = bool(os.statvfs(folder).f_flag & os.ST_RDONLY)
    return f"{folder}: {os.strerror(errno.EROFS if is_read_only else errno.EACCES)}"
