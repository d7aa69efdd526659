"""Options of these verbs."""
# ruff: noqa: PLC0415 - a verb imports its own needs

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import click

from streaming.cli.root import bootstrap_servers_option, kafka_options_option, verbose_option

if TYPE_CHECKING:
    from streaming.config import Settings
    from streaming.inspect import Inspector

F = TypeVar("F", bound=Callable[..., Any])


class Where(NamedTuple):
    """Kafka, and the job's topics in it; None for what the environment says."""

    bootstrap_servers: str | None = None
    kafka_options: Path | None = None
    clock: str | None = None
    answers: str | None = None
    timeout: float = 10

    def settings(self) -> "Settings":
        """Return the settings in force."""
        from streaming import config

        given = self._asdict()
        del given["timeout"]
        return config.load({**given, "checkpoint": "unused"})

    @contextmanager
    def inspector(self) -> "Iterator[Inspector]":
        """Open an inspector of the job."""
        from streaming.inspect import Inspector

        with Inspector(self.settings(), self.timeout) as inspector:
            yield inspector


def asking_options(command: F) -> F:
    """Add the options of verbs that ask the job; they come as `where`."""
    for option in (
        verbose_option,
        click.option(
            "--timeout", type=click.FloatRange(0.1), default=10, show_default=True, expose_value=False, callback=_keep,
            help="Seconds within which the job must answer.",
        ),
        click.option(
            "--answers", default=None, expose_value=False, callback=_keep,
            help="Kafka topic of the job's answers. [default: lite-answers]",
        ),
        click.option(
            "--clock", default=None, expose_value=False, callback=_keep,
            help="Kafka topic by which the job is asked. [default: lite-clock]",
        ),
        kafka_options_option,
        bootstrap_servers_option,
    ):  # fmt: skip
        command = option(command)
    return command


def _keep(ctx: click.Context, option: click.Parameter, value: Any) -> None:
    """Keep an option for `where`."""
    ctx.meta[f"reexpand.{option.name}"] = value


def where(bootstrap_servers: str | None, kafka_options: Path | None) -> Where:
    """Return where to ask, from the options of the running verb."""
    meta = click.get_current_context().meta
    return Where(
        bootstrap_servers, kafka_options, *(meta[f"reexpand.{name}"] for name in ("clock", "answers", "timeout"))
    )


def checked_pattern(text: str | None, dialect: str, option: str) -> None:
    """Check the pattern of an option; one that is none is a wrong option."""
    import matcher

    if text is not None:
        try:
            matcher.validate(text, dialect)
        except matcher.MatcherError as error:
            raise click.BadParameter(str(error), param_hint=option) from None


parent_option = click.option("--parent", default=None, help="Parent topic. [default: the only one of the client]")
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON, one object a line.")
