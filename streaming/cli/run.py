"""`reexpand run`: the job, with an option for each of its settings."""
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
    """Command with an option for each setting of the job: help and configuration cannot disagree."""

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """Return the command's own options, an option for each setting, and help."""
        *own, help_option = super().get_params(ctx)
        return [*own, *_setting_options(), help_option]


@cache
def _setting_options() -> tuple[click.Option, ...]:
    from streaming.config import Settings

    # Values stay text until `config` checks them, so that all sources are checked alike.
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
    help="TOML file of settings; REEXPAND_CONFIG can name it as well.",
)  # fmt: skip
"""Option that names a file of settings, in addition to `JobCommand`'s."""


@click.command(cls=JobCommand)
@config_option
@click.option(
    "--take-over", is_flag=True,
    help="End another driver that works on the checkpoint; without it, this one is refused.",
)  # fmt: skip
@click.option(
    "--accept-topics", is_flag=True,
    help="Once: take Kafka's topics for those of the checkpoint, after they were restored at the same offsets.",
)  # fmt: skip
@click.option(
    "--standby", "stands_by", is_flag=True,
    help="Wait, warm, while another driver works on the checkpoint; take over when it has ended.",
)  # fmt: skip
@verbose_option
@log_format_option
def run(config_file: Path | None, *, take_over: bool, accept_topics: bool, stands_by: bool, **given: Any) -> None:
    """Run the job until SIGTERM or Ctrl-C.

    The running micro-batch is finished first; the exit code is then 0.

    Each option is also an environment variable (REEXPAND_BOOTSTRAP_SERVERS, ...) and a key of the TOML file
    (bootstrap_servers, ...). The command line wins over the environment, and the environment over the file.

    Shards are merged, parent by parent: --shards orders=16 --shards sensors=4 on the command line,
    REEXPAND_SHARDS=orders=16,sensors=4 (or a JSON object) in the environment, and a table [shards] with orders = 16 in
    the file.

    Exit code 1 when the job cannot go on, and 2 when settings, checkpoint and Kafka topics do not fit each other: a
    restart does not help then.

    \b
    Example:
      reexpand run --bootstrap-servers broker:9092 --checkpoint /var/lib/reexpand --shards orders=16
    """
    from streaming.console.server import JobConsole
    from streaming.spark import service

    if take_over and stands_by:
        raise click.UsageError("--take-over ends the other driver, and --standby waits for its end: give one of them.")
    settings = load(config_file, given)
    provide_java()
    page = JobConsole(settings)
    service.run(settings, take_over=take_over, accept_topics=accept_topics, stands_by=stands_by, page=page)


def load(config_file: Path | None, given: Mapping[str, Any]) -> "Settings":
    """Return the settings of a verb that is a `JobCommand`.

    Raises:
        ConfigInvalid: a setting is missing or wrong.
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
    """Put the Java of this package's choice into the environment, where Spark looks for it."""
    from streaming.local.java import environment, find_java

    os.environ.update(environment(find_java()))
