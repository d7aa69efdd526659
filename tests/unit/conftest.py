"""Fixtures that tests of several packages use."""

import sys
from collections.abc import Collection, Iterator, Mapping

import pytest

from tests.support.selector_kinds import offered


@pytest.fixture
def frequent_switches() -> Iterator[None]:
    """Threads that take turns every few instructions."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


class MinLength:
    """Selector of topics whose property `name` has a minimum length."""

    def __init__(self, text: str) -> None:
        self.least = int(text)

    def agrees(self, tags: Collection[str], properties: Mapping[str, str]) -> bool:  # noqa: ARG002 - the interface
        """Return True if the name is long enough; raise `KeyError` for a topic without a name."""
        return len(properties["name"]) >= self.least


@pytest.fixture
def min_length() -> Iterator[None]:
    """Install a package that offers the selector kind `MIN_LENGTH`."""
    with offered("MIN_LENGTH", MinLength):
        yield


@pytest.fixture
def no_java(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let `reexpand run` start no Java before the job."""
    monkeypatch.setattr("streaming.spark.session.brought", list)
    monkeypatch.setattr("streaming.spark.session.start_java", lambda *_: ({}, True))
