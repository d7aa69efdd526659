"""Isolation of tests from the machine's environment."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

import pytest


@contextmanager
def restored_environment() -> Iterator[None]:
    """Restore the environment at the end."""
    before = dict(os.environ)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def forget_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Remove the machine's settings from the environment until the test ends."""
    for name in os.environ:
        if name.startswith("REEXPAND_"):
            monkeypatch.delenv(name)
