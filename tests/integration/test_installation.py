"""The wheel, installed as users install it: without extras, and beside a distribution of the same packages."""

import subprocess
import zipfile
from base64 import urlsafe_b64encode
from hashlib import sha256
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
UV = next((str(path) for path in (ROOT / ".tools/bin/uv",) if path.exists()), "uv")
BASE_BYTES = 60_000_000
"""Largest size of an environment without extras, in bytes."""

pytestmark = pytest.mark.integration


def run(*command: str | Path, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(part) for part in command], capture_output=True, text=True, check=False, cwd=folder)


def done(*command: str | Path, folder: Path) -> str:
    result = run(*command, folder=folder)
    assert result.returncode == 0, result.stderr
    return result.stdout


def other_wheel(folder: Path) -> Path:
    """A distribution with a package `streaming` of its own."""
    code, information = b"print('theirs')", "another-1.0.dist-info"
    digest = urlsafe_b64encode(sha256(code).digest()).rstrip(b"=").decode()
    files = {
        "streaming/__init__.py": code.decode(),
        f"{information}/METADATA": "Metadata-Version: 2.1\nName: another\nVersion: 1.0\n",
        f"{information}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{information}/RECORD": f"streaming/__init__.py,sha256={digest},{len(code)}\n{information}/RECORD,,\n",
    }
    wheel = folder / "another-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return wheel


def test_the_wheel_works_without_extras(tmp_path: Path) -> None:
    """It is small, its verbs run, others name the extra, and an overwritten package is told."""
    done(UV, "build", "--quiet", "--wheel", "--out-dir", tmp_path, ROOT, folder=tmp_path)
    (wheel,) = tmp_path.glob("reexpand-*.whl")
    done(UV, "venv", "--quiet", "--python", ">=3.11", tmp_path / "env", folder=tmp_path)
    python, command = tmp_path / "env/bin/python", tmp_path / "env/bin/reexpand"
    install = (UV, "pip", "install", "--quiet", "--python", python)
    done(*install, wheel, folder=tmp_path)
    assert sum(file.stat().st_size for file in (tmp_path / "env").rglob("*") if file.is_file()) < BASE_BYTES
    assert done(command, "match", "a__*", "a__b", folder=tmp_path) == "match\n"
    done(python, "-c", "import matcher, streaming.client", folder=tmp_path)
    refused = run(command, "run", "--bootstrap-servers", "kafka:9092", "--checkpoint", "checkpoint", folder=tmp_path)
    assert (refused.returncode, "pip install 'reexpand[job]'" in refused.stderr) == (2, True)

    done(*install, "--no-deps", other_wheel(tmp_path), folder=tmp_path)
    refused = run(command, "match", "a__*", "a__b", folder=tmp_path)
    assert (refused.returncode, refused.stdout) == (1, "")
    assert "another 1.0 installed a package of the same name" in refused.stderr
    done(*install, "--no-deps", "--reinstall", wheel, folder=tmp_path)
    assert done(command, "match", "a__*", "a__b", folder=tmp_path) == "match\n"
