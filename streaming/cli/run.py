"""`reexpand run`: the job, with an option for each setting."""
# ruff: noqa: PLC0415 - a verb imports its own needs

import os
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from streaming.cli.log import log_format_option
from streaming.cli.root import verbose_option

if TYPE_CHECKING:
    from streaming.config import Settings


class JobCommand(click.Command):
    """Command with an option for each setting of the job, so help and configuration agree."""

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """Return the options of the command and of all settings."""
        *own, help_option = super().get_params(ctx)
        return [*own, *_setting_options(), help_option]


@cache
def _setting_options() -> tuple[click.Option, ...]:
    from streaming.config import Settings

    # Values remain strings. `config` checks them like values from other sources.
    options = []
    for name, field in Settings.model_fields.items():
        shown = isinstance(field.default, str | int | float) and field.default is not False
        help_text = (field.description or "") + (f" [default: {field.default}]" if shown else "")
        option = f"--{name.replace('_', '-')}"
        form: dict[str, Any] = {
            "multiple": name == "shards",
            "metavar": "PARENT=N" if name == "shards" else "N" if _is_number(field.annotation) else "TEXT",
        }
        if field.annotation is bool:
            option = f"{option}/--no-{name.replace('_', '-')}"
            form = {"is_flag": True}
        options.append(click.Option([option], default=None, help=help_text, **form))
    return tuple(options)


def _is_number(annotation: object) -> bool:
    return any(kind in str(annotation) for kind in ("int", "float"))


config_option = click.option(
    "--config", "config_file", type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="TOML file of settings. Environment variable: REEXPAND_CONFIG.",
)  # fmt: skip
"""Option for a settings file, in addition to the options of `JobCommand`."""


@click.command(cls=JobCommand)
@config_option
@click.option(
    "--take-over", is_flag=True,
    help="Replace another driver of the checkpoint. Without it, a second driver is rejected.",
)  # fmt: skip
@click.option(
    "--accept-topics", is_flag=True,
    help="Use once after Kafka's topics were restored at the same offsets: accept the new topic ids.",
)  # fmt: skip
@click.option(
    "--standby", "stands_by", is_flag=True,
    help="Wait as a warm standby while another driver uses the checkpoint, and take over when it ends.",
)  # fmt: skip
@verbose_option
@log_format_option
def run(config_file: Path | None, *, take_over: bool, accept_topics: bool, stands_by: bool, **given: Any) -> None:
    """Run the job until SIGTERM or Ctrl-C.

    The job finishes the current micro-batch before it stops with exit code 0.

    Each option is also an environment variable (REEXPAND_BOOTSTRAP_SERVERS, ...) and a key of the TOML file
    (bootstrap_servers, ...). The command line overrides the environment, which overrides the file.

    Shards are merged by parent: --shards orders=16 --shards sensors=4 on the command line,
    REEXPAND_SHARDS=orders=16,sensors=4 (or a JSON object) in the environment, and a table [shards] with orders = 16 in
    the file.

    Exit code 1 if the job cannot continue, and 2 if settings, checkpoint and Kafka topics do not match. In this case a
    restart does not help.

    \b
    Example:
      reexpand run --bootstrap-servers broker:9092 --checkpoint /var/lib/reexpand --shards orders=16
    """
    from streaming.console.server import JobConsole
    from streaming.spark import service

    if take_over and stands_by:
        raise click.UsageError("--take-over replaces the other driver, --standby waits for its end: use one of them.")
    settings = load(config_file, given)
    provide_java()
    page = JobConsole(settings)
    service.run(settings, take_over=take_over, accept_topics=accept_topics, stands_by=stands_by, page=page)


def load(config_file: Path | None, given: Mapping[str, Any]) -> "Settings":
    """Load the settings of a `JobCommand`.

    Raises:
        ConfigInvalid: a setting is missing or invalid.
    """
    from streaming import config

    if config_file is not None:
        os.environ["REEXPAND_CONFIG"] = str(config_file)
    return config.load({**given, "shards": _parse_shards(given["shards"])})


def _parse_shards(pairs: tuple[str, ...]) -> dict[str, str] | None:
    if not pairs:
        return None
    split = [pair.rpartition("=") for pair in pairs]
    if not all(parent for parent, _, _ in split):
        raise click.BadParameter("expected PARENT=N, as in orders=16", param_hint="--shards")
    return {parent: count for parent, _, count in split}


def provide_java() -> None:
    """Put the selected Java into the environment, for Spark."""
    from streaming.local.java import environment, find_java

    os.environ.update(environment(find_java()))
