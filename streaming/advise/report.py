"""The advice as text with tables, and as JSON."""

from collections.abc import Iterator
from typing import Any

from rich import filesize
from rich.console import Console
from rich.table import Table
from rich.text import Text

from streaming.advise import rule
from streaming.advise.placement import Placement, Sizes
from streaming.advise.rule import Advice, ParentAdvice
from streaming.printable import printable, quoted

_SHOWN = 20
"""Number of parents, options and notes in the text; JSON has all."""

_WIDTH = 120
"""Width of the output in characters, outside a terminal."""

LEGEND = (
    "fullest shard: number of its topics; skew: their ratio to the mean; replicas: average number of shards of a "
    "pattern; state: size of the largest shard"
)
FIXED = (
    "Shards, route depth and state partitions are part of a checkpoint's identity: to change them, start with an empty "
    "checkpoint and an empty updates topic."
)


def flags(advice: Advice) -> list[str]:
    """Return the options for `reexpand run`."""
    shards = [part for parent in advice.sharded for part in ("--shards", f"{parent.name}={parent.placement.shards}")]
    return [*shards, "--route-depth", str(advice.depth), "--shuffle-partitions", str(advice.cores)]


def show(advice: Advice, warnings: list[str], console: Console | None = None) -> None:
    """Print the tables, the options with their reasons, and notes."""
    console = console or Console(highlight=False)
    if not console.is_terminal:
        console.width = _WIDTH
    console.print(_parents(advice))
    if len(advice.parents) > _SHOWN:
        console.print(f"and {len(advice.parents) - _SHOWN:,} more")
    _print(console, LEGEND)
    if advice.depths:
        console.print()
        console.print(_depths(advice))
    _print(console, "")
    for option, why in _reasons(advice):
        _print(console, f"{option}\n    {why}")
    _print(console, f"\n{FIXED}")
    for warning in warnings[:_SHOWN]:
        _print(console, f"\nNote: {warning}.")
    if len(warnings) > _SHOWN:
        _print(console, f"\nand {len(warnings) - _SHOWN:,} more notes (--json has all)")
    _print(console, f"\nreexpand topics --partitions {advice.cores} ...")
    _print(console, f"reexpand run {' '.join(map(quoted, flags(advice)))} ...")


def as_json(advice: Advice, warnings: list[str]) -> dict[str, Any]:
    """Return the advice for programs, with all compared placements of large parents."""
    return {
        "flags": flags(advice),
        "shards": {parent.name: parent.placement.shards for parent in advice.sharded},
        "routeDepth": advice.depth,
        "shufflePartitions": advice.cores,
        "kafkaPartitions": advice.cores,
        "topicsPerShard": rule.TOPICS_PER_SHARD,
        "parents": [_parent(parent) for parent in advice.parents],
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


def _parent(parent: ParentAdvice) -> dict[str, Any]:
    return {
        "parent": parent.name,
        "topics": parent.topics,
        "clients": parent.clients,
        "patterns": parent.placement.entries,
        **_placement(parent.placement, parent.sizes),
        "candidates": [_placement(placement, parent.sizes) for placement in parent.candidates],
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


def _parents(advice: Advice) -> Table:
    table = _table("parent", "topics", "clients", "patterns", "shards", "fullest shard", "skew", "replicas", "state")
    for parent in advice.parents[:_SHOWN]:
        placement = parent.placement
        table.add_row(
            Text(printable(parent.name), overflow="fold"),
            f"{parent.topics:,}",
            f"{parent.clients:,}",
            f"{placement.entries:,}",
            str(placement.shards),
            f"{placement.fullest:,}",
            f"{placement.skew:.2f}",
            f"{placement.replicas:.2f}",
            filesize.decimal(parent.largest_bytes),
        )
    return table


def _depths(advice: Advice) -> Table:
    table = _table("route depth", "worst skew", "copies of patterns", "largest shards together")
    for found in sorted(advice.depths):
        chosen = " *" if found.depth == advice.depth else ""
        table.add_row(
            f"{found.depth or '0 (whole name)'}{chosen}",
            f"{found.skew:.2f}",
            f"{found.copies:,}",
            filesize.decimal(found.largest_bytes),
        )
    return table


def _table(first: str, *others: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column(first)
    for name in others:
        table.add_column(name, justify="right")
    return table


def _reasons(advice: Advice) -> Iterator[tuple[str, str]]:
    """Yield each option with its reason."""
    too_large = (
        f"topics; a shard should hold at most {rule.TOPICS_PER_SHARD:,}, since one core reads and indexes all of it"
    )
    for parent in advice.sharded[:_SHOWN]:
        shards = quoted(f"{parent.name}={parent.placement.shards}")
        yield f"--shards {shards}", f"the parent has {parent.topics:,} {too_large}"
    if len(advice.sharded) > _SHOWN:
        yield f"and {len(advice.sharded) - _SHOWN:,} more", "for the same reason"
    if advice.depths:
        depth = "makes the largest shards small with few copies of patterns: see the table above"
    else:
        depth = f"the default; no parent has more than {rule.TOPICS_PER_SHARD:,} topics, so each has one shard"
    yield f"--route-depth {advice.depth}", depth
    tasks = f"one for each of {advice.cores} cores (--cores)"
    idle = "fewer leave cores idle, more cost time in every micro-batch"
    yield f"--shuffle-partitions {advice.cores}", f"{tasks}: {idle}"
    order = "choose before the first event: a later change spreads a client's requests over two, without order"
    yield f"reexpand topics --partitions {advice.cores}", f"{tasks}, so that all cores read; {order}"


def _print(console: Console, text: str) -> None:
    console.print(Text(printable(text, "\n")), soft_wrap=True)
