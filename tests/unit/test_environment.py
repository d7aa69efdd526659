"""The environment of the tests."""

import os

import pytest

NAME = "REEXPAND_SET_BY_A_TEST"


@pytest.mark.xdist_group("environment")  # in one process
@pytest.mark.parametrize("number", [1, 2])
def test_a_variable_that_a_test_sets_is_gone_in_the_next_test(number: int) -> None:
    """Whichever of the two runs first."""
    assert NAME not in os.environ
    os.environ[NAME] = str(number)
