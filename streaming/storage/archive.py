"""Archive of journal parts, as files next to the checkpoint; see `streaming.storage.journal`."""

import contextlib
import os
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from pathlib import Path
from tempfile import gettempdir
from urllib.parse import urlparse

from pyarrow import ArrowException
from pyarrow.fs import FileSelector, FileSystem, FileType, LocalFileSystem

from streaming.errors import StateCorrupted
from streaming.storage import s3
from streaming.storage.folder import PARTS, local_path, path_of, private_folder, sync
from streaming.storage.journal import Archive
from streaming.storage.snapshots import Snapshots

_LOCAL = "local"
"""Arrow's name for the file system of this machine, mounts included."""

_OBJECT_STORES = ("s3", "gcs", "abfs")
"""File systems on which an object becomes visible as a whole, so a part needs no other name while it is written."""


@dataclass(frozen=True, slots=True)
class Folder:
    """Folder of all parts of a checkpoint, on any file system known to both Python and Spark.

    Attributes:
        checkpoint: its directory or URI.
    """

    checkpoint: str

    def of(self, parent: str, number: int) -> Archive:
        """Return the archive of one key.

        Each key has its own folder, because equal parts of two keys are removed at different times.
        """
        files, root = opened(self.checkpoint)
        return _KeyFolder(files, f"{root}/{PARTS}/{_folder_name(parent, number)}")

    def snapshots(self, parent: str, number: int) -> Snapshots | None:
        """Return the snapshots of one key: beside its parts, or on this machine if those are remote."""
        folder = local_path(self.checkpoint)
        root = _temporary_folder(self.checkpoint) if folder is None else folder / PARTS
        return None if root is None else Snapshots(root / _folder_name(parent, number))

    def remove_everywhere(self, name: str) -> None:
        """Remove the files of this name from the archives of all keys."""
        files, root = opened(self.checkpoint)
        for info in files.get_file_info(FileSelector(f"{root}/{PARTS}", recursive=True, allow_not_found=True)):
            if info.base_name == name:
                files.delete_file(info.path)

    def clear(self) -> None:
        """Remove the archives of all keys."""
        files, root = opened(self.checkpoint)
        files.delete_dir_contents(f"{root}/{PARTS}", missing_dir_ok=True)

    def problem(self) -> str | None:
        """Create the folder; return the reason if it cannot be used, else None."""
        try:
            files, root = opened(self.checkpoint)
            files.create_dir(f"{root}/{PARTS}", recursive=True)
        except (OSError, ValueError, ArrowException) as error:
            return str(error)
        return None


def _temporary_folder(checkpoint: str) -> Path | None:
    folder = private_folder(Path(gettempdir()))
    return folder and folder / blake2b(checkpoint.encode(), digest_size=8).hexdigest()


def _folder_name(parent: str, number: int) -> str:
    return f"{blake2b(parent.encode(), digest_size=8).hexdigest()}-{number}"


@lru_cache
def opened(checkpoint: str) -> tuple[FileSystem, str]:
    """Return the file system of a checkpoint, and its path there."""
    folder = local_path(checkpoint)
    if folder is not None:
        return LocalFileSystem(), str(folder).rstrip("/")
    url = urlparse(checkpoint)
    if url.scheme in s3.SCHEMES:
        from pyarrow.fs import S3FileSystem, resolve_s3_region  # noqa: PLC0415 - loads Amazon's SDK

        arguments = s3.S3Address.of().for_arrow()
        if "region" not in arguments:
            arguments["region"] = resolve_s3_region(url.netloc)
        return S3FileSystem(**arguments), path_of(checkpoint).rstrip("/")
    files, path = FileSystem.from_uri(checkpoint)
    return files, path.rstrip("/")


@dataclass(frozen=True, slots=True)
class _KeyFolder:
    """Parts of one key, a file each."""

    files: FileSystem
    folder: str

    def write(self, name: str, data: bytes) -> None:
        path = f"{self.folder}/{name}"
        with contextlib.suppress(OSError):
            if self._get(path) == data:
                return  # a repeated micro-batch writes its parts again; a damaged part is replaced
        if self.files.type_name in _OBJECT_STORES:
            self.files.create_dir(self.folder, recursive=True)
            # A failed upload is not removed: by now another attempt may have written the whole part under this name.
            self._put(path, data)
            return
        if self.files.get_file_info(self.folder).type is FileType.NotFound:
            self.files.create_dir(self.folder, recursive=True)
            self._settle(os.path.dirname(self.folder))  # noqa: PTH120 - a path of Arrow
        unfinished = f"{path}.{os.getpid()}"  # another attempt at the same task may write the same part
        try:
            self._put(unfinished, data)
            self._settle(unfinished)  # else a power loss could leave the name without the bytes
            self.files.move(unfinished, path)
            self._settle(self.folder)
        except BaseException:  # above all a full disk, which this file would keep full
            with contextlib.suppress(OSError):
                self.files.delete_file(unfinished)
            raise

    def _settle(self, path: str) -> None:
        if self.files.type_name == _LOCAL:  # Arrow has no call for it
            sync(path)

    def _put(self, path: str, data: bytes) -> None:
        with self.files.open_output_stream(path, compression=None) as stream:
            stream.write(data)

    def _get(self, path: str, start: int = 0) -> bytes:
        with self.files.open_input_file(path) as file:
            file.seek(start)
            return bytes(file.read())

    def read(self, name: str, start: int = 0) -> bytes:
        try:
            return self._get(f"{self.folder}/{name}", start)
        except FileNotFoundError:
            raise StateCorrupted(
                f"a part of the state is missing, {self.folder}/{name}; restore the checkpoint from a copy, "
                "or start with an empty one"
            ) from None

    def remove(self, name: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            self.files.delete_file(f"{self.folder}/{name}")
