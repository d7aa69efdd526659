"""Completion in shells, as the page shows it."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[3] / "docs/configuration.md"


def completed(*words: str) -> list[str]:
    """What bash would offer for the last word."""
    environment = {
        "_REEXPAND_COMPLETE": "bash_complete",
        "COMP_WORDS": " ".join(words),
        "COMP_CWORD": str(len(words) - 1),
    }
    return [line.partition(",")[2] for line in _run(environment).splitlines()]


def _run(environment: dict[str, str]) -> str:
    command = [str(Path(sys.executable).with_name("reexpand"))]
    found = subprocess.run(command, env={**os.environ, **environment}, capture_output=True, text=True, check=False)
    assert found.stderr == ""
    return found.stdout


def test_verbs_options_and_values_are_completed() -> None:
    assert completed("reexpand", "sche") == ["schema"]
    assert completed("reexpand", "schema", "upd") == ["update", "update-key"]
    assert completed("reexpand", "schema", "--a") == ["--avro"]


def test_contexts_are_completed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    (tmp_path / "reexpand").mkdir()
    for name in ("dev", "prod"):
        (tmp_path / f"reexpand/{name}.toml").touch()
    assert completed("reexpand", "tail", "--context", "p") == ["prod"]
    assert completed("reexpand", "--context", "") == ["dev", "prod"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_lines_of_the_page_print_a_script(shell: str) -> None:
    """As the shell reads it."""
    (variable,) = set(re.findall(rf"_REEXPAND_COMPLETE=({shell}_source) reexpand", PAGE.read_text(encoding="utf-8")))
    script = _run({"_REEXPAND_COMPLETE": variable})
    assert "_REEXPAND_COMPLETE" in script
    if shell == "bash":
        subprocess.run(["bash", "-n"], input=script, text=True, check=True)
