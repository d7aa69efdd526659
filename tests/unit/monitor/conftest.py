"""A clock that is set by hand."""

import pytest


class Time:
    """The time in seconds."""

    def __init__(self, now: float = 0.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def time() -> Time:
    return Time()
