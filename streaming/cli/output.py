"""Output of the command: lines in printable characters, progress, and the log as text or JSON."""

import json
import logging
import sys
from collections.abc import Callable, Iterator, MutableMapping
from contextlib import contextmanager
from datetime import datetime
from typing import Any, Final, Literal

import click

from streaming.printable import PrintableFormatter, printable, printable_json, printable_lines

Form = Literal["text", "json"]

VARIABLE: Final = "REEXPAND_LOG_FORMAT"
"""Environment variable of the log format."""

log = logging.getLogger("reexpand")

_form: list[Form] = ["text"]
"""Current log format."""


def line(text: str, *, err: bool = False) -> None:
    """Print a line of text."""
    click.echo(printable(text), err=err)


def lines(text: str) -> None:
    """Print several lines of text. Names in it must not contain line ends."""
    click.echo(printable(text, "\n"))


def json_line(document: str | dict[str, Any]) -> None:
    """Print a JSON object as a line."""
    click.echo(printable_json(document if isinstance(document, str) else json.dumps(document, ensure_ascii=False)))


def result(record: dict[str, Any], *texts: str, as_json: bool) -> None:
    """Print a result of a verb: its record as a JSON object, or lines of text."""
    for text in [json.dumps(record)] if as_json else texts:
        click.echo(text)


@contextmanager
def progress_line() -> Iterator[Callable[[str, int, int | None], None]]:
    """Show a progress line on a terminal.

    The context is a callback with the activity, the completed number, and the total (None if unknown).
    """
    from rich.console import Console
    from rich.markup import escape
    from rich.progress import Progress

    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("reading", total=None)

        def show(what: str, done: int, of: int | None) -> None:
            progress.update(task, completed=done, total=of, description=escape(printable(f"{what}: {done:,}")))

        yield show


def say_error(message: str) -> None:
    """Print the error that ends the command, in the log format."""
    if _form[0] == "json":
        log.error(message)
    else:
        click.echo(f"Error: {printable_lines(message)}", err=True)


def set_up(*, verbose: bool, form: Form = "text") -> None:
    """Log to standard error: as text, with timestamps if it is no terminal, or as JSON."""
    log_as(form)
    log.setLevel(logging.DEBUG if verbose else logging.INFO)


def log_as(form: Form) -> None:
    """Change the log format."""
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
