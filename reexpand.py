"""Start of the `reexpand` command, after a check that the packages `matcher` and `streaming` are its own.

Their names are common ones: an installer lets another distribution overwrite files of the same name without a word.
"""

import csv
import sys
from base64 import urlsafe_b64encode
from collections.abc import Mapping
from hashlib import sha256
from importlib.metadata import distribution, distributions
from importlib.util import find_spec
from pathlib import Path

PACKAGES = ("matcher", "streaming")
"""Packages of the distribution."""


def main() -> None:
    """Run the command, or say who has overwritten its packages."""
    for package in PACKAGES:
        problem = conflict(package)
        if problem:
            sys.exit(f"Error: {problem}")
    from streaming.cli import main as command  # noqa: PLC0415 - the packages are checked first

    command()


def conflict(package: str) -> str | None:
    """Return a sentence about a package that is not the one of this distribution, or None.

    It is not imported. An installation for development leads to sources elsewhere, which are not checked.
    """
    recorded = _recorded(distribution("reexpand").read_text("RECORD") or "", package)
    if not recorded:
        return None
    spec = find_spec(package)
    folder = Path(next(iter(spec.submodule_search_locations or [""]), "")) if spec else Path()
    wrong = [name for name, digest in recorded.items() if _digest(folder.parent / name) != digest]
    if not wrong:
        return None
    owners = [
        f"{other.name} {other.version}"
        for other in distributions()
        if other.name != "reexpand" and _recorded(other.read_text("RECORD") or "", package)
    ]
    return (
        f"the package {package} in {folder} is not the one of reexpand: {wrong[0]} is missing or another one. "
        + (f"{' and '.join(owners)} brought a package of the same name. " if owners else "")
        + "Only one of them can be in an environment: make another one for reexpand "
        "(`python -m venv reexpand-env`), or remove the other distribution, and then install reexpand anew "
        "(`pip install --force-reinstall --no-deps reexpand`, or from where it came)."
    )


def _recorded(record: str, package: str) -> Mapping[str, str]:
    """Return the digests of a package's folders, each one's `__init__.py`, from the list of an installation.

    A distribution with a package of the same name overwrites the first of them; to read all files takes too long.
    """
    rows = csv.reader(record.splitlines())
    return {row[0]: row[1] for row in rows if row[0].startswith(f"{package}/") and row[0].endswith("/__init__.py")}


def _digest(file: Path) -> str | None:
    """Return the digest of a file as installers write it, None where there is no such file."""
    try:
        content = file.read_bytes()
    except OSError:
        return None
    return f"sha256={urlsafe_b64encode(sha256(content).digest()).rstrip(b'=').decode()}"
