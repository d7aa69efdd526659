"""The `reexpand` command: errors, exit codes, and shared options of the verbs.

Verbs import their dependencies when they run, because importing Spark, pydantic or rich takes longer than a match.
"""

import errno
import logging
import math
import re
import sys
from collections.abc import Callable
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from matcher.dialects import DIALECTS
from matcher.errors import MatcherError
from streaming.cli import context
from streaming.cli.output import VARIABLE, Form, log, log_as, say_error, set_up
from streaming.errors import ExtraMissing, ReexpandError, RefusalError

if TYPE_CHECKING:
    from streaming.config import Settings

F = TypeVar("F", bound=Callable[..., Any])


class Seconds(click.FloatRange):
    """A time in seconds of at most a day, which every clock takes."""

    def __init__(self, least: float) -> None:
        super().__init__(least, 86_400)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the number; unlike a range of click, reject `nan`."""
        found: float = super().convert(value, param, ctx)
        if math.isnan(found):
            self.fail("nan is not a time.", param, ctx)
        return found


class InputFile(click.File):
    """A file that is read as bytes; - is standard input."""

    def __init__(self) -> None:
        super().__init__("rb")

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Open the file, or report a closed standard input."""
        if value == "-" and sys.stdin is None:
            self.fail("standard input is closed.", param, ctx)
        return super().convert(value, param, ctx)


COUNT: Final = click.IntRange(1, 2**31 - 1)
"""A number of items."""

HOME: Final = Path(".reexpand")
"""Default data folder of the local broker and the demo."""

INTERRUPTED: Final = 130
"""Exit code after Ctrl-C, as in shells: 128 plus the number of SIGINT."""

FILE: Final = click.Path(exists=True, dir_okay=False, path_type=Path)

_DISTRIBUTIONS = {"py4j": "pyspark"}
"""Distributions of modules with another name."""

_OF_VERBS = dict.fromkeys(
    ("advise", "clients", "explain", "groups", "plan", "send", "status", "subscriptions", "tail", "top", "topics"),
    "inspect",
)
"""Extras of the verbs that need neither the extra `job` nor an extra of their own name."""


class _VerbGroup(click.Group):
    """Group of verbs. It converts errors of the package and of the matcher to a message and an exit code."""

    def main(self, *args: Any, **kwargs: Any) -> Any:
        """Run the command, and report an output that cannot be written."""
        try:
            return super().main(*args, **kwargs)
        except OSError as error:
            if error.filename is not None or error.errno not in (errno.ENOSPC, errno.EIO):
                raise
            # Discard the output. The interpreter would otherwise fail again when it flushes it at exit.
            sys.stdout = None
            click.echo(f"Error: the output cannot be written: {error.strerror}", err=True)
            sys.exit(1)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the verb.

        Ctrl-C exits with `INTERRUPTED`, unless the verb defines another exit code.
        """
        try:
            return super().invoke(ctx)
        except (ReexpandError, MatcherError) as error:
            say_error(str(error))
            ctx.exit(error.exit_code if isinstance(error, ReexpandError) else RefusalError.exit_code)
        except ModuleNotFoundError as error:
            missing = missing_extra(error, ctx.invoked_subcommand)
            if missing is None:
                raise
            click.echo(f"Error: {missing}", err=True)
            ctx.exit(missing.exit_code)
        except KeyboardInterrupt:
            click.echo(err=True)  # the terminal has printed ^C in this line
            ctx.exit(INTERRUPTED)


def missing_extra(error: ModuleNotFoundError, verb: str | None) -> ExtraMissing | None:
    """Return an error with the extra that contains a missing module; None if no extra does."""
    from importlib.metadata import requires

    module = (error.name or "").partition(".")[0].replace("_", "-")
    name = _DISTRIBUTIONS.get(module, module)
    found = [re.match(r"([\w.-]+).*;.*\bextra == ['\"]([\w-]+)['\"]", each) for each in requires("reexpand") or []]
    extras = {match[2] for match in found if match and match[1].replace("_", "-") == name}
    extra = next((each for each in (_OF_VERBS.get(verb or "", verb), "job", *sorted(extras)) if each in extras), None)
    if extra is None:
        return None
    return ExtraMissing(
        f"`reexpand {verb}` needs {name}, which is in the extra {extra}: "
        f"pip install 'reexpand[{extra}]' (from a checkout: pip install '.[{extra}]')."
    )


@click.group(cls=_VerbGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="reexpand", prog_name="reexpand")
@click.option("-v", "--verbose", is_flag=True, help="Also show the messages of Spark and Kafka.")
@click.option(
    "--log-format", type=click.Choice(["text", "json"]), default="text", envvar=VARIABLE,
    help="Log format: text, or one JSON object per line.",
)  # fmt: skip
@context.context_option
@click.pass_context
def main(ctx: click.Context, /, verbose: bool, log_format: Form) -> None:  # noqa: FBT001 - click passes options by name
    """Wildcard topic subscriptions that keep themselves expanded.

    \b
    Example:
      reexpand demo                     # a broker and the job on this machine, in a minute
      reexpand local                    # a local Kafka broker with the job's topics
      reexpand run --bootstrap-servers broker:9092 --checkpoint /var/lib/reexpand
    """
    if ctx.invoked_subcommand not in ("match", "expand", "validate"):  # these write no log
        set_up(verbose=verbose, form=log_format)


def combined(*options: Callable[[Any], Any]) -> Callable[[F], F]:
    """Combine the decorators of several options into one, in the order of the help."""
    return lambda command: reduce(lambda made, option: option(made), reversed(options), command)


def _keep(ctx: click.Context, option: click.Parameter, value: Any) -> None:
    ctx.meta[f"reexpand.{option.name}"] = value


def kept_option(*names: str, **attributes: Any) -> Callable[[F], F]:
    """Return an option that is not passed to the verb, but kept for `kept`."""
    return click.option(*names, expose_value=False, callback=_keep, **attributes)


def kept(*names: str) -> dict[str, Any]:
    """Return the values of the running verb's kept options."""
    meta = click.get_current_context().meta
    return {name: meta.get(f"reexpand.{name}") for name in names}


def settings(**given: Any) -> "Settings":
    """Load the settings of the running verb, from its connection options, its context, and `given`.

    Verbs without a checkpoint use a placeholder.
    """
    from streaming import config

    found = {"checkpoint": "unused", **kept("bootstrap_servers", "kafka_options"), **given}
    return config.load(found, context.chosen())


def _raise_level(_ctx: click.Context, _option: click.Parameter, verbose: bool) -> None:  # noqa: FBT001 - as click calls it
    if verbose:
        log.setLevel(logging.DEBUG)


def _change_form(_ctx: click.Context, _option: click.Parameter, form: Form | None) -> None:
    if form is not None:
        log_as(form)


verbose_option = click.option(
    "-v", "--verbose", is_flag=True, expose_value=False, callback=_raise_level,
    help="Also show the messages of Spark and Kafka.",
)  # fmt: skip
"""`-v` of a verb, with the same effect as before the verb."""

log_format_option = click.option(
    "--log-format", type=click.Choice(["text", "json"]), expose_value=False, callback=_change_form, is_eager=True,
    help="Log format: text, or one JSON object per line. Environment variable: REEXPAND_LOG_FORMAT.",
)  # fmt: skip
"""`--log-format` of a verb, with the same effect as before the verb."""

kafka_options = combined(
    context.context_option,
    kept_option("--bootstrap-servers", help="Addresses of Kafka brokers, host:port[,host:port...]."),
    kept_option(
        "--kafka-options", type=FILE,
        help="File of Kafka client options, one key=value per line; the place for credentials.",
    ),
)  # fmt: skip
"""Options of the Kafka connection, which `settings` reads."""

connection_options = combined(kafka_options, verbose_option)
"""Options of the Kafka connection, and `-v`."""

checkpoint_option = click.option("--checkpoint", help="Checkpoint of the job: its directory or URI.")


def json_option(text: str) -> Callable[[F], F]:
    """Return the option for output in JSON, with its help text."""
    return click.option("--json", "as_json", is_flag=True, help=text)


def dialect_option(text: str, default: str | None = "lite") -> Callable[[F], F]:
    """Return the option for the dialect of patterns, with its help text."""
    return click.option(
        "--dialect", type=click.Choice(list(DIALECTS)), default=default, show_default=default is not None, help=text
    )


updates_option = click.option("--updates", help="Kafka topic of the updates. [default: lite-subscription-updates]")
topic_events_option = click.option("--topic-events", help="Kafka topic of the events. [default: lite-topic-events]")
parents_option = click.option(
    "--parent", "parents", multiple=True, help="Only the rows of this parent topic; repeatable."
)
