"""Isolation of tests from the machine's environment."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from streaming.config import _OTHER_VARIABLES, Settings

_FOREIGN: Final = {
    *(f"REEXPAND_{name.upper()}" for name in Settings.model_fields),
    *_OTHER_VARIABLES,
    "REEXPAND_CONSOLE_TOKEN",
    *("COLUMNS", "FORCE_COLOR", "NO_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"),
    *("PYSPARK_PYTHON", "PYSPARK_SUBMIT_ARGS", "PYTHONSAFEPATH", "SPARK_CONF_DIR", "SPARK_HOME"),
}
"""Variables with which the code under test has other settings, another output, or another Spark."""


def forget_machine() -> None:
    """Remove the machine's settings from the environment, and connect to this machine without a proxy."""
    for name in _FOREIGN & os.environ.keys():
        del os.environ[name]
    others = os.environ.get("no_proxy", os.environ.get("NO_PROXY", ""))
    os.environ["no_proxy"] = f"{others},127.0.0.1,localhost"


@contextmanager
def restored_environment() -> Iterator[None]:
    before = dict(os.environ)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)
