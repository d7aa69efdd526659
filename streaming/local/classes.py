"""Jars of this package's own Java classes: a sink for Spark that PySpark cannot express, and a start of RocketMQ.

Janino compiles them, the compiler that Spark has for its own generated code: no development kit is needed. The jars lie
beside the downloaded ones, under a digest of the sources and of what they are compiled against.
"""

from __future__ import annotations

import hashlib
import io
import os
import tempfile
import zipfile
from collections import deque
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import IO

from streaming.errors import JarsUnavailable
from streaming.local import jars
from streaming.local.cache import cache_folder, locked, write_whole
from streaming.local.java import FIRST_TIER, find_java
from streaming.local.process import run

SOURCES = Path(__file__).parents[1] / "spark" / "jvm"
"""Folder of the Java sources of the sink."""

_ROCKETMQ_SOURCES = Path(__file__).parent / "jvm"
_LOG_LINES_SHOWN = 15
"""Number of lines of the compiler's output in an error message."""


def sink() -> Path:
    """Return the jar of the sink; compile it when it is not in the cache.

    Raises:
        JarsUnavailable: the jars that it is compiled against cannot be had, or it cannot be compiled or stored.
    """
    return _compiled("reexpand-sink.jar", SOURCES, jars.LOCAL, [*_spark_jars(), *jars.spark()])


def rocketmq() -> Path:
    """Return the jar that starts RocketMQ; compile it when it is not in the cache.

    Raises:
        JarsUnavailable: as for `sink`.
    """
    return _compiled("reexpand-rocketmq.jar", _ROCKETMQ_SOURCES, jars.ROCKETMQ, jars.rocketmq())


def _compiled(name: str, folder: Path, versions: jars.JarSets, libraries: list[Path]) -> Path:
    """Return the jar of the Java sources of a folder, compiled against some libraries."""
    sources = sorted(folder.rglob("*.java"))
    root = cache_folder() / "jars"
    target = root / f"classes-{_digest(sources, versions)}" / name
    if target.exists():
        return target
    try:
        with locked(root / "lock-classes") as lock, tempfile.TemporaryDirectory() as temporary:
            if not target.exists():  # else another process has compiled it meanwhile
                classes = Path(temporary)
                _compile(sources, libraries, classes, lock)
                write_whole(target, _packed(classes))
    except OSError as error:
        raise JarsUnavailable(
            f"The jar {name} cannot be stored in {root}: {error.strerror}. "
            "Make room there, or set XDG_CACHE_HOME to a folder that can be written."
        ) from error
    return target


def _digest(sources: list[Path], versions: jars.JarSets) -> str:
    content = b"".join(source.read_bytes() for source in sources)
    return hashlib.sha256(f"{versions.folder.name} {version('pyspark')}".encode() + content).hexdigest()[:16]


def _compile(sources: list[Path], libraries: list[Path], classes: Path, lock: IO[str]) -> None:
    """Compile the sources into a folder of class files."""
    log: deque[str] = deque(maxlen=_LOG_LINES_SHOWN)
    command = [
        *(str(find_java().executable), FIRST_TIER, "-cp", os.pathsep.join(map(str, _spark_jars()))),
        "org.codehaus.commons.compiler.samples.CompilerDemo",
        *("-g", "-d", str(classes), "-classpath", os.pathsep.join(map(str, libraries)), *map(str, sources)),
    ]
    if run(command, lock, lambda line: log.append(line.rstrip())):
        raise JarsUnavailable(
            f"Classes of this package cannot be compiled. Remove {cache_folder() / 'jars'} and try again. "
            "The end of the compiler's output:\n" + "\n".join(f"    {line}" for line in log)
        )


def _spark_jars() -> list[Path]:
    # Located, not imported: the import of PySpark takes long.
    spec = find_spec("pyspark")
    folders = spec.submodule_search_locations if spec else None
    return sorted(Path((folders or ["."])[0], "jars").glob("*.jar"))


def _packed(classes: Path) -> bytes:
    """Return a jar of the class files."""
    jar = io.BytesIO()
    with zipfile.ZipFile(jar, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in sorted(classes.rglob("*.class")):
            archive.write(file, file.relative_to(classes).as_posix())
    return jar.getvalue()
