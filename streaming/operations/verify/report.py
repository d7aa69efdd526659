"""Findings as text with a table, and as JSON."""

from collections.abc import Iterator
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from streaming.operations.verify.findings import EXPLANATIONS, UNDECIDED, Difference, Findings
from streaming.printable import printable

_SHOWN = 20
"""Number of differences in the text; JSON has all."""

_WIDTH = 140
"""Width of the output in characters, outside a terminal."""

_MARKS = {True: "yes", False: "no", None: "-"}


def as_json(findings: Findings) -> Iterator[dict[str, Any]]:
    """Yield an object for each difference and each damaged shard, then a summary."""
    for damaged in findings.damaged:
        yield {"fault": "state-damaged", "parent": damaged.parent, "shard": damaged.shard, "problem": damaged.problem}
    for difference in findings.differences:
        yield _difference(difference)
    yield {
        "right": findings.is_right,
        "microBatch": findings.micro_batch,
        "rows": findings.rows,
        "inFlight": findings.in_flight,
        "differences": {str(fault): count for fault, count in sorted(findings.by_fault().items())},
        "damagedShards": len(findings.damaged),
        "repaired": findings.repaired,
        "notes": findings.notes,
    }


def _difference(difference: Difference) -> dict[str, Any]:
    row, record = difference.row, difference.record
    return {
        "fault": str(difference.fault),
        "parentTopic": row.parent,
        "group": row.group,
        "clientId": row.client_id,
        "liteTopic": row.lite_topic,
        **({"part": row.part} if row.part else {}),
        "inputs": difference.inputs,
        "state": difference.state,
        "updates": difference.updates,
        "lastRecord": None
        if record is None
        else {
            "partition": record.partition,
            "offset": record.offset,
            "timestamp": record.timestamp,
            "update": record.update,
        },
    }


def show(findings: Findings, console: Console | None = None) -> None:
    """Print the compared rows, the differences, and the verdict."""
    console = console or Console(highlight=False)
    if not console.is_terminal:
        console.width = _WIDTH
    for line in _lines(findings):
        console.print(Text(printable(line)), soft_wrap=True)
    if findings.differences:
        console.print(_table(findings.differences[:_SHOWN]))
    if len(findings.differences) > _SHOWN:
        console.print(f"and {len(findings.differences) - _SHOWN:,} more (--json has all)")
    for fault, count in sorted(findings.by_fault().items()):
        console.print(Text(f"{count:,} {fault}: {EXPLANATIONS[fault]}"), soft_wrap=True)
    console.print(Text(_verdict(findings)), soft_wrap=True)


def _lines(findings: Findings) -> Iterator[str]:
    counts = ", ".join(
        f"{'not read' if count is None else f'{count:,}'} by {witness}" for witness, count in findings.rows.items()
    )
    yield f"rows after micro-batch {findings.micro_batch}: {counts}"
    if findings.in_flight:
        yield f"{findings.in_flight:,} rows are changing, and were not compared"
    for note in findings.notes:
        yield f"note: {note}"
    for damaged in findings.damaged[:_SHOWN]:
        place = "the state as a whole" if damaged.shard < 0 else f"shard {damaged.shard} of {damaged.parent}"
        yield f"damaged: {place}: {damaged.problem}"


def _table(differences: list[Difference]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("fault", "parent", "client (group)", "topic", "inputs", "state", "updates", "last record"):
        table.add_column(name)
    for difference in differences:
        row = difference.row
        part = f" {row.part}" if row.part else ""
        cells = (
            str(difference.fault),
            row.parent,
            f"{row.client_id} ({row.group}){part}",
            row.lite_topic,
            _MARKS[difference.inputs],
            _MARKS[difference.state],
            _MARKS[difference.updates],
            _record(difference),
        )
        table.add_row(*(Text(printable(cell), overflow="fold") for cell in cells))
    return table


def _record(difference: Difference) -> str:
    record = difference.record
    if record is None:
        return "none"
    place = f"[{record.partition}]@{record.offset}"
    if record.update is None:
        return f"tombstone {place}"
    return f"{record.update.get('op')} {record.update.get('cause')} {place}"


def _verdict(findings: Findings) -> str:
    rows = "1 row was" if findings.repaired == 1 else f"{findings.repaired:,} rows were"
    repaired = f"{rows} repaired; " if findings.repaired else ""
    if findings.is_right:
        return f"{repaired}the relation is right"
    wrong = sum(count for fault, count in findings.by_fault().items() if fault not in UNDECIDED)
    parts = []
    if wrong:
        parts.append("1 difference" if wrong == 1 else f"{wrong:,} differences")
    if findings.damaged:
        parts.append("a damaged state" if len(findings.damaged) == 1 else f"{len(findings.damaged):,} damaged states")
    return f"{repaired}the relation is wrong: {', '.join(parts)}"
