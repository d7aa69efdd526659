"""The packages of the image are those that the tests run with."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from packaging.requirements import Requirement

_ROOT = Path(__file__).parents[2]


def test_the_image_installs_what_the_tests_are_run_with() -> None:
    """Each package that the image locks is locked for development as well: same version, same files."""
    image, development = packages(_ROOT / "deploy" / "requirements.lock"), packages(_ROOT / "requirements.lock")
    assert image, "deploy/requirements.lock names no package"
    assert [name for name, files in image.items() if development.get(name) != files] == [], "run `make lock`"


def test_the_image_installs_all_that_the_project_depends_on() -> None:
    project = tomllib.loads((_ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    requirements = [*project["dependencies"], *project["optional-dependencies"]["job"]]
    wanted = {Requirement(text).name for text in requirements}
    locked = {package.partition("==")[0] for package in packages(_ROOT / "deploy" / "requirements.lock")}
    assert wanted - locked == set(), "run `make lock`"


def packages(lock: Path) -> dict[str, frozenset[str]]:
    entries = re.findall(r"^([\w.-]+==\S+)(.*?)(?=^\S|\Z)", lock.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    return {name: frozenset(re.findall(r"sha256:\w+", files)) for name, files in entries}
