"""Help, configuration and README agree."""

import re
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from streaming.cli import main
from streaming.config import Settings

README = Path(__file__).parents[2] / "README.md"
COMMANDS = sorted(main.commands)
JOB_OPTIONS = {name: f"--{name.replace('_', '-')}" for name in Settings.model_fields}


@pytest.fixture(scope="module")
def readme() -> str:
    return README.read_text()


@pytest.mark.parametrize("command", ["", *COMMANDS])
@pytest.mark.parametrize("option", ["-h", "--help"])
def test_every_command_has_help_with_an_example(command: str, option: str) -> None:
    """The example is one of that command."""
    result = CliRunner().invoke(main, [*command.split(), option])
    assert result.exit_code == 0
    _, found, example = result.output.partition("Example:\n")
    assert found
    assert example.split("\n\n")[0].strip().startswith(f"reexpand {command}")


@pytest.mark.parametrize("command", COMMANDS)
def test_every_option_says_what_it_does(command: str) -> None:
    parameters = main.commands[command].get_params(click.Context(main.commands[command], **main.context_settings))
    options = [option for option in parameters if isinstance(option, click.Option)]
    assert [option.name for option in options if not option.help] == []


def test_every_setting_is_an_option_of_run() -> None:
    """And says in the help what it is by default."""
    output = CliRunner().invoke(main, ["run", "--help"], terminal_width=1_000).output
    for name, option in JOB_OPTIONS.items():
        (line,) = [line for line in output.splitlines() if re.match(rf"\s*{option}\b(?!-)", line)]
        description = Settings.model_fields[name].description
        assert description
        assert description in line
        default = Settings.model_fields[name].default
        if isinstance(default, str):
            assert f"[default: {default}]" in line


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_is_in_the_readme(command: str, readme: str) -> None:
    assert f"reexpand {command}" in readme


def test_the_readme_names_no_command_that_does_not_exist(readme: str) -> None:
    """In what it shows as code."""
    code = "\n".join(re.findall(r"```.*?```|`[^`\n]+`|^ {4}.*$", readme, re.DOTALL | re.MULTILINE))
    named = set(re.findall(r"(?:^|[\s`/$])reexpand ([a-z][a-z-]*)", code))
    assert named <= set(COMMANDS)


@pytest.mark.parametrize("name", Settings.model_fields)
def test_every_setting_is_in_the_readmes_table(name: str, readme: str) -> None:
    """By its name or its option, in the first column of a row."""
    first_cells = [line.split("|")[1] for line in readme.splitlines() if line.startswith("|")]
    assert any(re.search(rf"(?<![\w-])({name}|{JOB_OPTIONS[name]})(?![\w-])", cell) for cell in first_cells)
