"""Findings as text with a table, and as JSON."""

from collections.abc import Iterator
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from streaming.operations.verify.findings import EXPLANATIONS, UNDECIDED, Difference, Findings, UpdateRecord
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
    names = zip(("parentTopic", "group", "clientId", "liteTopic", "part"), difference.row, strict=True)
    return {
        "fault": str(difference.fault),
        **{name: text for name, text in names if name != "part" or text},
        "inputs": difference.inputs,
        "state": difference.state,
        "updates": difference.updates,
        "lastRecord": difference.record and difference.record._asdict(),
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
    counts = (f"{'not read' if count is None else f'{count:,}'} by {source}" for source, count in findings.rows.items())
    yield f"rows after micro-batch {findings.micro_batch}: {', '.join(counts)}"
    if findings.in_flight:
        yield f"{findings.in_flight:,} rows are changing, and were not compared"
    yield from (f"note: {note}" for note in findings.notes)
    for damaged in findings.damaged[:_SHOWN]:
        place = "the state as a whole" if damaged.shard < 0 else f"shard {damaged.shard} of {damaged.parent}"
        yield f"damaged: {place}: {damaged.problem}"


def _table(differences: list[Difference]) -> Table:
    headers = "fault", "parent", "client (group)", "topic", "inputs", "state", "updates", "last record"
    table = Table(*headers, box=None, pad_edge=False, header_style="bold")
    for each in differences:
        row, marks = each.row, (_MARKS[said] for said in (each.inputs, each.state, each.updates))
        client = f"{row.client_id} ({row.group})" + (f" {row.part}" if row.part else "")
        cells = str(each.fault), row.parent, client, row.lite_topic, *marks, _record(each.record)
        table.add_row(*(Text(printable(cell), overflow="fold") for cell in cells))
    return table


def _record(record: UpdateRecord | None) -> str:
    if record is None:
        return "none"
    update = record.update
    name = "tombstone" if update is None else f"{update.get('op')} {update.get('cause')}"
    return f"{name} [{record.partition}]@{record.offset}"


def _verdict(findings: Findings) -> str:
    repaired = f"{_counted(findings.repaired, 'row was', 'rows were')} repaired; " if findings.repaired else ""
    if findings.is_right:
        return f"{repaired}the relation is right"
    wrong = sum(count for fault, count in findings.by_fault().items() if fault not in UNDECIDED)
    parts = [_counted(wrong, "difference", "differences")] if wrong else []
    if findings.damaged:
        parts.append("a damaged state" if len(findings.damaged) == 1 else f"{len(findings.damaged):,} damaged states")
    return f"{repaired}the relation is wrong: {', '.join(parts)}"


def _counted(number: int, one: str, several: str) -> str:
    return f"{number:,} {one if number == 1 else several}"
