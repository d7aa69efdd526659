"""What tests must not see of the machine."""

import os

import pytest


def forget_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leaves no setting of the machine's in the environment, until the test ends."""
    for name in os.environ:
        if name.startswith("REEXPAND_"):
            monkeypatch.delenv(name)
