"""The package as a whole: its examples hold, and its core needs nothing."""

import doctest
import subprocess
import sys

import pytest

import matcher
from matcher.selectors import sql92


@pytest.mark.parametrize("module", [matcher, sql92], ids=lambda module: module.__name__)
def test_examples_in_docstrings_hold(module: object) -> None:
    """The examples in the documentation give the results shown there."""
    results = doctest.testmod(module)  # type: ignore[arg-type]
    assert results.attempted > 0
    assert results.failed == 0


def test_the_core_needs_the_standard_library_only() -> None:
    """Importing the package, its dialects and its selectors asks for no other package."""
    code = (
        "import sys\n"
        "for name in ('numpy', 'pyarrow', 'pandas', 'pyspark', 'lark', 'streaming'): sys.modules[name] = None\n"
        "import matcher, matcher.selectors\n"
        "assert matcher.matches('a__*', 'a__b')\n"
        "assert matcher.selectors.compile('TAG', 'a').agrees(['a'], {})\n"
    )
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True)


def test_everything_public_is_there() -> None:
    """Each name that the package promises exists."""
    assert all(hasattr(matcher, name) for name in matcher.__all__)
