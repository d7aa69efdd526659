"""Fixtures that tests of several packages use."""

import sys
from collections.abc import Iterator

import pytest


@pytest.fixture
def frequent_switches() -> Iterator[None]:
    """Threads that take turns every few instructions."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)
