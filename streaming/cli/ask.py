"""`reexpand explain`, `plan` and `tail`: reasons from the job, dry runs of events, and live updates."""

import json
import re
import time
from contextlib import contextmanager
from datetime import datetime
from itertools import islice
from typing import IO, TYPE_CHECKING, Any, Final

import click

from streaming.cli import output, root
from streaming.cli.root import combined, connection_options, json_option, kept, kept_option, main
from streaming.errors import Rejected
from streaming.printable import printable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from streaming.config import Settings
    from streaming.inspect import Inspector
    from streaming.records.model import Stream

question_options = combined(
    kept_option("--clock", help="Kafka topic of requests to the job. [default: lite-clock]"),
    kept_option("--answers", help="Kafka topic of the job's responses. [default: lite-answers]"),
)
"""Options of the Kafka topics of questions, which `kept("clock", "answers")` returns."""

asking_options = combined(
    connection_options,
    question_options,
    kept_option(
        "--timeout", type=root.Seconds(0.1), default=10, show_default=True,
        help="Timeout of the job's response, in seconds.",
    ),
)  # fmt: skip
"""Options of verbs that ask the job, which `inspector` reads."""

_UNITS: Final = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}
"""Seconds of the units of an age."""

lines_option = json_option("Print JSON, one object per line.")
kind_option = click.option(
    "--kind", type=click.Choice(["subscription", "group", "topic"]),
    help="Kind of the event. [default: from its fields]",
)  # fmt: skip


def start_time(text: str) -> int:
    """Return the milliseconds since the epoch of an age, or of a time in ISO 8601.

    Raises:
        click.BadParameter: it is neither.
    """
    age = re.fullmatch(r"(\d+)(s|m|h|d)", text, re.ASCII)
    try:
        at = time.time() - int(age[1]) * _UNITS[age[2]] if age else datetime.fromisoformat(text).timestamp()
    except (ValueError, OverflowError):
        raise click.BadParameter(
            f"expected an age such as 15m, or a time such as 2026-01-31T12:00:00Z, got {text!r}"
        ) from None
    return max(0, int(at * 1_000))  # negative numbers have another meaning in Kafka's protocol


def _template(text: str) -> "Callable[[Mapping[str, Any]], str]":
    """Return the function that formats an update by a template."""
    from streaming.inspect import wording

    try:
        return wording.template(text)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


def job_settings() -> "Settings":
    """Load the settings of a verb that asks the job."""
    return root.settings(**kept("clock", "answers"))


@contextmanager
def inspector() -> "Iterator[Inspector]":
    """Open an inspector of the job."""
    from streaming.inspect import Inspector

    with Inspector(job_settings(), kept("timeout")["timeout"]) as found:
        yield found


def check_pattern(text: str | None, dialect: str, option: str) -> None:
    """Check the pattern of an option.

    Raises:
        click.BadParameter: the pattern is invalid.
    """
    import matcher

    if text is not None:
        try:
            matcher.validate(text, dialect)
        except matcher.MatcherError as error:
            raise click.BadParameter(str(error), param_hint=option) from None


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


def stream(kind: str | None, record: dict[str, Any]) -> "Stream":
    """Return the input stream of an event, from its kind or its fields."""
    from streaming.inspect.planning import stream_of
    from streaming.records.model import Stream

    return stream_of(record) if kind is None else Stream(f"{kind}s")


@main.command()
@click.option("--client", required=True, help="Id of the client.")
@click.option("--topic", required=True, help="Name of the lite topic, or %LMQ%$PARENT$TOPIC as in the broker.")
@click.option("--parent", help="Parent topic. [default: the only parent of the client]")
@click.option("--group", help="Group of the client. [default: all of its groups]")
@lines_option
@asking_options
@click.pass_context
def explain(
    ctx: click.Context, *, client: str, topic: str, parent: str | None, group: str | None, as_json: bool
) -> None:
    """Explain why a client does or does not receive a lite topic.

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
        try:
            named, topic = parse_lmq_name(topic)
        except Rejected as rejected:
            raise click.BadParameter(str(rejected), param_hint="--topic") from None
        parent = parent or named
    with inspector() as job:
        found = job.explain(client, topic, parent=parent, group=group)
    for explanation in found:
        if as_json:
            output.line(wording.as_json(explanation))
        else:
            output.lines(wording.explanation(explanation))
    ctx.exit(0 if any(explanation.received for explanation in found) else 1)


@main.command()
@click.argument("file", type=root.InputFile(), default="-")
@kind_option
@lines_option
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

    text, record = read_record(file)
    where = stream(kind, record)
    with inspector() as job:
        found = job.plan(text, where)
    output.lines(wording.as_json(found) if as_json else wording.dry_run(found))
    ctx.exit(2 if found.problems else 0)


@main.command()
@connection_options
@root.updates_option
@click.option("--parent", help="Only updates of this parent topic.")
@click.option("--group", help="Only updates of this group.")
@click.option("--client", help="Only updates of this client.")
@click.option("--topic", metavar="PATTERN", help="Only updates of matching lite topics; a pattern or a name.")
@root.dialect_option("Dialect of --topic.")
@click.option("--op", type=click.Choice(["ADD", "REMOVE"]), help="Only additions, or only removals.")
@click.option("--from-beginning", is_flag=True, help="Start with the first existing update.")
@click.option(
    "-o", "--offset", type=int, metavar="N",
    help="Start at this offset of each partition; -10: ten offsets before its end.",
)  # fmt: skip
@click.option(
    "--since", type=start_time, metavar="TIME",
    help="Start with the first update after this time: an age such as 90s, 15m, 2h or 7d, or 2026-01-31T12:00:00Z.",
)  # fmt: skip
@click.option("--once", is_flag=True, help="Stop at the end of the topic. Starts at its beginning by default.")
@click.option("--count", type=root.COUNT, help="Stop after this number of updates.")
@click.option(
    "--format", "form", type=_template, metavar="TEMPLATE",
    help=r"Print each update by a template of its fields, such as '{op:<6} {clientId}\t{liteTopic}'.",
)  # fmt: skip
@json_option("Print each update as in Kafka, one per line.")
def tail(
    *,
    updates: str | None,
    from_beginning: bool,
    offset: int | None,
    since: int | None,
    once: bool,
    count: int | None,
    form: "Callable[[Mapping[str, Any]], str] | None",
    as_json: bool,
    **given: Any,
) -> None:
    """Follow the updates of the job, until Ctrl-C.

    It starts after the last update, unless --from-beginning, --offset or --since is given. Offsets include the
    markers of transactions, so --offset -10 shows at most ten updates of each partition. A time without an offset from
    UTC is local. Compaction keeps only the last update of each row. The command commits no offsets and joins no group.

    In a template, {liteTopic} is a field of the record, {source.offset} a part of its source, {{ a brace, \\t a tab and
    \\n a new line. Unprintable characters of names are escaped.

    Exit code 0, also after Ctrl-C; 1 if the topic cannot be read, 2 if an option is invalid.

    \b
    Example:
      reexpand tail --bootstrap-servers broker:9092 --client c1
      reexpand tail --topic 'eu__**' --op ADD --from-beginning --once --json
      reexpand tail --since 15m
      reexpand tail -o -10 --once
      reexpand tail --format '{source.timestamp} {op:<6} {clientId} {liteTopic}'
    """
    from streaming.inspect import wording
    from streaming.inspect.following import Chosen, UpdatesFollower

    if from_beginning + (offset is not None) + (since is not None) > 1:
        raise click.UsageError("give one of --from-beginning, --offset and --since")
    if form is not None and as_json:
        raise click.UsageError("give one of --format and --json")
    check_pattern(given["topic"], given["dialect"], "--topic")
    settings = root.settings(updates=updates)
    if from_beginning or (once and offset is None):
        offset = 0
    show = form or (wording.as_json if as_json else lambda update: printable(wording.update(update)))
    try:
        with UpdatesFollower(settings, offset=offset, since=since) as follower:
            for update in islice(follower.updates(Chosen(**given), to_end=once), count):
                click.echo(show(update))
    except KeyboardInterrupt:
        click.echo(err=True)
