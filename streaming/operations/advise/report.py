"""The advice as text with one table, and as JSON."""

from collections.abc import Iterator
from typing import Any, Final

from rich import filesize
from rich.console import Console
from rich.table import Table
from rich.text import Text

from streaming.operations.advise import rule
from streaming.operations.advise.rule import Advice, Placement, Sizes
from streaming.printable import counted, printable, quoted

_SHOWN: Final = 20
"""Number of parents, options and notes in the text; JSON has all."""

_WIDTH: Final = 120
"""Width of the output in characters, outside a terminal."""

_LEGEND: Final = (
    "fullest shard: number of its topics; skew: their ratio to the mean; replicas: average number of shards of a "
    "pattern; state: size of the largest shard"
)
_FIXED: Final = (
    "Shards, route depth and state partitions are part of a checkpoint's identity: to change them, start with an empty "
    "checkpoint and an empty updates topic."
)


def flags(advice: Advice) -> list[str]:
    """Return the options for `reexpand run`."""
    shards = [part for parent in advice.sharded for part in ("--shards", f"{parent.name}={parent.placement.shards}")]
    return [*shards, "--route-depth", str(advice.depth), "--shuffle-partitions", str(advice.cores)]


def show(advice: Advice, warnings: list[str], console: Console | None = None) -> None:
    """Print the table of parents, the options with their reasons, and notes."""
    console = console or Console(highlight=False)
    if not console.is_terminal:
        console.width = _WIDTH
    console.print(_table(advice))
    lines = [_LEGEND, ""]
    if len(advice.parents) > _SHOWN:
        lines.insert(0, f"and {len(advice.parents) - _SHOWN:,} more")
    lines += [f"{option}\n    {why}" for option, why in _reasons(advice)]
    lines.append(f"\n{_FIXED}")
    lines += [f"\nNote: {warning}." for warning in warnings[:_SHOWN]]
    if len(warnings) > _SHOWN:
        lines.append(f"\nand {counted(len(warnings) - _SHOWN, 'more note')} (--json has all)")
    lines.append(f"\nreexpand topics --partitions {advice.cores} ...")
    lines.append(f"reexpand run {' '.join(map(quoted, flags(advice)))} ...")
    for line in lines:
        console.print(Text(printable(line, "\n")), soft_wrap=True)


def as_json(advice: Advice, warnings: list[str]) -> dict[str, Any]:
    """Return the advice for programs, with all compared placements of large parents."""
    return {
        "flags": flags(advice),
        "shards": {parent.name: parent.placement.shards for parent in advice.sharded},
        "routeDepth": advice.depth,
        "shufflePartitions": advice.cores,
        "kafkaPartitions": advice.cores,
        "topicsPerShard": rule.TOPICS_PER_SHARD,
        "parents": [
            {
                "parent": parent.name,
                "topics": parent.topics,
                "clients": parent.clients,
                "patterns": parent.placement.entries,
                **_placement(parent.placement, parent.sizes),
                "candidates": [_placement(placement, parent.sizes) for placement in parent.candidates],
            }
            for parent in advice.parents
        ],
        "depths": [
            {
                "depth": found.depth,
                "skew": round(found.skew, 3),
                "patternCopies": found.copies,
                "largestBytes": found.largest_bytes,
            }
            for found in advice.depths
        ],
        "warnings": warnings,
    }


def _placement(placement: Placement, sizes: Sizes) -> dict[str, Any]:
    return {
        "routeDepth": placement.depth,
        "shards": placement.shards,
        "fullestShard": placement.fullest,
        "skew": round(placement.skew, 3),
        "replicas": round(placement.replicas, 3),
        "largestBytes": placement.largest_bytes(sizes),
    }


def _table(advice: Advice) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("parent")
    for name in ("topics", "clients", "patterns", "shards", "fullest shard", "skew", "replicas", "state"):
        table.add_column(name, justify="right")
    for parent in advice.parents[:_SHOWN]:
        placement = parent.placement
        counts = (parent.topics, parent.clients, placement.entries, placement.shards, placement.fullest)
        table.add_row(
            Text(printable(parent.name), overflow="fold"),
            *(f"{count:,}" for count in counts),
            f"{placement.skew:.2f}",
            f"{placement.replicas:.2f}",
            filesize.decimal(parent.largest_bytes),
        )
    return table


def _reasons(advice: Advice) -> Iterator[tuple[str, str]]:
    limit = f"{rule.TOPICS_PER_SHARD:,} topics"
    for parent in advice.sharded[:_SHOWN]:
        why = f"a shard should hold at most {limit}, since one core reads and indexes all of it"
        option = f"--shards {quoted(f'{parent.name}={parent.placement.shards}')}"
        yield option, f"the parent has {parent.topics:,} topics; {why}"
    if len(advice.sharded) > _SHOWN:
        yield f"and {len(advice.sharded) - _SHOWN:,} more", "for the same reason"
    yield f"--route-depth {advice.depth}", _reason_of_depth(advice, limit)
    tasks = f"one for each of {advice.cores} cores (--cores)"
    idle = "fewer leave cores idle, more cost time in every micro-batch"
    yield f"--shuffle-partitions {advice.cores}", f"{tasks}: {idle}"
    order = "choose before the first event: a later change spreads a client's requests over two, without order"
    yield f"reexpand topics --partitions {advice.cores}", f"{tasks}, so that all cores read; {order}"


def _reason_of_depth(advice: Advice, limit: str) -> str:
    if not advice.depths:
        return f"the default; no parent has more than {limit}, so each has one shard"
    compared = "; ".join(
        f"depth {found.depth}: {filesize.decimal(found.largest_bytes)}, {found.copies:,}, {found.skew:.2f}"
        for found in advice.depths
    )
    return f"small largest shards with few copies of patterns; by size, copies and worst skew: {compared}"
