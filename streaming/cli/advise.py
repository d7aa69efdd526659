"""`reexpand advise`: advice on shards, route depth and partitions, from existing topics and patterns."""
# ruff: noqa: PLC0415 - a verb imports its own needs

import json
import os
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import click

from streaming.cli.root import bootstrap_servers_option, kafka_options_option, progress_line, verbose_option
from streaming.errors import ReexpandError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from streaming.config import Settings
    from streaming.operations.advise.inventory import InputBlock, Inventory


@click.command()
@bootstrap_servers_option
@kafka_options_option
@click.option(
    "--topics", "topics_file", type=click.File("rb"), metavar="FILE",
    help="Topic events to read instead of Kafka, one per line; - is standard input.",
)  # fmt: skip
@click.option(
    "--patterns", "patterns_file", type=click.File("rb"), metavar="FILE",
    help="With --topics: subscription events, one per line, whose entries count as patterns.",
)  # fmt: skip
@click.option(
    "--parent", default=None,
    help="With --topics: parent topic of plain files, with one topic, or one pattern of dialect lite, per line.",
)  # fmt: skip
@click.option(
    "--allow-inner-multi/--no-allow-inner-multi", is_flag=True, default=None,
    help="The job allows ** inside a pattern.",
)  # fmt: skip
@click.option(
    "--cores", type=click.IntRange(1), default=os.cpu_count() or 1, show_default="those of this machine",
    help="Number of cores for the job, on all machines together.",
)  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@verbose_option
def advise(
    *,
    bootstrap_servers: str | None,
    kafka_options: Path | None,
    topics_file: BinaryIO | None,
    patterns_file: BinaryIO | None,
    parent: str | None,
    allow_inner_multi: bool | None,
    cores: int,
    as_json: bool,
) -> None:
    """Advise on shards, route depth and partitions.

    Reads the job's input topics, or files, from beginning to end, and writes nothing. Topic names come from the
    environment (REEXPAND_TOPIC_EVENTS, ...), as for `reexpand run`.

    Exit code 1 when there are no topics or Kafka cannot be read, 2 when an option is wrong.

    \b
    Example:
      reexpand advise --bootstrap-servers broker:9092 --cores 8
      reexpand advise --parent orders --topics topics.txt --patterns patterns.txt
      jq -c . topic-events.json | reexpand advise --topics - --json
    """
    import time

    from streaming import config
    from streaming.operations.advise import report, rule
    from streaming.operations.advise.inventory import Inventory

    if topics_file is None and (patterns_file is not None or parent is not None):
        raise click.UsageError("--patterns and --parent go with --topics")
    if topics_file is not None and (bootstrap_servers is not None or kafka_options is not None):
        raise click.UsageError("give either --topics, or Kafka by --bootstrap-servers")
    if topics_file is not None and topics_file is patterns_file:
        raise click.UsageError("only one of --topics and --patterns can be standard input")
    settings = config.load(
        {
            "bootstrap_servers": bootstrap_servers if topics_file is None else "unused",
            "checkpoint": "unused",
            "allow_inner_multi": allow_inner_multi,
            "kafka_options": kafka_options,
        }
    )
    inventory = Inventory(inner_multi=settings.allow_inner_multi)
    done: Counter[str] = Counter()
    with progress_line() as show:
        for block in _blocks(settings, topics_file, patterns_file, parent):
            inventory.feed(block.stream, block.records)
            done[block.stream] += len(block.records)
            show(f"reading {block.stream}", done[block.stream], block.total)
        holdings = inventory.holdings(time.time_ns() // 1_000_000)
        refused = _refused(inventory)
        if not any(holding.topics for holding in holdings.values()):
            raise ReexpandError("; ".join(["there are no topics to advise on", *refused]))
        advice = rule.advise(holdings, cores)
    warnings = [*refused, *advice.warnings]
    if as_json:
        click.echo(json.dumps(report.as_json(advice, warnings)))
    else:
        report.show(advice, warnings)


def _blocks(
    settings: "Settings", topics: BinaryIO | None, patterns: BinaryIO | None, parent: str | None
) -> "Iterator[InputBlock]":
    """Return the records of Kafka or of the files."""
    from streaming.kafka.options import for_librdkafka
    from streaming.operations.advise import inventory

    if topics is None:
        return inventory.from_kafka(settings, for_librdkafka(settings))
    if parent is None:
        return inventory.from_files(topics, patterns)
    return inventory.from_plain_files(parent, topics, patterns)


def _refused(inventory: "Inventory") -> list[str]:
    """Return the warning about invalid entries, if there are any."""
    if not inventory.refused:
        return []
    invalid = "entry is invalid and left out" if inventory.refused == 1 else "entries are invalid and left out"
    return [f"{inventory.refused:,} {invalid} ({inventory.first_refused})"]
