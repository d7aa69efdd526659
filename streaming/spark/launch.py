"""Launch of Spark's JVM: the environment that it gets, its start, and the priority of its compiler."""

import logging
import os
import re
import shlex
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import pyspark
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkRuntimeError

from streaming.errors import SparkUnavailable
from streaming.local.java import FIRST_TIER

log = logging.getLogger("reexpand")

SAFE_PATH: Final = "PYTHONSAFEPATH"
"""Variable by which Python does not import from the current folder, where another `streaming` may be."""

ARGUMENTS: Final = "PYSPARK_SUBMIT_ARGS"
_SHELL: Final = "pyspark-shell"
"""Last of the arguments; without it Spark does not start."""

_PYTHON: Final = "PYSPARK_PYTHON"
_HOME: Final = "SPARK_HOME"
_RELEASE: Final = pyspark.__version__
_UNSET: Final = f"Unset it to use the Spark {_RELEASE} that reexpand brings, or set it to a Spark {_RELEASE}."

_LAUNCHER: Final = "SPARK_LAUNCHER_OPTS"
"""Variable with options of the short-lived Java that composes the command of Spark's JVM."""

_COMPILER: Final = "C2 Compiler"
"""Beginning of the names of the threads of Java's optimizing compiler."""

_COMPILER_NICENESS: Final = 19
"""Niceness of these threads: they get what other threads leave, also with a backlog, which takes as long as with 0."""


def prepare(*, local: bool) -> None:
    """Set Spark's variables, and warn of variables that are ignored.

    A local job has Spark's workers in one JVM with the driver. Raises `SparkUnavailable` if `SPARK_HOME` is no Spark of
    this release.
    """
    os.environ[SAFE_PATH] = "1"
    _check_home()
    _set_launcher()
    _set_python(local=local)
    given = os.environ.get(ARGUMENTS)
    if given is not None:
        os.environ[ARGUMENTS] = kept = " ".join([*_options(given), _SHELL])
        if kept != given:  # not its text, which may hold passwords
            log.warning("of %s only options of the form --conf NAME=VALUE are used", ARGUMENTS)


def is_submitted() -> bool:
    """Return whether spark-submit runs this: it gives Python a gateway to a Spark whose options it has chosen."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


_confs: list[Mapping[str, str]] = []
"""Options with which this process has started its JVM, if it has."""


def start(conf: Mapping[str, str]) -> bool:
    """Start the JVM with options of Spark, unless there is one; return True if it was started with these options.

    Raises `SparkUnavailable` if it ends at once.
    """
    if _gateway() is not None:
        return conf in _confs
    try:
        SparkContext._ensure_initialized(conf=SparkConf(loadDefaults=False).setAll(list(conf.items())))  # noqa: SLF001
    except PySparkRuntimeError as error:
        if error.getCondition() != "JAVA_GATEWAY_EXITED":
            raise
        raise SparkUnavailable(
            "Spark does not start: Java has ended at once. What it said stands above; check SPARK_SUBMIT_OPTS, "
            "JAVA_TOOL_OPTIONS and the memory of this machine."
        ) from None
    jvm = _gateway().proc
    if jvm is None:  # spark-submit has started it
        return False
    _let_compiler_yield(jvm.pid)
    _confs[:] = [conf]
    return True


def _gateway() -> Any:
    return SparkContext._gateway  # noqa: SLF001 - PySpark does not expose it


def _let_compiler_yield(pid: int) -> None:
    """Let other threads precede Java's optimizing compiler, on Linux.

    It takes a third of the CPU time of a start, for code that pays only after minutes.
    """
    for thread in Path(f"/proc/{pid}/task").glob("*"):
        with suppress(OSError):
            if (thread / "comm").read_text().startswith(_COMPILER):
                os.setpriority(os.PRIO_PROCESS, int(thread.name), _COMPILER_NICENESS)


def _set_launcher() -> None:
    """Let Spark's launcher find its classes at once; else it opens 200 jars of its class path before the right one."""
    home = os.environ.get(_HOME) or str(Path(pyspark.__file__).parent)
    jar = next(Path(home, "jars").glob("spark-launcher_*.jar"), None)
    if jar is not None and _LAUNCHER not in os.environ and not re.search(r"[\s*?[]", str(jar)):  # the shell reads it
        os.environ[_LAUNCHER] = f"{FIRST_TIER} -Xbootclasspath/a:{jar}"


def _set_python(*, local: bool) -> None:
    given = os.environ.get(_PYTHON)
    if given and not local:
        return
    if given and given != sys.executable:
        log.warning("%s is %s; the job's workers run in its own Python, %s", _PYTHON, given, sys.executable)
    os.environ[_PYTHON] = sys.executable  # on a cluster: the Python of executors, wherever they are


def _check_home() -> None:
    given = os.environ.get(_HOME)
    if given is None:
        return
    names = [file.name for file in Path(given, "jars").glob("spark-core_*.jar")]
    releases = [found[1] for name in names if (found := re.fullmatch(r"spark-core_[\d.]+-(.+)\.jar", name))]
    if not releases or not Path(given, "bin", "spark-submit").is_file():
        raise SparkUnavailable(f"{_HOME} is {given or 'empty'}, where no Spark is. {_UNSET}")
    if _RELEASE not in releases:
        raise SparkUnavailable(f"{_HOME} is {given}, a Spark {releases[0]}. {_UNSET}")


def _options(arguments: str) -> Iterator[str]:
    """Yield the options of the form `--conf NAME=VALUE`, quoted."""
    try:
        words = shlex.split(arguments)
    except ValueError:
        return
    for option, value in pairwise(words):
        if option == "--conf" and "=" in value:
            yield f"--conf {shlex.quote(value)}"
