"""Findings of a verification: rows on which inputs, state and updates differ, as text with a table, and as JSON."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple

from rich.console import Console
from rich.table import Table
from rich.text import Text

from streaming.printable import counted, printable


class Fault(StrEnum):
    """Reason of a difference."""

    SURPLUS_UPDATE = "surplus-update"
    MISSING_UPDATE = "missing-update"
    WRONG_VALUE = "wrong-value"
    STATE_DIFFERS = "state-differs"
    STATE_DAMAGED = "state-damaged"
    QUOTA_ORDER = "quota-order"


EXPLANATIONS = {
    Fault.SURPLUS_UPDATE: "the updates topic has an ADD of a row outside the relation; --repair writes the REMOVE",
    Fault.MISSING_UPDATE: "the updates topic has no ADD of a row of the relation; --repair writes the ADD",
    Fault.WRONG_VALUE: "the ADD of the row has patterns or a version that it never had; --repair writes the ADD",
    Fault.STATE_DIFFERS: "the state of the job does not follow from the inputs; use `reexpand rebuild`",
    Fault.STATE_DAMAGED: "the state of this shard cannot be read; restore a backup, or use `reexpand rebuild`",
    Fault.QUOTA_ORDER: "a quota refused a request of this group, which depends on the original micro-batches",
}

REPAIRABLE = frozenset({Fault.SURPLUS_UPDATE, Fault.MISSING_UPDATE, Fault.WRONG_VALUE})
"""Faults of the updates topic alone."""

UNDECIDED = frozenset({Fault.QUOTA_ORDER})
"""Differences that may only result from other micro-batch boundaries."""


_SHOWN = 20
"""Number of differences in the text; JSON has all."""

_WIDTH = 140
"""Width of the output in characters, outside a terminal."""

_MARKS = {True: "yes", False: "no", None: "-"}


class RowName(NamedTuple):
    """Identity of a row of the relation; `part` is blank for a whole client."""

    parent: str
    group: str
    client_id: str
    lite_topic: str
    part: str = ""


class UpdateRecord(NamedTuple):
    """A record of the updates topic; a tombstone has no update."""

    partition: int
    offset: int
    timestamp: int
    update: dict[str, Any] | None


@dataclass(frozen=True, slots=True)
class Difference:
    """A row on which the sources differ.

    Attributes:
        inputs, state, updates: True if the source has the row; None if the source was not read.
        record: last record of the row in the updates topic.
    """

    key: bytes
    row: RowName
    fault: Fault
    inputs: bool | None
    state: bool | None
    updates: bool
    record: UpdateRecord | None = None


class DamagedState(NamedTuple):
    """A shard whose state cannot be read."""

    parent: str
    shard: int
    problem: str


@dataclass(slots=True)
class Findings:
    """Result of a verification.

    Attributes:
        micro_batch: the committed micro-batch after which inputs, state and updates were compared.
        rows: number of rows by source; None for inputs that were not read.
        in_flight: number of rows that were changing, and were not compared.
        notes: sentences about parts that were not compared, with the reason.
        corrected: number of rows that were corrected, by reason.
    """

    micro_batch: int
    rows: dict[str, int | None] = field(default_factory=dict)
    in_flight: int = 0
    differences: list[Difference] = field(default_factory=list)
    damaged: list[DamagedState] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    corrected: Counter[Fault] = field(default_factory=Counter)

    @property
    def repaired(self) -> int:
        """Number of rows that were corrected."""
        return self.corrected.total()

    @property
    def is_right(self) -> bool:
        """True if inputs, state and updates agree, apart from undecided differences."""
        return not self.damaged and all(difference.fault in UNDECIDED for difference in self.differences)

    @property
    def repairable(self) -> list[Difference]:
        """Differences that corrections in the updates topic fix."""
        return [difference for difference in self.differences if difference.fault in REPAIRABLE]

    @property
    def doubted(self) -> set[bytes]:
        """Keys of the rows whose ADD has a wrong value."""
        return {difference.key for difference in self.differences if difference.fault is Fault.WRONG_VALUE}

    def by_fault(self) -> Counter[Fault]:
        """Return the number of differences by reason."""
        return Counter(difference.fault for difference in self.differences)


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
        yield f"{counted(findings.in_flight, 'row was', 'rows were')} changing, and not compared"
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
    repaired = f"{counted(findings.repaired, 'row was', 'rows were')} repaired; " if findings.repaired else ""
    if findings.is_right:
        return f"{repaired}the relation is right"
    wrong = sum(count for fault, count in findings.by_fault().items() if fault not in UNDECIDED)
    parts = [counted(wrong, "difference")] if wrong else []
    if findings.damaged:
        parts.append(counted(len(findings.damaged), "damaged state"))
    return f"{repaired}the relation is wrong: {', '.join(parts)}"
