"""`reexpand verify` and `rebuild`: comparison and repair of the updates, and a new checkpoint for them."""
# ruff: noqa: PLC0415 - a verb imports its own needs

import json
import shlex
import sys
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from streaming.cli import root
from streaming.cli.root import checkpoint_option, connection_options, progress_line, verbose_option
from streaming.cli.run import JobCommand, config_option, load, provide_java
from streaming.errors import NotVerified, ReexpandError

if TYPE_CHECKING:
    from streaming.spark.rebuild_note import RebuildNote


@click.command()
@checkpoint_option
@click.option("--updates", default=None, help="Updates topic of the job. [default: lite-subscription-updates]")
@click.option(
    "--dead-letters", default=None,
    help="Dead letters of the job, which contain rejections by quota. [default: lite-dead-letters]",
)  # fmt: skip
@click.option("--parent", "parents", multiple=True, help="Only the rows of this parent topic; repeatable.")
@click.option(
    "--inputs/--no-inputs", default=True, show_default=True,
    help="Also replay the inputs from the beginning. Without inputs, only state and updates are compared.",
)  # fmt: skip
@click.option("--repair", is_flag=True, help="Write corrections to the updates topic, and verify again.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per line: each difference, and a summary.")
@connection_options
def verify(
    *,
    checkpoint: str | None,
    updates: str | None,
    dead_letters: str | None,
    parents: tuple[str, ...],
    inputs: bool,
    repair: bool,
    as_json: bool,
) -> None:
    """Compare inputs, state and updates of a job.

    Each difference is reported with its reason. The job may be running. Without --repair nothing is written. Input
    topics, shards and similar settings come from the checkpoint. The names of the updates topic and the dead letters
    come from the options or the environment (REEXPAND_UPDATES, ...), as for `reexpand run`.

    With --repair, if the updates topic differs from both inputs and state, a correction is written to it: an ADD or a
    REMOVE with the cause REPAIRED. A wrong state is reported but not repaired.

    Exit code 0 if the relation is correct, possibly after a repair; 1 if differences remain; 2 if the comparison is not
    possible, because Kafka or the checkpoint cannot be read, or an option is invalid.

    \b
    Example:
      reexpand verify --bootstrap-servers broker:9092 --checkpoint /var/lib/reexpand
      reexpand verify --bootstrap-servers broker:9092 --checkpoint /var/lib/reexpand --parent orders --repair
    """
    from streaming.kafka.options import for_librdkafka
    from streaming.operations.verify import report, session

    try:
        settings = root.settings(checkpoint=checkpoint, updates=updates, dead_letters=dead_letters)
        client = for_librdkafka(settings)
        provide_java()
        choices = session.Choices(frozenset(parents), inputs, repair, client)
        with progress_line() as show:
            findings = session.verify(settings, choices, lambda what, done, of: show(f"reading {what}", done, of))
    except ReexpandError as error:
        raise NotVerified(str(error)) from error  # exit code 1 means differences
    if as_json:
        for each in report.as_json(findings):
            click.echo(json.dumps(each))
    else:
        report.show(findings)
    sys.exit(0 if findings.is_right else 1)


@click.command(cls=JobCommand)
@config_option
@click.option("--former", default=None, help="Checkpoint to replace; its job must have ended.")
@click.option(
    "--without-former", is_flag=True,
    help="Instead of --former, if that checkpoint is lost and no job writes to the updates topic.",
)  # fmt: skip
@click.option(
    "--from-state", is_flag=True,
    help="Start with the state of --former, and read the inputs from its position.",
)  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of text.")
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
    """Create a new checkpoint for the same updates topic.

    The new checkpoint may have different shards, route depth, and number of state partitions. The inputs are read from
    the beginning. Then the differences between the new state and the updates topic are written to the topic, as ADDs
    and REMOVEs with the cause REPAIRED. Consumers and producers continue, and consumers see only actual differences.

    If the inputs are incomplete, --from-state distributes the state of --former among the new shards.

    The job must have ended. The rebuild holds its lease, and marks its checkpoint as replaced at the end. Run the same
    command again after an interruption. No job starts on a checkpoint with an incomplete rebuild.

    Options, environment variables and the file are the same as for `reexpand run`. --checkpoint is the new folder.

    Exit code 0 if the checkpoint is complete; 1 if the rebuild cannot continue at the moment; 2 if settings,
    checkpoints and Kafka topics do not match.

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
        click.echo(f"next: {command}")


def _in_words(note: "RebuildNote", checkpoint: str) -> str:
    return (
        f"{checkpoint} is complete: {note.rows:,} rows; {note.added:,} ADD and {note.removed:,} REMOVE were "
        f"written to {note.updates} in {note.seconds:g} s"
    )


def _job_command(config_file: Path | None, given: Mapping[str, Any]) -> str:
    """Return the command that starts the job with the same options."""
    words = ["reexpand", "run"]
    if config_file is not None:
        words += ["--config", str(config_file)]
    for name, value in given.items():
        option = f"--{name.replace('_', '-')}"
        if name == "accept_loss" or value is None:  # no effect after the rebuild
            continue
        if isinstance(value, bool):
            words.append(option if value else f"--no-{option[2:]}")
        elif isinstance(value, tuple):
            for each in value:
                words += [option, str(each)]
        else:
            words += [option, str(value)]
    return shlex.join(words)
