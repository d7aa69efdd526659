"""`reexpand rebuild` as a command: what it asks for, and the command that it names."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from streaming.cli import main
from streaming.cli.checkpoint import _job_command


@pytest.mark.parametrize("options", [[], ["--former", "/old", "--without-former"]])
def test_it_must_know_of_the_former_checkpoint(options: list[str]) -> None:
    result = CliRunner().invoke(main, ["rebuild", "--bootstrap-servers", "b:1", "--checkpoint", "/new", *options])
    assert result.exit_code == 2
    assert "--without-former if the former checkpoint is lost" in result.output


def test_the_job_starts_with_the_same_options() -> None:
    given = {
        "checkpoint": "/a folder", "shards": ("p=2", "q=3"), "accept_loss": True, "allow_inner_multi": False,
        "route_depth": None,
    }  # fmt: skip
    assert _job_command(Path("c.toml"), given) == (
        "reexpand run --config c.toml --checkpoint '/a folder' --shards p=2 --shards q=3 --no-allow-inner-multi"
    )
