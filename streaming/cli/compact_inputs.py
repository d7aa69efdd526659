"""`reexpand compact-inputs`: input records that a backup has in it are removed."""
# ruff: noqa: PLC0415 - a verb imports its own needs

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from streaming.cli.root import bootstrap_servers_option, kafka_options_option, progress_line, verbose_option

if TYPE_CHECKING:
    from streaming.operations.compaction import InputRemoval


@click.command()
@bootstrap_servers_option
@click.option("--checkpoint", default=None, help="Checkpoint of the job: its directory or URI.")
@click.option(
    "--backup", required=True, type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="A backup of that checkpoint, made by `reexpand backup`.",
)  # fmt: skip
@click.option("--yes", is_flag=True, help="Remove the records; without it they are only counted.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of a table.")
@kafka_options_option
@verbose_option
def compact_inputs(
    *,
    bootstrap_servers: str | None,
    checkpoint: str | None,
    backup: Path,
    yes: bool,
    as_json: bool,
    kafka_options: Path | None,
) -> None:
    """Remove the input records that a backup has in it.

    The state of a job is what its inputs amount to, so records that it has read are needed no more, as long as a copy
    of the state is left. Those that the job had read when the backup was made are removed from the four inputs. The job
    may run.

    Keep the backup: without records and without state nothing can be made anew. A new checkpoint is made by
    `reexpand rebuild --from-state` from then on, and `reexpand verify` compares state and updates only. Other jobs on
    the same inputs must have read the records as well.

    Exit code 0 when the records are removed or counted; 1 when Kafka does not answer, or the backup is damaged; 2 when
    it is not of this checkpoint, or an option is wrong.

    \b
    Example:
      reexpand compact-inputs --bootstrap-servers broker:9092 --checkpoint /var/lib/reexpand --backup /backup/monday
    """
    from streaming import config
    from streaming.kafka.options import for_librdkafka
    from streaming.operations import compaction

    settings = config.load(
        {"bootstrap_servers": bootstrap_servers, "checkpoint": checkpoint, "kafka_options": kafka_options}
    )
    servers, options = settings.bootstrap_servers, for_librdkafka(settings)
    with progress_line() as show:
        removals = compaction.plan(servers, options, settings.checkpoint, backup, show)
    if yes:
        compaction.remove(servers, options, removals)
    if as_json:
        partitions = [
            {
                "topic": each.partition.topic,
                "partition": each.partition.number,
                "records": each.records,
                "of": each.size,
            }
            for each in removals
        ]
        click.echo(json.dumps({"removed": yes, "records": _total(removals), "partitions": partitions}))
    else:
        _show(removals, removed=yes)


def _total(removals: "list[InputRemoval]") -> int:
    return sum(each.records for each in removals)


def _show(removals: "list[InputRemoval]", *, removed: bool) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table("input", "partition", "records", "that the backup has", box=None, pad_edge=False)
    for column in table.columns[1:]:
        column.justify = "right"
    for each in removals:
        table.add_row(each.partition.topic, str(each.partition.number), f"{each.size:,}", f"{each.records:,}")
    Console(highlight=False).print(table)
    total = _total(removals)
    click.echo(
        f"{total:,} records were removed" if removed else f"nothing was removed; --yes removes {total:,} records"
    )
