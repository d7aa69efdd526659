"""`reexpand backup` and `reexpand restore`: copies of a local checkpoint, and their way back."""
# ruff: noqa: PLC0415 - a verb imports its own needs

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from streaming.cli.root import bootstrap_servers_option, kafka_options_option, progress_line, verbose_option

if TYPE_CHECKING:
    from streaming.config import Settings
    from streaming.operations.backup.manifest import Manifest

_checkpoint_option = click.option("--checkpoint", default=None, help="Checkpoint of the job: its local directory.")
_json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of sentences.")


@click.command()
@click.argument("destination", type=click.Path(path_type=Path))
@_checkpoint_option
@_json_option
@verbose_option
def backup(destination: Path, *, checkpoint: str | None, as_json: bool) -> None:
    """Copy a checkpoint to a new folder; the job may run.

    The copy is as of the last micro-batch that was committed. It gets its name when all of it is on the disk and was
    read again, with a manifest of sizes and digests. The checkpoint is only read. It must be a local folder: URIs are
    not supported.

    A restored copy fits the updates topic only as long as the job has written nothing since. Otherwise the job refuses
    it, and `reexpand rebuild` leads on.

    Exit code 0 when the copy is complete; 1 when the checkpoint is damaged, or files cannot be read or written; 2 when
    there is nothing to copy, the destination exists, or an option is wrong.

    \b
    Example:
      reexpand backup --checkpoint /var/lib/reexpand /backup/reexpand-monday
    """
    from streaming.operations.backup import copying

    begun = time.monotonic()
    place = copying.local(_load(checkpoint).checkpoint)
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
    help="Put a checkpoint that is there aside, under a name with the time; needs --bootstrap-servers, see below.",
)  # fmt: skip
@click.option(
    "--driver-has-ended",
    is_flag=True,
    help="With --replace: do not ask Kafka whether a driver works on the checkpoint.",
)
@_json_option
@bootstrap_servers_option
@kafka_options_option
@verbose_option
def restore(
    source: Path,
    *,
    checkpoint: str | None,
    replace: bool,
    driver_has_ended: bool,
    as_json: bool,
    bootstrap_servers: str | None,
    kafka_options: Path | None,
) -> None:
    """Make a checkpoint of the backup SOURCE.

    All files are compared with the manifest first. A checkpoint that is there is kept unless --replace is given. Then
    Kafka is asked whether a driver still works on it, which takes 10 s.

    If the job has written updates since the backup was made, it refuses the restored checkpoint: `reexpand rebuild`
    makes a new one for the same updates topic.

    Exit code 0 when the checkpoint is restored; 1 when the backup is damaged, or files cannot be read or written; 2
    when there is a checkpoint already, a driver works on it, or an option is wrong. Nothing was changed then.

    \b
    Example:
      reexpand restore --checkpoint /var/lib/reexpand --bootstrap-servers broker:9092 --replace /backup/reexpand-monday
    """
    from streaming.kafka.options import for_librdkafka
    from streaming.operations.backup import copying, driver, restoring, selection

    begun = time.monotonic()
    asks = replace and not driver_has_ended
    settings = _load(checkpoint, bootstrap_servers if asks else "unused", kafka_options if asks else None)
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
        click.echo(f"{place} is that of micro-batch {restored.manifest.micro_batch}: {_in_words(said)}")


def _load(checkpoint: str | None, servers: str | None = "unused", kafka_options: Path | None = None) -> "Settings":
    from streaming import config

    return config.load({"checkpoint": checkpoint, "bootstrap_servers": servers, "kafka_options": kafka_options})


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
