"""`reexpand explain`: why a client does or does not receive a topic."""
# ruff: noqa: PLC0415 - a verb imports its own needs

from pathlib import Path

import click

from streaming.cli import printing
from streaming.cli.inspect.options import asking_options, json_option, parent_option, where


@click.command()
@click.option("--client", required=True, help="Id of the client.")
@click.option("--topic", required=True, help="Name of the lite topic; the broker's form %LMQ%$PARENT$TOPIC as well.")
@parent_option
@click.option("--group", default=None, help="Group of the client. [default: all of its groups]")
@json_option
@asking_options
@click.pass_context
def explain(
    ctx: click.Context,
    *,
    client: str,
    topic: str,
    parent: str | None,
    group: str | None,
    as_json: bool,
    bootstrap_servers: str | None,
    kafka_options: Path | None,
) -> None:
    """Say why a client does or does not receive a topic.

    The running job answers from its live state: the entry and the segment that decide, selector, quota, who holds an
    exclusive topic, binding of the group, lease, and the event behind it. Likely mistakes are named with a way out.

    Exit code 0 when the client receives the topic, 1 when it does not or no job answers, 2 when the question is wrong.

    \b
    Example:
      reexpand explain --bootstrap-servers broker:9092 --client c1 --topic orders__1__paid
      reexpand explain --client c1 --topic orders__1__paid --parent orders --group billing --json
    """
    from streaming.events.model import LMQ_PREFIX
    from streaming.events.parsing import parse_lmq_name
    from streaming.inspect import wording

    if topic.startswith(LMQ_PREFIX):
        named, topic = parse_lmq_name(topic)
        parent = parent or named
    with where(bootstrap_servers, kafka_options).inspector() as inspector:
        found = inspector.explain(client, topic, parent=parent, group=group)
    for explanation in found:
        if as_json:
            printing.line(wording.as_json(explanation))
        else:
            printing.lines(wording.explanation(explanation))
    ctx.exit(0 if any(explanation.received for explanation in found) else 1)
