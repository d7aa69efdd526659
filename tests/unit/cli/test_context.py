"""Named connections: `--context prod` reads a file in the user's configuration folder."""

import logging
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from streaming.cli import context, main
from streaming.cli.checkpoint import _job_command
from streaming.config import Settings
from streaming.spark import service

SECRET = "p4ssw0rd"  # noqa: S105 - to be looked for in messages


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the contexts, with the context `prod`."""
    monkeypatch.setattr("streaming.cli.run.provide_java", lambda: None)
    monkeypatch.setattr(logging, "basicConfig", lambda **_: None)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    found = tmp_path / "reexpand"
    found.mkdir()
    (found / "prod.properties").write_text("sasl.password=${env:KAFKA_PASSWORD}\n")
    (found / "prod.toml").write_text(
        'bootstrap_servers = "prod:9092"\ncheckpoint = "/prod"\nkafka_options = "prod.properties"\n'
        'updates = "prod-updates"\n[shards]\norders = 4\nsensors = 2\n'
    )
    return found


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch, no_java: None) -> list[Settings]:  # noqa: ARG001
    """The settings with which jobs were started."""
    jobs: list[Settings] = []
    monkeypatch.setattr(service, "run", lambda settings, **_: jobs.append(settings))
    return jobs


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, arguments)


@pytest.mark.parametrize("arguments", [("--context", "prod", "run"), ("run", "--context", "prod")])
def test_a_context_is_given_before_or_after_the_verb(
    arguments: tuple[str, ...], started: list[Settings], folder: Path
) -> None:
    """The paths in it start at its folder."""
    assert run(*arguments).exit_code == 0
    (found,) = started
    assert (found.bootstrap_servers, found.checkpoint, found.updates) == ("prod:9092", "/prod", "prod-updates")
    assert found.kafka_options == folder / "prod.properties"


def test_options_win_over_a_context_and_that_over_the_environment_and_the_file(
    started: list[Settings], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A variable for another cluster does not redirect a command with a context. Shards are merged."""
    file = tmp_path / "settings.toml"
    file.write_text('bootstrap_servers = "file:1"\ndead_letters = "of-file"\n')
    monkeypatch.setenv("REEXPAND_CONFIG", str(file))
    monkeypatch.setenv("REEXPAND_BOOTSTRAP_SERVERS", "dev:1")
    monkeypatch.setenv("REEXPAND_CLOCK", "of-environment")
    monkeypatch.setenv("REEXPAND_SHARDS", "sensors=8,logs=3")
    assert run("run", "--context", "prod", "--updates", "of-option", "--shards", "orders=16").exit_code == 0
    (found,) = started
    names = found.bootstrap_servers, found.updates, found.clock, found.dead_letters
    assert names == ("prod:9092", "of-option", "of-environment", "of-file")
    assert found.shards == {"orders": 16, "sensors": 2, "logs": 3}


def test_the_nearer_of_two_contexts_counts(started: list[Settings], folder: Path) -> None:
    (folder / "dev.toml").write_text('bootstrap_servers = "dev:1"\ncheckpoint = "/dev"\n')
    assert run("--context", "prod", "run", "--context", "dev").exit_code == 0
    assert started[0].bootstrap_servers == "dev:1"


@pytest.mark.parametrize("arguments", [("--context", "prod", "tail"), ("topics", "list", "--context", "prod")])
def test_verbs_that_look_into_a_job_have_contexts(arguments: tuple[str, ...], folder: Path) -> None:
    """The file of client options is read, and its error names the variable and no value."""
    result = run(*arguments)
    assert result.exit_code == 2
    place = f"{folder / 'prod.properties'}, line 1"
    assert result.stderr == f"Error: {place}: the environment variable KAFKA_PASSWORD is not set\n"


def test_no_error_shows_a_secret(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Although it is in the environment, for the options of the context."""
    monkeypatch.setenv("KAFKA_PASSWORD", SECRET)
    (folder / "prod.properties").write_text("sasl.password=${env:KAFKA_PASSWORD}\nno.such.option=1\n")
    result = run("tail", "--context", "prod", "--once")
    assert result.exit_code in (1, 2)
    assert "no.such.option" in result.stderr
    assert SECRET not in result.output


def test_an_unknown_context_is_an_error_with_the_known_ones(folder: Path) -> None:
    (folder / "dev.toml").touch()
    for name in ("staging", "../reexpand/prod", ""):
        result = run("run", "--context", name)
        assert (result.exit_code, result.stderr) == (
            2, f"Error: there is no context {name!r}: the contexts are dev, prod\n",
        )  # fmt: skip


def test_the_first_context_is_explained(folder: Path) -> None:
    for file in folder.iterdir():
        file.unlink()
    assert run("status", "--context", "prod").stderr == (
        f"Error: there is no context 'prod': create {folder}/prod.toml, with settings such as bootstrap_servers\n"
    )


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"= 5", "{file} is not valid TOML: "),
        (b'a = "\xff"', "{file} cannot be read: it is not UTF-8"),
        (b'bootstrap_server = "b:1"', "bootstrap_server is not a setting (from {file}); did you mean bootstrap_ser"),
        (b'bootstrap_servers = "b:1"\nhang_seconds = 0', "hang_seconds must be at least 1, not 0 (from {file})"),
        (b'bootstrap_servers = "b:1"\ngroups = "none.toml"', "{folder}/none.toml cannot be read (from {file})"),
    ],
)
def test_an_invalid_context_is_an_error_with_its_file(content: bytes, said: str, folder: Path) -> None:
    file = folder / "dev.toml"
    file.write_bytes(content)
    result = run("tail", "--context", "dev")
    assert result.exit_code == 2
    assert said.format(file=file, folder=folder) in result.stderr


def test_the_next_command_of_a_rebuild_has_the_context() -> None:
    with click.Context(main) as running:
        running.meta["reexpand.context"] = "prod"
        command = _job_command(None, {"checkpoint": "/new"})
    assert command == "reexpand run --context prod --checkpoint /new"


def test_the_folder_is_below_the_users_home(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", "relative")
    assert context.folder() == Path.home() / ".config/reexpand"
