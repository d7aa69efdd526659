"""The archive of Java classes with which Spark's JVM starts: its classes are loaded and verified already.

Java calls this class data sharing. An archive fits one Java and one class path, so its name has a digest of both. Where
there is none, or it does not fit, Java starts as without it.
"""

from __future__ import annotations

import hashlib
import os
import shlex
from collections import deque
from contextlib import contextmanager
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from streaming.errors import JarsUnavailable
from streaming.local.cache import cache_folder, locked
from streaming.local.process import run

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

LAUNCH_VARIABLE = "SPARK_PRINT_LAUNCH_COMMAND"
"""Environment variable that lets Spark's launcher print the command of the JVM."""

_LAUNCH = "Spark Command: "
_LOG_LINES_SHOWN = 15
"""Number of lines of Java's output in an error message."""

_QUIET = ("-Xlog:disable", "-Xlog:all=error:stderr")
"""Options without which Java says of classes that the archive lacks why it lacks them."""


def archive(home: Path, class_path: Sequence[Path]) -> Path:
    """Return the file of an archive, whether it exists or not.

    Args:
        home: folder of the Java.
        class_path: jars beside Spark's own.
    """
    try:
        release = (home / "release").read_bytes()
    except OSError:  # a wrapper, whose path has a digest of what it starts
        release = b""
    spec = find_spec("pyspark")  # not imported: that takes long
    parts = [str(home), str(spec and spec.origin), version("pyspark"), *map(str, class_path)]
    digest = hashlib.sha256("\n".join(parts).encode() + release).hexdigest()[:16]
    return cache_folder() / "classes" / f"{digest}.jsa"


def options(class_path: Sequence[Path]) -> list[str]:
    """Return the options of a JVM that starts with the archive for these jars; none if there is no archive."""
    home = os.environ.get("JAVA_HOME")
    if not home:  # spark-submit on a Java of its own
        return []
    file = archive(Path(home), class_path)
    return [f"-XX:SharedArchiveFile={file}", "-Xshare:auto", *_QUIET] if file.exists() else []


def recording(classes: Path) -> list[str]:
    """Return the options of a JVM that writes the names of all loaded classes to a file."""
    return [f"-XX:DumpLoadedClassList={classes}"]


def make(target: Path, classes: Path, log: str) -> None:
    """Make the archive from the classes that a job has loaded.

    Args:
        target: name of the archive, from `archive`.
        classes: file that `recording` named.
        log: log of the job, started with `LAUNCH_VARIABLE`.

    Raises:
        JarsUnavailable: Java cannot make it, or it cannot be stored.
    """
    words = shlex.split(next(line for line in log.splitlines() if line.startswith(_LAUNCH)).removeprefix(_LAUNCH))
    shown: deque[str] = deque(maxlen=_LOG_LINES_SHOWN)
    partial = target.with_suffix(f".{os.getpid()}")
    command = [
        words[0],
        *("-Xshare:dump", f"-XX:SharedClassListFile={classes}", f"-XX:SharedArchiveFile={partial}", *_QUIET),
        *("-cp", words[words.index("-cp") + 1]),
    ]
    try:
        with locked(target.parent / "lock") as lock, _removed_at_the_end(partial):
            if run(command, lock, lambda line: shown.append(line.rstrip())):
                raise JarsUnavailable(
                    "Java cannot make an archive of Spark's classes. The end of its output:\n"
                    + "\n".join(f"    {line}" for line in shown)
                )
            partial.replace(target)
    except OSError as error:
        raise JarsUnavailable(
            f"The archive of Spark's classes cannot be stored in {target.parent}: {error.strerror}. "
            "Make room there, or set XDG_CACHE_HOME to a folder that can be written."
        ) from error


@contextmanager
def _removed_at_the_end(file: Path) -> Iterator[None]:
    try:
        yield
    finally:
        file.unlink(missing_ok=True)
