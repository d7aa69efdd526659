"""`reexpand advise`: advice on shards, route depth and partitions, from existing topics and patterns."""
# ruff: noqa: PLC0415 - a verb imports its own needs

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, NamedTuple

import click

from streaming.cli.root import bootstrap_servers_option, kafka_options_option, verbose_option
from streaming.errors import ReexpandError

if TYPE_CHECKING:
    from streaming.advise.inventory import Inventory
    from streaming.advise.rule import Advice
    from streaming.advise.sources import Progress
    from streaming.config import Settings


class _InputFiles(NamedTuple):
    """Files to read instead of Kafka.

    Attributes:
        topics: topic events or, with a parent, plain topics.
        patterns: subscription events or, with a parent, plain patterns.
        parent: parent topic of plain topics and patterns.
    """

    topics: BinaryIO
    patterns: BinaryIO | None
    parent: str | None


@click.command()
@bootstrap_servers_option
@kafka_options_option
@click.option(
    "--topics", "topics_file", type=click.File("rb"), metavar="FILE",
    help="Topic events to read instead of Kafka, one a line; - is standard input.",
)  # fmt: skip
@click.option(
    "--patterns", "patterns_file", type=click.File("rb"), metavar="FILE",
    help="With --topics: subscription events, one a line, whose entries are taken for patterns.",
)  # fmt: skip
@click.option(
    "--parent", default=None,
    help="With --topics: parent topic of plain files, with a topic, or a pattern of dialect lite, on each line.",
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

    Reads the job's input topics, or files, from beginning to end, and writes nothing. Topic names are taken from the
    environment (REEXPAND_TOPIC_EVENTS, ...), as `reexpand run` takes them.

    Exit code 1 when there are no topics or Kafka cannot be read, 2 when an option is wrong.

    \b
    Example:
      reexpand advise --bootstrap-servers broker:9092 --cores 8
      reexpand advise --parent orders --topics topics.txt --patterns patterns.txt
      jq -c . topic-events.json | reexpand advise --topics - --json
    """
    from streaming import config
    from streaming.advise import report
    from streaming.kafka.options import for_librdkafka

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
    client = for_librdkafka(settings) if topics_file is None else {}
    files = None if topics_file is None else _InputFiles(topics_file, patterns_file, parent)
    advice, warnings = _advise(settings, client, files, cores)
    if as_json:
        click.echo(json.dumps(report.as_json(advice, warnings)))
    else:
        report.show(advice, warnings)


def _advise(
    settings: "Settings", client: dict[str, str], files: _InputFiles | None, cores: int
) -> "tuple[Advice, list[str]]":
    """Take the inventory of the inputs, with a progress line on a terminal, and return advice and warnings."""
    import time

    from rich.console import Console
    from rich.progress import Progress

    from streaming.advise import rule
    from streaming.advise.inventory import Inventory

    inventory = Inventory(inner_multi=settings.allow_inner_multi)
    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("reading", total=None)

        def show(done: int, of: int | None, stream: str) -> None:
            progress.update(task, completed=done, total=of, description=f"reading {stream}: {done:,}")

        _read(settings, client, files, inventory, show)
        progress.update(task, total=None, description="comparing")
        holdings = inventory.holdings(time.time_ns() // 1_000_000)
        refused = _refused(inventory)
        if not any(holding.topics for holding in holdings.values()):
            raise ReexpandError("; ".join(["there are no topics to advise on", *refused]))
        advice = rule.advise(holdings, cores)
    return advice, [*refused, *advice.warnings]


def _read(
    settings: "Settings", client: dict[str, str], files: _InputFiles | None, inventory: "Inventory", show: "Progress"
) -> None:
    """Feed the inventory with the records of Kafka or of the files."""
    from streaming.advise import sources

    if files is None:
        sources.from_kafka(settings, client, inventory, show)
    elif files.parent is None:
        sources.from_files(files.topics, files.patterns, inventory, show)
    else:
        sources.from_plain_files(files.parent, files.topics, files.patterns, inventory, show)


def _refused(inventory: "Inventory") -> list[str]:
    """Return the warning about invalid entries, if there are any."""
    if not inventory.refused:
        return []
    number, invalid = inventory.refused, "entry is not valid and left out"
    if number > 1:
        invalid = "entries are not valid and left out"
    return [f"{number:,} {invalid} ({inventory.first_refused})"]
