"""Output of the verbs: lines for people, and JSON for programs, both in printable characters."""

import json
from typing import Any

import click

from streaming.printable import printable, printable_json


def line(text: str, *, err: bool = False) -> None:
    """Print one line for people."""
    click.echo(printable(text), err=err)


def lines(text: str) -> None:
    """Print several lines for people, in which names are printable already or carry no line end."""
    click.echo(printable(text, "\n"))


def json_line(document: str | dict[str, Any]) -> None:
    """Print one JSON object as a line."""
    click.echo(printable_json(document if isinstance(document, str) else json.dumps(document, ensure_ascii=False)))
