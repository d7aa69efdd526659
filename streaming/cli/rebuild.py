"""`reexpand rebuild`: a new checkpoint for an updates topic that is there."""
# ruff: noqa: PLC0415 - a verb imports its own needs

import json
import shlex
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from streaming.cli.root import progress_line, verbose_option
from streaming.cli.run import JobCommand, config_option, load, provide_java

if TYPE_CHECKING:
    from streaming.spark.rebuild_note import RebuildNote


@click.command(cls=JobCommand)
@config_option
@click.option("--former", default=None, help="Checkpoint that the new one replaces; its job must have ended.")
@click.option(
    "--without-former", is_flag=True,
    help="Instead of --former: that checkpoint is lost, and no job writes to the updates topic.",
)  # fmt: skip
@click.option(
    "--from-state", is_flag=True,
    help="Begin with the state of --former, and read the inputs from where it stopped.",
)  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of sentences.")
@verbose_option
def rebuild(
    config_file: Path | None,
    *,
    former: str | None,
    without_former: bool,
    from_state: bool,
    as_json: bool,
    **given: Any,
) -> None:
    """Make a new checkpoint for the same updates topic.

    The new checkpoint may have other shards, another route depth, and another number of state partitions. The inputs
    are read from their beginning. Then the differences between the new state and the updates topic are written to it,
    as ADDs and REMOVEs with the cause REPAIRED. So consumers go on and see true differences only, none if nothing
    differs. Producers may go on as well.

    Where the inputs lack their beginning, --from-state takes the states of --former over, divided among the new shards.

    The job must have ended: its lease is held meanwhile, and its checkpoint is marked as replaced afterwards. If the
    rebuild is interrupted, the same command goes on. No job starts on a checkpoint whose rebuild is not complete.

    Options, environment variables and the file are those of `reexpand run`. --checkpoint names the new folder.

    Exit code 0 when the checkpoint is complete; 1 when the rebuild cannot go on at the moment; 2 when settings,
    checkpoints and Kafka topics do not fit each other.

    \b
    Example:
      reexpand rebuild --bootstrap-servers broker:9092 --former /var/lib/reexpand --checkpoint /var/lib/reexpand-2 \\
        --shards orders=16
    """
    from streaming.kafka.options import for_librdkafka
    from streaming.operations.rebuild.session import Plan
    from streaming.operations.rebuild.session import rebuild as run_rebuild

    if (former is None) != without_former:
        raise click.UsageError("give --former, or --without-former if the former checkpoint is lost")
    if from_state and former is None:
        raise click.UsageError("--from-state needs --former")
    settings = load(config_file, given)
    provide_java()
    with progress_line() as show:
        note = run_rebuild(settings, Plan(former, for_librdkafka(settings), from_state), show)
    command = _job_command(config_file, given)
    if as_json:
        click.echo(json.dumps({**asdict(note), "checkpoint": settings.checkpoint, "run": command}))
    else:
        click.echo(_in_words(note, settings.checkpoint))
        click.echo(f"the job goes on with: {command}")


def _in_words(note: "RebuildNote", checkpoint: str) -> str:
    return (
        f"{checkpoint} is complete: {note.rows:,} rows hold; {note.added:,} ADD and {note.removed:,} REMOVE were "
        f"written to {note.updates} in {note.seconds:g} s"
    )


def _job_command(config_file: Path | None, given: Mapping[str, Any]) -> str:
    """Return the command that starts the job with the same options."""
    words = ["reexpand", "run"]
    if config_file is not None:
        words += ["--config", str(config_file)]
    for name, value in given.items():
        option = f"--{name.replace('_', '-')}"
        if name == "accept_loss" or value is None:  # of no effect afterwards
            continue
        if isinstance(value, bool):
            words.append(option if value else f"--no-{option[2:]}")
        elif isinstance(value, tuple):
            for each in value:
                words += [option, str(each)]
        else:
            words += [option, str(value)]
    return shlex.join(words)
