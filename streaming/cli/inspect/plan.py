"""`reexpand plan`: what an event would do, before it is sent."""
# ruff: noqa: PLC0415 - a verb imports its own needs

import json
from pathlib import Path
from typing import IO, Any

import click

from streaming.cli import printing
from streaming.cli.inspect.options import asking_options, json_option, where

KINDS = {"subscription": "subscriptions", "group": "groups", "topic": "topics"}
"""Input streams by the kind of their events."""


@click.command()
@click.argument("file", type=click.File("rb"), default="-")
@click.option(
    "--kind", type=click.Choice(list(KINDS)), default=None, help="Kind of the event. [default: told by its fields]"
)
@json_option
@asking_options
@click.pass_context
def plan(
    ctx: click.Context,
    *,
    file: IO[bytes],
    kind: str | None,
    as_json: bool,
    bootstrap_servers: str | None,
    kafka_options: Path | None,
) -> None:
    """Say what an event would add and remove, without sending it.

    FILE has one JSON record: a subscription request, a group event or a topic event, as it would be in Kafka.
    Without FILE it is read from standard input. The text is read as the job reads it. The running job applies its rules
    to its live state, and forgets the result.

    Exit code 0, 1 when no job answers, 2 when the event, or a part of it, would become a dead letter.

    \b
    Example:
      reexpand plan --bootstrap-servers broker:9092 request.json
      echo '{"group": "billing", "attributes": {}}' | reexpand plan --kind group
    """
    from streaming.events.model import Stream
    from streaming.inspect import wording
    from streaming.inspect.planning import stream_of

    text, record = read_record(file)
    stream = stream_of(record) if kind is None else Stream(KINDS[kind])
    with where(bootstrap_servers, kafka_options).inspector() as inspector:
        found = inspector.plan(text, stream)
    printing.lines(wording.as_json(found) if as_json else wording.dry_run(found))
    ctx.exit(2 if found.problems else 0)


def read_record(file: IO[bytes]) -> tuple[bytes, dict[str, Any]]:
    """Return the JSON object in a file, as its text and as Python's parser reads it, which takes more than the job."""
    text = file.read().strip()
    try:
        record = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise click.UsageError(f"{file.name} is not JSON: {error}") from None
    if not isinstance(record, dict):
        raise click.UsageError(f"{file.name} must have one JSON object")
    return text, record
