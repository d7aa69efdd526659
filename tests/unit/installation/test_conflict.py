"""Packages of a common name: who has overwritten them is told before anything of them runs."""

import os
import shutil
import subprocess
import sys
from base64 import urlsafe_b64encode
from hashlib import sha256
from pathlib import Path

import pytest

import reexpand

OURS = {"matcher/__init__.py": "", "streaming/__init__.py": "", "streaming/cli/__init__.py": "def main(): print('ran')"}
START = "import reexpand; reexpand.main()"


def install(folder: Path, name: str, files: dict[str, str]) -> None:
    """Do as an installer does: write the files, whoever has them, and the list with their digests."""
    rows = []
    for path, text in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text, encoding="utf-8")
        digest = urlsafe_b64encode(sha256(text.encode()).digest()).rstrip(b"=").decode()
        rows.append(f"{path},sha256={digest},{len(text)}")
    information = folder / f"{name}-1.0.dist-info"
    information.mkdir()
    (information / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n", encoding="utf-8")
    (information / "RECORD").write_text("\n".join(rows), encoding="utf-8")


def start(folder: Path, *words: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    (folder / "reexpand").mkdir()
    for file in Path(reexpand.__file__).parent.glob("*.py"):
        (folder / "reexpand" / file.name).write_bytes(file.read_bytes())
    command = [sys.executable, "-S", *(words or ("-c", START))]  # without the packages of this environment
    surroundings = {name: value for name, value in os.environ.items() if name != "PYTHONSAFEPATH"}
    return subprocess.run(command, cwd=cwd or folder, env=surroundings, capture_output=True, text=True, check=False)


def test_the_module_starts_like_the_command(tmp_path: Path) -> None:
    """`python -m reexpand` checks the packages too."""
    install(tmp_path, "reexpand", OURS)
    assert start(tmp_path, "-m", "reexpand").stdout == "ran\n"
    (tmp_path / "matcher" / "__init__.py").write_text("print('theirs')")
    shutil.rmtree(tmp_path / "reexpand")
    result = start(tmp_path, "-m", "reexpand")
    assert (result.returncode, result.stdout) == (1, "")
    assert "the package matcher in" in result.stderr


@pytest.mark.parametrize("package", reexpand.PACKAGES)
def test_the_distribution_that_overwrote_a_package_is_named(tmp_path: Path, package: str) -> None:
    """Its code does not run."""
    install(tmp_path, "reexpand", OURS)
    install(tmp_path, "another", {f"{package}/__init__.py": "print('theirs')"})
    result = start(tmp_path)
    assert (result.returncode, result.stdout) == (1, "")
    assert f"the package {package} in {tmp_path / package} is not the one of reexpand" in result.stderr
    assert "another 1.0 installed a package of the same name" in result.stderr


def test_the_library_is_checked_before_its_first_use(tmp_path: Path) -> None:
    install(tmp_path, "reexpand", {**OURS, "streaming/__init__.py": "__all__ = ['Inspector']\nInspector = 1"})
    assert start(tmp_path, "-c", "import reexpand; print(reexpand.Inspector)").stdout == "1\n"
    shutil.rmtree(tmp_path / "reexpand")
    install(tmp_path, "another", {"streaming/__init__.py": "print('theirs')"})
    result = start(tmp_path, "-c", "import reexpand; reexpand.Inspector")
    assert result.stdout == ""
    assert "ImportError: the package streaming in" in result.stderr


def test_a_package_that_went_with_another_distribution_is_missed(tmp_path: Path) -> None:
    install(tmp_path, "reexpand", OURS)
    (tmp_path / "streaming" / "__init__.py").unlink()
    result = start(tmp_path)
    assert result.returncode == 1
    assert "streaming/__init__.py is missing or different. Only one of them" in result.stderr


@pytest.mark.parametrize("name", ["matcher.py", "streaming/__init__.py"])
def test_a_file_of_the_user_that_hides_a_package_is_named(tmp_path: Path, name: str) -> None:
    installed, own = tmp_path / "installed", tmp_path / "own"
    install(installed, "reexpand", OURS)
    (own / name).parent.mkdir(parents=True)
    (own / name).write_text("print('theirs')", encoding="utf-8")
    result = start(installed, "-c", f"import sys; sys.path.append('{installed}'); {START}", cwd=own)
    place = own / (name if name == "matcher.py" else "streaming")
    assert result.stdout == ""
    assert f"in {place} is not the one of reexpand. Rename it" in result.stderr


def test_own_packages_start_whatever_they_have_overwritten(tmp_path: Path) -> None:
    install(tmp_path, "another", {"streaming/__init__.py": "print('theirs')"})
    install(tmp_path, "reexpand", OURS)
    assert start(tmp_path).stdout == "ran\n"


def test_sources_of_a_checkout_are_not_checked() -> None:
    """This environment has an installation for development."""
    assert [reexpand.conflict(package) for package in reexpand.PACKAGES] == [None, None]
