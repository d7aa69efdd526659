"""The library under the name of its distribution, and the start of the `reexpand` command.

    >>> import reexpand
    >>> reexpand.matcher.matches("pay__*", "pay__refund")
    True

The packages `matcher` and `streaming` have common names, and an installer overwrites files of the same name without a
warning. So both are checked before any of their code runs.
"""

import csv
import sys
from base64 import urlsafe_b64encode
from collections.abc import Mapping
from functools import cache
from hashlib import sha256
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from streaming import *  # noqa: F403

PACKAGES: Final = ("matcher", "streaming")
"""Packages of the distribution."""


def main() -> None:
    """Run the command, unless another distribution has overwritten its packages."""
    problem = conflicts()
    if problem is not None:
        sys.exit(f"Error: {problem}")
    from streaming.cli import main as command  # noqa: PLC0415 - the packages are checked first

    command()


@cache
def conflicts() -> str | None:
    """Return a sentence about the first package that another distribution has overwritten, or None."""
    return next(filter(None, map(conflict, PACKAGES)), None)


def conflict(package: str) -> str | None:
    """Return a sentence about a package that differs from the installed one, or None.

    A file of the user may hide it. The package is not imported. Sources of an editable installation, or on
    `PYTHONPATH`, are not checked.
    """
    recorded = _recorded(_own_record(), package)
    if not recorded:
        return None
    spec = find_spec(package)
    found = (spec.submodule_search_locations or [spec.origin or ""]) if spec else [""]
    place = Path(next(iter(found)))
    wrong = [name for name, digest in recorded.items() if _digest(place.parent / name) != digest]
    if not wrong:
        return None
    problem = f"the package {package} in {place} is not the one of reexpand"
    if spec and not place.is_relative_to(Path(__file__).parent.parent):
        return f"{problem}. Rename it, or run Python where it is not on the module search path."
    from importlib.metadata import distributions  # noqa: PLC0415 - takes a sixth of the command's start

    owners = [
        f"{other.name} {other.version}"
        for other in distributions()
        if other.name != "reexpand" and _recorded(other.read_text("RECORD") or "", package)
    ]
    return (
        f"{problem}: {wrong[0]} is missing or different. "
        + (f"{' and '.join(owners)} installed a package of the same name. " if owners else "")
        + "Only one of them can be in an environment: create another environment for reexpand "
        "(`python -m venv reexpand-env`), or remove the other distribution and reinstall reexpand "
        "(`pip install --force-reinstall --no-deps reexpand`, or from its original source)."
    )


def _own_record() -> str:
    """Return the record of the installation that contains this package; empty if there is none."""
    files = Path(__file__).parent.parent.glob("reexpand-*.dist-info/RECORD")
    return next((file.read_text(encoding="utf-8") for file in files), "")


def _recorded(record: str, package: str) -> Mapping[str, str]:
    """Return the digests of a package's `__init__.py` files from the record of an installation.

    A distribution with a package of the same name overwrites the first of them. Reading all files would take too long.
    """
    rows = csv.reader(record.splitlines())
    return {row[0]: row[1] for row in rows if row[0].startswith(f"{package}/") and row[0].endswith("/__init__.py")}


def _digest(file: Path) -> str | None:
    """Return the digest of a file in the form of installers, None if there is no such file."""
    try:
        content = file.read_bytes()
    except OSError:
        return None
    return f"sha256={urlsafe_b64encode(sha256(content).digest()).rstrip(b'=').decode()}"


if not TYPE_CHECKING:  # a type checker would accept any name

    def __getattr__(name: str) -> Any:
        """Import a public name of the library on first use.

        Raises:
            ImportError: another distribution has overwritten a package.
        """
        if name.startswith("_") and name not in ("__all__", "__version__"):
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        problem = conflicts()
        if problem is not None:
            raise ImportError(problem)
        library = import_module("streaming")
        if name != "__all__" and name not in library.__all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(library, name)

    def __dir__() -> list[str]:
        return sorted({*globals(), *__getattr__("__all__")})
