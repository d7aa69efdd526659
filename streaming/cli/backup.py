"""`reexpand backup`, `restore` and `compact-inputs`: copies of a local checkpoint, and inputs that a copy replaces."""
# ruff: noqa: PLC0415 - a verb imports its own needs

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from streaming.cli import root
from streaming.cli.root import checkpoint_option, connection_options, progress_line, verbose_option

if TYPE_CHECKING:
    from streaming.operations.backup.manifest import Manifest
    from streaming.operations.compaction import InputRemoval

_checkpoint_option = click.option("--checkpoint", default=None, help="Checkpoint of the job: its local directory.")
_json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of text.")


@click.command()
@click.argument("destination", type=click.Path(path_type=Path))
@_checkpoint_option
@_json_option
@verbose_option
def backup(destination: Path, *, checkpoint: str | None, as_json: bool) -> None:
    """Copy a checkpoint to a new folder. The job may be running.

    The copy contains the last committed micro-batch, with a manifest of sizes and digests. It is renamed to its final
    name after all files are on disk and were verified. The checkpoint is only read. It must be a local folder: URIs are
    not supported.

    A restored copy can be used only if the job has written no updates since. Otherwise the job rejects it, and
    `reexpand rebuild` creates a new checkpoint from it.

    Exit code 0 if the copy is complete; 1 if the checkpoint is damaged, or files cannot be read or written; 2 if there
    is nothing to copy, the destination exists, or an option is invalid.

    \b
    Example:
      reexpand backup --checkpoint /var/lib/reexpand /backup/reexpand-monday
    """
    from streaming.operations.backup import copying

    begun = time.monotonic()
    place = copying.local(root.settings(checkpoint=checkpoint, bootstrap_servers="unused").checkpoint)
    with progress_line() as show:
        manifest = copying.backup(place, destination.absolute(), show)
    said = _said(manifest, time.monotonic() - begun)
    if as_json:
        click.echo(json.dumps({**said, "destination": str(destination)}))
    else:
        click.echo(f"micro-batch {manifest.micro_batch} of {place} is in {destination}: {_in_words(said)}")


@click.command()
@click.argument("source", type=click.Path(path_type=Path))
@_checkpoint_option
@click.option(
    "--replace", is_flag=True,
    help="Rename an existing checkpoint to a name with the time; needs --bootstrap-servers, see below.",
)  # fmt: skip
@click.option(
    "--driver-has-ended",
    is_flag=True,
    help="With --replace: do not check in Kafka for a driver of the checkpoint.",
)
@_json_option
@connection_options
def restore(
    source: Path,
    *,
    checkpoint: str | None,
    replace: bool,
    driver_has_ended: bool,
    as_json: bool,
) -> None:
    """Restore a checkpoint from the backup SOURCE.

    All files are first compared with the manifest. An existing checkpoint is an error unless --replace is given. With
    --replace, the command checks in Kafka for a driver of the checkpoint, which takes 10 s.

    If the job has written updates since the backup, it rejects the restored checkpoint. `reexpand rebuild` then
    creates a new checkpoint for the same updates topic.

    Exit code 0 if the checkpoint is restored; 1 if the backup is damaged, or files cannot be read or written; 2 if a
    checkpoint exists, a driver uses it, or an option is invalid. Nothing is changed in this case.

    \b
    Example:
      reexpand restore --checkpoint /var/lib/reexpand --bootstrap-servers broker:9092 --replace /backup/reexpand-monday
    """
    from streaming.kafka.options import for_librdkafka
    from streaming.operations.backup import copying, driver, restoring, selection

    begun = time.monotonic()
    asks = replace and not driver_has_ended
    connection = {} if asks else {"bootstrap_servers": "unused", "kafka_options": None}
    settings = root.settings(checkpoint=checkpoint, **connection)
    place = copying.local(settings.checkpoint)
    if asks and restoring.is_occupied(place):
        driver.check_ended(selection.identity(place), settings.bootstrap_servers, for_librdkafka(settings))
    with progress_line() as show:
        restored = restoring.restore(source.absolute(), place, show, replace=replace)
    said = _said(restored.manifest, time.monotonic() - begun)
    former = None if restored.former is None else str(restored.former)
    if as_json:
        click.echo(json.dumps({**said, "checkpoint": str(place), "former": former}))
    else:
        if former:
            click.echo(f"the former checkpoint is {former}")
        click.echo(f"micro-batch {restored.manifest.micro_batch} is restored to {place}: {_in_words(said)}")


def _said(manifest: "Manifest", seconds: float) -> dict[str, object]:
    return {
        "microBatch": manifest.micro_batch,
        "files": len(manifest.files),
        "bytes": manifest.size,
        "time": manifest.time,
        "release": manifest.release,
        "seconds": round(seconds, 1),
    }


def _in_words(said: dict[str, object]) -> str:
    return f"{said['files']:,} files, {said['bytes']:,} bytes, in {said['seconds']} s; copied at {said['time']}"


@click.command()
@checkpoint_option
@click.option(
    "--backup", required=True, type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="A backup of that checkpoint, made by `reexpand backup`.",
)  # fmt: skip
@click.option("--yes", is_flag=True, help="Remove the records. Without it they are only counted.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of a table.")
@connection_options
def compact_inputs(
    *,
    checkpoint: str | None,
    backup: Path,
    yes: bool,
    as_json: bool,
) -> None:
    """Remove input records whose effect is in a backup.

    The state of a job contains the effect of all records that it has read. While a copy of the state exists, these
    records are not needed. The command removes the records from the four inputs that the job had read at the time of
    the backup. The job may be running.

    Keep the backup: without records and without state, nothing can be recreated. From then on, create new checkpoints
    with `reexpand rebuild --from-state`. `reexpand verify` compares only state and updates. Other jobs on the same
    inputs must have read the records too.

    Exit code 0 if the records are removed or counted; 1 if Kafka does not answer, or the backup is damaged; 2 if the
    backup is of another checkpoint, or an option is invalid.

    \b
    Example:
      reexpand compact-inputs --bootstrap-servers broker:9092 --checkpoint /var/lib/reexpand --backup /backup/monday
    """
    from streaming.kafka.options import for_librdkafka
    from streaming.operations import compaction

    settings = root.settings(checkpoint=checkpoint)
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
        click.echo(json.dumps({"removed": yes, "records": _total_records(removals), "partitions": partitions}))
    else:
        _show_removals(removals, removed=yes)


def _total_records(removals: "list[InputRemoval]") -> int:
    return sum(each.records for each in removals)


def _show_removals(removals: "list[InputRemoval]", *, removed: bool) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table("input", "partition", "records", "in the backup", box=None, pad_edge=False)
    for column in table.columns[1:]:
        column.justify = "right"
    for each in removals:
        table.add_row(each.partition.topic, str(each.partition.number), f"{each.size:,}", f"{each.records:,}")
    Console(highlight=False).print(table)
    total = _total_records(removals)
    click.echo(
        f"{total:,} records were removed" if removed else f"nothing was removed; --yes removes {total:,} records"
    )
