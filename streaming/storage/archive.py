"""Parts of large states, as files beside the checkpoint; see `streaming.storage.journal`."""

import contextlib
import os
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from urllib.parse import unquote, urlparse

from pyarrow import ArrowException
from pyarrow.fs import FileSystem, LocalFileSystem

from streaming.errors import StateCorrupted
from streaming.storage.journal import Archive

_FOLDER = "parts"
_OBJECT_STORES = ("s3", "gcs", "abfs")
"""What of an object can be seen there is always all of it."""

_SCHEMES = {"s3a": "s3", "s3n": "s3"}


@dataclass(frozen=True, slots=True)
class Folder:
    """The folder of all parts of a checkpoint, on any file system that Python and Spark both know.

    Attributes:
        checkpoint: its directory or URI.
    """

    checkpoint: str

    def of(self, parent: str, number: int) -> Archive:
        """The archive of one key; it has a folder of its own, as equal parts of two keys end at different times."""
        files, root = _opened(self.checkpoint)
        return _Files(files, f"{root}/{_FOLDER}/{blake2b(parent.encode(), digest_size=8).hexdigest()}-{number}")

    def problem(self) -> str | None:
        """Makes the folder, and says why it cannot be used; None when it can."""
        try:
            files, root = _opened(self.checkpoint)
            files.create_dir(f"{root}/{_FOLDER}", recursive=True)
        except (OSError, ValueError, ArrowException) as error:
            return str(error)
        return None


@lru_cache
def _opened(checkpoint: str) -> tuple[FileSystem, str]:
    """The file system of a checkpoint, and its path there."""
    url = urlparse(checkpoint)
    if url.scheme in ("", "file"):
        return LocalFileSystem(), (unquote(url.path) if url.scheme else checkpoint).rstrip("/")
    files, path = FileSystem.from_uri(url._replace(scheme=_SCHEMES.get(url.scheme, url.scheme)).geturl())
    return files, path.rstrip("/")


@dataclass(frozen=True, slots=True)
class _Files:
    """The parts of one key."""

    files: FileSystem
    folder: str

    def write(self, name: str, data: bytes) -> None:
        self.files.create_dir(self.folder, recursive=True)
        path = f"{self.folder}/{name}"
        if self.files.type_name in _OBJECT_STORES:
            self._put(path, data)
            return
        being_written = f"{path}.{os.getpid()}"  # another attempt at the same task may write the same
        self._put(being_written, data)
        self.files.move(being_written, path)

    def _put(self, path: str, data: bytes) -> None:
        with self.files.open_output_stream(path, compression=None) as stream:
            stream.write(data)

    def read(self, name: str) -> bytes:
        try:
            with self.files.open_input_stream(f"{self.folder}/{name}", compression=None) as stream:
                return bytes(stream.read())
        except FileNotFoundError:
            raise StateCorrupted(
                f"a part of the state is missing, {self.folder}/{name}; restore the checkpoint from a copy, "
                "or start with an empty one"
            ) from None

    def remove(self, name: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            self.files.delete_file(f"{self.folder}/{name}")
