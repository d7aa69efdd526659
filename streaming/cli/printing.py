"""Output of the verbs as text or JSON, both in printable characters."""

import json
from typing import Any

import click

from streaming.printable import printable, printable_json


def line(text: str, *, err: bool = False) -> None:
    """Print a line of text."""
    click.echo(printable(text), err=err)


def lines(text: str) -> None:
    """Print several lines of text. Names in it must not contain line ends."""
    click.echo(printable(text, "\n"))


def json_line(document: str | dict[str, Any]) -> None:
    """Print a JSON object as a line."""
    click.echo(printable_json(document if isinstance(document, str) else json.dumps(document, ensure_ascii=False)))
