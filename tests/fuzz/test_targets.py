"""The targets of `make fuzz` hold on a few inputs, so that they do not rot between its runs."""

import random

import pytest

from tests.fuzz.run import TARGETS


@pytest.mark.parametrize("name", TARGETS)
def test_a_target_holds_on_random_bytes(name: str) -> None:
    """From no bytes at all to some hundreds."""
    draw = random.Random(name)
    for size in range(300):
        TARGETS[name](draw.randbytes(size))
