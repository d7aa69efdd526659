"""What holds for all tests."""

import os
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

from streaming.storage import store
from tests.support.environment import forget_machine, restored_environment

forget_machine()

# A machine that does other work as well is slow at times, and right all the same. The examples of the usual run are the
# same each time; who asks for a number of them (make test-histories) gets new ones.
settings.register_profile(
    "reexpand",
    deadline=None,
    derandomize="REEXPAND_EXAMPLES" not in os.environ,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("reexpand")

store.SHORTCUT_ERRORS = ()  # a defect of snapshots fails the test that finds it


@pytest.fixture(autouse=True)
def _environment() -> Iterator[None]:
    """Undo what a test sets in the environment: the job sets variables for Spark, in this process as well."""
    with restored_environment():
        yield
