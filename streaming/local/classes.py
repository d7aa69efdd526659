"""Compiled Java classes: jars of this package's own sources, and the archive that speeds up the start of Spark.

Janino, the compiler that Spark uses for generated code, compiles the sources without a JDK. The jars are stored next to
the downloaded ones, under a digest of the sources and their libraries.

The archive uses Java's class data sharing: its classes are already loaded and verified. It fits one Java and one class
path, so its name contains a digest of both. Without a matching archive, Java starts normally.

Functions raise `JarsUnavailable` if a library is missing, or a file cannot be made or stored.
"""

from __future__ import annotations

import hashlib
import io
import os
import shlex
import tempfile
import time
import zipfile
from contextlib import suppress
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from streaming.local import jars
from streaming.local.java import FIRST_TIER, find_java
from streaming.local.process import cache_folder, run_tool, storing, write_whole

if TYPE_CHECKING:
    from collections.abc import Sequence

SOURCES = Path(__file__).parents[1] / "spark" / "jvm"
"""Folder of the Java sources of the sink, which PySpark cannot express."""

_ROCKETMQ_SOURCES = Path(__file__).parent / "jvm"

LAUNCH_VARIABLE = "SPARK_PRINT_LAUNCH_COMMAND"
"""Environment variable that makes Spark's launcher print the command of the JVM."""

_LAUNCH = "Spark Command: "

_ORDER = "jars before those of Spark"
"""Order of the class path; Java ignores an archive with another one."""

_QUIET = ("-Xlog:disable", "-Xlog:all=error:stderr")
"""Options that suppress messages about classes missing from the archive."""

_UNUSED_SECONDS = 90 * 86_400
"""Time without a start after which an archive of another Java or class path is removed."""


def sink() -> Path:
    """Return the jar of the sink. Compile it if it is not in the cache."""
    return _compiled("reexpand-sink.jar", SOURCES, jars.LOCAL, [*jars.pyspark(), *jars.spark()])


def rocketmq() -> Path:
    """Return the jar that starts RocketMQ. Compile it if it is not in the cache."""
    return _compiled("reexpand-rocketmq.jar", _ROCKETMQ_SOURCES, jars.ROCKETMQ, jars.rocketmq())


def _compiled(name: str, folder: Path, versions: jars.JarSets, libraries: list[Path]) -> Path:
    """Return the jar of the Java sources in a folder, compiled with these libraries."""
    sources = sorted(folder.rglob("*.java"))
    content = b"".join(source.read_bytes() for source in sources)
    seed = f"{versions.folder.name} {version('pyspark')}".encode()
    root = cache_folder() / "jars"
    target = root / f"classes-{hashlib.sha256(seed + content).hexdigest()[:16]}" / name
    if target.exists():
        return target
    with storing(f"The jar {name}", root / "lock-classes") as lock, tempfile.TemporaryDirectory() as temporary:
        if not target.exists():  # otherwise another process has compiled it
            command = [
                *(str(find_java().executable), FIRST_TIER, "-cp", os.pathsep.join(map(str, jars.pyspark()))),
                "org.codehaus.commons.compiler.samples.CompilerDemo",
                *("-g", "-d", temporary, "-classpath", os.pathsep.join(map(str, libraries)), *map(str, sources)),
            ]
            run_tool(command, lock, f"Java classes of this package cannot be compiled. Remove {root} and try again.")
            jar = io.BytesIO()
            with zipfile.ZipFile(jar, "w", zipfile.ZIP_DEFLATED) as archive:
                for file in sorted(Path(temporary).rglob("*.class")):
                    archive.write(file, file.relative_to(temporary).as_posix())
            write_whole(target, jar.getvalue())
    return target


def archive_file(home: Path, class_path: Sequence[Path]) -> Path:
    """Return an archive's path for jars besides Spark's own; it may not exist."""
    try:
        release = (home / "release").read_bytes()
    except OSError:  # a wrapper, whose path contains a digest of its Java
        release = b""
    spec = find_spec("pyspark")  # located instead of imported, which takes long
    parts = [_ORDER, str(home), str(spec and spec.origin), version("pyspark"), *map(str, class_path)]
    digest = hashlib.sha256("\n".join(parts).encode() + release).hexdigest()[:16]
    return cache_folder() / "classes" / f"{digest}.jsa"


def archive_options(class_path: Sequence[Path]) -> list[str]:
    """Return the JVM options that use the archive for these jars; none if there is no archive."""
    home = os.environ.get("JAVA_HOME")
    if not home:  # spark-submit with another Java
        return []
    file = archive_file(Path(home), class_path)
    if not file.exists():
        return []
    with suppress(OSError):  # the cache of another user
        file.touch()  # it is in use
    return [f"-XX:SharedArchiveFile={file}", "-Xshare:auto", *_QUIET]


def make_archive(target: Path, classes: Path, log: str) -> None:
    """Create the archive of the classes that a job has loaded, and remove archives that no job uses any more.

    Java wrote their names to `classes` (`-XX:DumpLoadedClassList`). The job was started with `LAUNCH_VARIABLE`.
    """
    words = shlex.split(next(line for line in log.splitlines() if line.startswith(_LAUNCH)).removeprefix(_LAUNCH))
    partial = target.with_suffix(f".{os.getpid()}")
    command = [
        words[0],
        *("-Xshare:dump", f"-XX:SharedClassListFile={classes}", f"-XX:SharedArchiveFile={partial}", *_QUIET),
        *("-cp", words[words.index("-cp") + 1]),
    ]
    with storing("The archive of Spark's classes", target.parent / "lock") as lock:
        try:
            run_tool(command, lock, "Java cannot create an archive of Spark's classes.")
            partial.replace(target)
        finally:
            partial.unlink(missing_ok=True)
        for other in target.parent.glob("*.jsa"):
            if other.stat().st_mtime < time.time() - _UNUSED_SECONDS:
                other.unlink()
