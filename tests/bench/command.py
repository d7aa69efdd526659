"""Common parts of the suites: arguments, a broker, and figures as a table or as JSON."""

import argparse
import json
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from streaming.local.broker import Broker


def arguments(description: str | None) -> argparse.ArgumentParser:
    """Return a parser whose help begins with the docstring of a suite."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    return parser


@contextmanager
def broker_and_folder() -> Iterator[tuple[Broker, Path]]:
    """Run an embedded broker in a new folder, which other files may go to as well, until the block ends."""
    with tempfile.TemporaryDirectory() as name, Broker(Path(name) / "kafka") as broker:
        yield broker, Path(name)


def show(
    figures: Mapping[Any, Any] | Sequence[Any], table: Table, *, as_json: bool = False, width: int | None = None
) -> None:
    """Print figures as JSON, or the table of them."""
    if as_json:
        print(json.dumps(figures, indent=2))  # noqa: T201 - the command's output
    else:
        Console(width=width).print(table)
