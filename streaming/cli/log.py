"""Log of the command: text by default, or one JSON object per line with `--log-format json`."""
# ruff: noqa: PLC0415 - a verb imports its own needs

import logging
import sys
from collections.abc import Callable, MutableMapping
from datetime import datetime
from typing import Any, Final, Literal, TypeVar

import click

from streaming.printable import PrintableFormatter, printable_json, printable_lines

F = TypeVar("F", bound=Callable[..., Any])
Form = Literal["text", "json"]

VARIABLE: Final = "REEXPAND_LOG_FORMAT"
"""Environment variable of the log format."""

log = logging.getLogger("reexpand")

_form: list[Form] = ["text"]
"""Current log format."""


def log_format_option(command: F) -> F:
    """Add `--log-format` to a verb, with the same effect as before the verb."""
    return click.option(
        "--log-format", type=click.Choice(["text", "json"]), expose_value=False, callback=_change_form, is_eager=True,
        help="Log format: text, or one JSON object per line. Environment variable: REEXPAND_LOG_FORMAT.",
    )(command)  # fmt: skip


def _change_form(_ctx: click.Context, _option: click.Parameter, form: Form | None) -> None:
    if form is not None:
        _write_as(form)


def set_up(*, verbose: bool, form: Form = "text") -> None:
    """Log to standard error: as text, with timestamps if it is no terminal, or as JSON."""
    _write_as(form)
    log.setLevel(logging.DEBUG if verbose else logging.INFO)


def say_error(message: str) -> None:
    """Print the error that ends the command, in the log format."""
    if _form[0] == "json":
        log.error(message)
    else:
        click.echo(f"Error: {printable_lines(message)}", err=True)


def _write_as(form: Form) -> None:
    _form[0] = form
    logging.basicConfig(level=logging.WARNING, handlers=[_handler(form)], force=True)


def _handler(form: Form) -> logging.Handler:
    handler: logging.Handler
    if form == "json":
        handler = logging.StreamHandler()
        handler.setFormatter(_json_formatter())
    elif sys.stderr.isatty():
        from rich.console import Console
        from rich.logging import RichHandler

        handler = RichHandler(console=Console(stderr=True), show_path=False)
        handler.setFormatter(PrintableFormatter("%(message)s"))
    else:
        handler = logging.StreamHandler()
        handler.setFormatter(_ZonedFormatter("%(asctime)s %(levelname)s %(message)s"))
    return handler


def _json_formatter() -> logging.Formatter:
    import structlog

    def add_time(_logger: object, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
        event["time"] = _zoned(event["_record"].created)
        return event

    stdlib = structlog.stdlib

    class Formatter(stdlib.ProcessorFormatter):
        def format(self, record: logging.LogRecord) -> str:
            return printable_json(super().format(record))

    return Formatter(
        processors=[
            add_time,
            stdlib.add_log_level,
            stdlib.add_logger_name,
            stdlib.ExtraAdder(),
            structlog.processors.format_exc_info,
            stdlib.ProcessorFormatter.remove_processors_meta,
            structlog.processors.JSONRenderer(ensure_ascii=False, default=str),
        ]
    )


class _ZonedFormatter(PrintableFormatter):
    """Formatter of log lines with time zones."""

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:  # noqa: ARG002, N802 - as logging calls it
        """Return the local time with milliseconds and time zone offset."""
        return _zoned(record.created)


def _zoned(seconds: float) -> str:
    return datetime.fromtimestamp(seconds).astimezone().isoformat(sep=" ", timespec="milliseconds")
