"""Results as a table: on the screen, as JSON, and as Markdown."""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from rich.table import Table

from tests.chaos.model import FAULTS, Row

COLUMNS = (
    "fault", "how it strikes", "work that was left", "what the job does", "missing", "surplus",
    "duplicates (uncommitted / committed)", "back after", "an operator", "run",
)  # fmt: skip

_SHOWN = 200
"""Number of characters shown of a failure: its end says what it was."""


def cells(row: Row) -> list[str]:
    verdict = row.verdict
    outcome = row.struck.outcome if row.right else f"**wrong**: {' '.join(row.failure.split())[-_SHOWN:]}"
    missing, surplus, duplicates = ("", "", "")
    if verdict is not None:
        missing, surplus = f"{verdict.missing:,} of {verdict.rows:,}", f"{verdict.surplus:,}"
        duplicates = f"{verdict.uncommitted:,} / {verdict.committed:,}"
    back = f"{row.back:.1f} s" if verdict is not None else ""
    fault = row.fault
    return [
        f"`{fault.name}`", fault.how, str(row.struck.proof), outcome, missing, surplus, duplicates, back,
        fault.operator, row.day,
    ]  # fmt: skip


def as_markdown(results: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table of the cells of several rows."""
    lines = [COLUMNS, ["---"] * len(COLUMNS), *results]
    texts = ([cell.replace("|", "\\|").replace("\n", " ") for cell in line] for line in lines)
    return "".join("| " + " | ".join(line) + " |\n" for line in texts)


class Results:
    """Latest row of each fault, kept in `results.json` between runs and written as a table to `table.md`."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._file = folder / "results.json"
        self._table = folder / "table.md"
        self._cells: dict[str, list[str]] = json.loads(self._file.read_text()) if self._file.exists() else {}

    def keep(self, row: Row) -> None:
        """Take a row, instead of a former one of the same fault."""
        self._cells[row.fault.name] = cells(row)
        self._file.write_text(json.dumps(self._cells, indent=1))
        self._table.write_text(as_markdown(self._cells[name] for name in FAULTS if name in self._cells))


def as_object(row: Row) -> dict[str, Any]:
    return dict(zip(COLUMNS, cells(row), strict=True)) | {"right": row.right, "failure": row.failure}


def as_screen(rows: Sequence[Row]) -> Table:
    """Return a table for the screen, with the columns that change from run to run."""
    table = Table("fault", "work that was left", "what the job does", "missing", "surplus", "duplicates", "back after")
    for row in rows:
        name, _, proof, outcome, *figures, _, _ = cells(row)
        table.add_row(name.strip("`"), proof, outcome, *figures, style="" if row.right else "bold red")
    return table
