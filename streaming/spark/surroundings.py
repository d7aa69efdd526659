"""Environment in which Spark is started, independent of the shell, a notebook or the current folder."""

import logging
import os
import re
import shlex
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Final

import pyspark

from streaming.errors import SparkUnavailable

log = logging.getLogger("reexpand")

SAFE_PATH: Final = "PYTHONSAFEPATH"
"""Variable by which Python does not import from the current folder, where another `streaming` may be."""

_ARGUMENTS: Final = "PYSPARK_SUBMIT_ARGS"
_SHELL: Final = "pyspark-shell"
"""Last of the arguments; without it Spark does not start."""

_PYTHON: Final = "PYSPARK_PYTHON"
_HOME: Final = "SPARK_HOME"


def prepare(*, local: bool) -> None:
    """Set the variables by which Spark starts with our own parts, and warn of variables that are ignored.

    Args:
        local: Spark's workers are on this machine, in one JVM with the driver.

    Raises:
        SparkUnavailable: `SPARK_HOME` is no Spark of this release.
    """
    os.environ[SAFE_PATH] = "1"
    _check_home()
    _set_python(local=local)
    given = os.environ.get(_ARGUMENTS)
    if given is not None:
        os.environ[_ARGUMENTS] = kept = " ".join([*_options(given), _SHELL])
        if kept != given:
            log.warning("of %s only options of the form --conf NAME=VALUE are used; it was %r", _ARGUMENTS, given)


def logs_json() -> bool:
    """Return True if the log of this process is JSON, so that Spark's is as well."""
    formatters = (type(handler.formatter) for handler in logging.getLogger().handlers)
    return any(kind.__name__ == "ProcessorFormatter" for formatter in formatters for kind in formatter.__mro__)


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
        raise SparkUnavailable(f"{_HOME} is {given or 'empty'}, where no Spark is. {_unset()}")
    if pyspark.__version__ not in releases:
        raise SparkUnavailable(f"{_HOME} is {given}, a Spark {releases[0]}. {_unset()}")


def _unset() -> str:
    release = pyspark.__version__
    return f"Unset it to use the Spark {release} that reexpand brings, or set it to a Spark {release}."


def _options(arguments: str) -> Iterator[str]:
    """Yield the options of the form `--conf NAME=VALUE`, quoted."""
    try:
        words = shlex.split(arguments)
    except ValueError:
        return
    for option, value in pairwise(words):
        if option == "--conf" and "=" in value:
            yield f"--conf {shlex.quote(value)}"
