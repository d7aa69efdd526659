"""`reexpand explain`, `plan` and `tail`: reasons from the job, dry runs of events, and live updates."""
# ruff: noqa: PLC0415 - a verb imports its own needs

import json
from itertools import islice
from typing import IO, Any

import click

from streaming.cli import printing, root
from streaming.cli.inspect.options import asking_options, checked_pattern, inspector, json_option, parent_option

KINDS = {"subscription": "subscriptions", "group": "groups", "topic": "topics"}
"""Input streams by kind of event."""


@click.command()
@click.option("--client", required=True, help="Id of the client.")
@click.option("--topic", required=True, help="Name of the lite topic, or %LMQ%$PARENT$TOPIC as in the broker.")
@parent_option
@click.option("--group", default=None, help="Group of the client. [default: all of its groups]")
@json_option
@asking_options
@click.pass_context
def explain(
    ctx: click.Context, *, client: str, topic: str, parent: str | None, group: str | None, as_json: bool
) -> None:
    """Explain why a client does or does not receive a topic.

    The running job answers from its live state: the deciding entry and segment, selector, quota, holder of an exclusive
    topic, binding of the group, lease, and the causing event. It also reports likely mistakes with a remedy.

    Exit code 0 if the client receives the topic, 1 if it does not or no job answers, 2 if the request is invalid.

    \b
    Example:
      reexpand explain --bootstrap-servers broker:9092 --client c1 --topic orders__1__paid
      reexpand explain --client c1 --topic orders__1__paid --parent orders --group billing --json
    """
    from streaming.inspect import wording
    from streaming.records.model import LMQ_PREFIX
    from streaming.records.parsing import parse_lmq_name

    if topic.startswith(LMQ_PREFIX):
        named, topic = parse_lmq_name(topic)
        parent = parent or named
    with inspector() as job:
        found = job.explain(client, topic, parent=parent, group=group)
    for explanation in found:
        if as_json:
            printing.line(wording.as_json(explanation))
        else:
            printing.lines(wording.explanation(explanation))
    ctx.exit(0 if any(explanation.received for explanation in found) else 1)


@click.command()
@click.argument("file", type=click.File("rb"), default="-")
@click.option(
    "--kind", type=click.Choice(list(KINDS)), default=None, help="Kind of the event. [default: from its fields]"
)
@json_option
@asking_options
@click.pass_context
def plan(ctx: click.Context, *, file: IO[bytes], kind: str | None, as_json: bool) -> None:
    """Show the effect of an event without sending it.

    FILE contains one JSON record: a subscription request, a group event or a topic event, as in Kafka. Without FILE,
    the record is read from standard input. The running job applies the event to its live state, and discards the
    result.

    Exit code 0, 1 if no job answers, 2 if the event, or a part of it, would become a dead letter.

    \b
    Example:
      reexpand plan --bootstrap-servers broker:9092 request.json
      echo '{"group": "billing", "attributes": {}}' | reexpand plan --kind group
    """
    from streaming.inspect import wording
    from streaming.inspect.planning import stream_of
    from streaming.records.model import Stream

    text, record = read_record(file)
    stream = stream_of(record) if kind is None else Stream(KINDS[kind])
    with inspector() as job:
        found = job.plan(text, stream)
    printing.lines(wording.as_json(found) if as_json else wording.dry_run(found))
    ctx.exit(2 if found.problems else 0)


def read_record(file: IO[bytes]) -> tuple[bytes, dict[str, Any]]:
    """Return the JSON object in a file, as text and parsed. Python's parser accepts more than the job's."""
    text = file.read().strip()
    try:
        record = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise click.UsageError(f"{file.name} is not JSON: {error}") from None
    if not isinstance(record, dict):
        raise click.UsageError(f"{file.name} must contain one JSON object")
    return text, record


@click.command()
@root.connection_options
@click.option("--updates", default=None, help="Updates topic of the job. [default: lite-subscription-updates]")
@click.option("--parent", default=None, help="Only updates of this parent topic.")
@click.option("--group", default=None, help="Only updates of this group.")
@click.option("--client", default=None, help="Only updates of this client.")
@click.option("--topic", default=None, metavar="PATTERN", help="Only updates of matching topics; a pattern or a name.")
@click.option("--dialect", default="lite", show_default=True, help="Dialect of --topic.")
@click.option("--op", type=click.Choice(["ADD", "REMOVE"]), default=None, help="Only additions, or only removals.")
@click.option("--from-beginning", is_flag=True, help="Start with the first existing update.")
@click.option("--once", is_flag=True, help="Stop at the end of the topic.")
@click.option("--count", type=click.IntRange(1), default=None, help="Stop after this number of updates.")
@click.option("--json", "as_json", is_flag=True, help="Print each update as in Kafka, one per line.")
def tail(
    *,
    updates: str | None,
    from_beginning: bool,
    once: bool,
    count: int | None,
    as_json: bool,
    **given: Any,
) -> None:
    """Follow the updates of the job, until Ctrl-C.

    It starts after the last update, or with --from-beginning at the first. Compaction keeps only the last update of
    each row. The command commits no offsets and joins no group.

    Exit code 0, also after Ctrl-C; 1 if the topic cannot be read, 2 if an option is invalid.

    \b
    Example:
      reexpand tail --bootstrap-servers broker:9092 --client c1
      reexpand tail --topic 'eu__**' --op ADD --from-beginning --once --json
    """
    from streaming.inspect import wording
    from streaming.inspect.following import Chosen, UpdatesFollower

    checked_pattern(given["topic"], given["dialect"], "--topic")
    settings = root.settings(updates=updates)
    show = wording.as_json if as_json else wording.update
    try:
        with UpdatesFollower(settings, from_beginning=from_beginning or once) as follower:
            for update in islice(follower.updates(Chosen(**given), to_end=once), count):
                printing.line(show(update))
    except KeyboardInterrupt:
        click.echo(err=True)
