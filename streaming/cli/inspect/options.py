"""Options of the verbs that ask the job."""
# ruff: noqa: PLC0415 - a verb imports its own needs

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import click

from streaming.cli.root import connection_options, keep, kept, settings

if TYPE_CHECKING:
    from streaming.config import Settings
    from streaming.inspect import Inspector

F = TypeVar("F", bound=Callable[..., Any])


def asking_options(command: F) -> F:
    """Add the options of verbs that ask the job, which `inspector` reads."""
    for option in (
        click.option(
            "--timeout", type=click.FloatRange(0.1), default=10, show_default=True, expose_value=False, callback=keep,
            help="Timeout of the job's response, in seconds.",
        ),
        click.option(
            "--answers", default=None, expose_value=False, callback=keep,
            help="Kafka topic of the job's responses. [default: lite-answers]",
        ),
        click.option(
            "--clock", default=None, expose_value=False, callback=keep,
            help="Kafka topic of requests to the job. [default: lite-clock]",
        ),
        connection_options,
    ):  # fmt: skip
        command = option(command)
    return command


def job_settings() -> "Settings":
    """Load the settings of a verb that asks the job."""
    return settings(**kept("clock", "answers"))


@contextmanager
def inspector() -> "Iterator[Inspector]":
    """Open an inspector of the job."""
    from streaming.inspect import Inspector

    with Inspector(job_settings(), kept("timeout")["timeout"]) as found:
        yield found


def checked_pattern(text: str | None, dialect: str, option: str) -> None:
    """Check the pattern of an option.

    Raises:
        click.BadParameter: the pattern is invalid.
    """
    import matcher

    if text is not None:
        try:
            matcher.validate(text, dialect)
        except matcher.MatcherError as error:
            raise click.BadParameter(str(error), param_hint=option) from None


parent_option = click.option("--parent", default=None, help="Parent topic. [default: the only parent of the client]")
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON, one object per line.")
