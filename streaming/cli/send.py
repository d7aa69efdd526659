"""`reexpand send`: events from the command line."""

from typing import IO, Any

import click

from matcher.dialects import POLICIES
from streaming.cli import output
from streaming.cli.ask import asking_options, inspector, job_settings, kind_option, lines_option, read_record, stream
from streaming.cli.root import InputFile, combined, dialect_option, main
from streaming.errors import ReexpandError
from streaming.printable import counted

_ACTIONS = {
    "replace": "COMPLETE_ADD", "add": "PARTIAL_ADD", "remove": "PARTIAL_REMOVE", "leave": "COMPLETE_REMOVE"
}  # fmt: skip
"""Actions of requests by the option of this verb. Other options are named like the fields of the records."""

_sending_options = combined(
    click.option("--wait", "waits", is_flag=True, help="Wait until the job has read it, and show its updates."),
    lines_option,
    asking_options,
)


@main.group()
def send() -> None:
    """Send an event to the job.

    The job's parser checks the event first.

    Exit code 0, 1 if Kafka rejects the record or, with --wait, no job answers, 2 if the event is invalid.

    \b
    Example:
      reexpand send topic eu__1__paid --parent orders
      reexpand send subscription 'eu__**' --client c1 --group billing --parent orders --wait
      reexpand send group billing --parent orders --wildcard
      reexpand send record request.json
    """


def _pairs(texts: tuple[str, ...], option: str) -> dict[str, str]:
    split = [text.partition("=") for text in texts]
    if not all(name and equals for name, equals, _ in split):
        raise click.BadParameter("expected NAME=VALUE", param_hint=option)
    pairs = {name: value for name, _, value in split}
    if len(pairs) < len(split):
        raise click.BadParameter("a name is given twice", param_hint=option)
    return pairs


def _refuse(verb: str, **given: Any) -> None:
    """Raise `UsageError` if something is given that the record of a verb has no field for."""
    unused = next((name for name, value in given.items() if value), None)
    if unused is not None:
        raise click.UsageError(f"{verb} takes no {unused}")


def _without_none(fields: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


def _send(kind: str | None, record: dict[str, Any], text: bytes | None = None, *, waits: bool, as_json: bool) -> None:
    from streaming.inspect import wording
    from streaming.inspect.following import UpdatesFollower
    from streaming.inspect.planning import send as write

    settings, where = job_settings(), stream(kind, record)
    if not waits:
        place = write(settings, where, record if text is None else text)
        click.echo(wording.as_json({"place": place}) if as_json else f"sent: {place}")
        return
    with UpdatesFollower(settings) as follower, inspector() as job:
        place = write(settings, where, record if text is None else text)
        if not as_json:
            click.echo(f"sent: {place}")
        try:
            found = job.updates_of(place, follower)
        except ReexpandError:
            if as_json:  # else a program would send it again
                click.echo(wording.as_json({"place": place, "updates": None}))
            raise
    for update in found:
        output.line(wording.as_json(update) if as_json else wording.update(update))
    if as_json:
        click.echo(wording.as_json({"place": place, "updates": len(found)}))
    else:
        click.echo(f"the job has read it: {counted(len(found), 'update')}", err=True)


@send.command("topic")
@click.argument("topic")
@click.option("--parent", "parentTopic", required=True, help="Parent topic.")
@click.option("--delete", is_flag=True, help="Announce its deletion instead of its creation.")
@click.option("--tags", help="Its tag, for selectors.")
@click.option("--property", "properties", multiple=True, metavar="NAME=VALUE", help="A property; repeatable.")
@click.option("--ttl-ms", "ttlMs", type=int, help="Time to live in milliseconds.")
@_sending_options
def send_topic(
    *, topic: str, delete: bool, properties: tuple[str, ...], waits: bool, as_json: bool, **fields: Any
) -> None:
    """Announce the creation or deletion of a lite topic.

    \b
    Example:
      reexpand send topic eu__1__paid --parent orders --property region=eu
    """
    event, pairs = "DELETED" if delete else "CREATED", _pairs(properties, "--property") or None
    if delete:
        _refuse("--delete", tags=fields["tags"], property=pairs, lifetime=fields["ttlMs"])
    record = {"event": event, "liteTopic": topic, "properties": pairs, **fields}
    _send("topic", _without_none(record), waits=waits, as_json=as_json)


@send.command("subscription")
@click.argument("entries", nargs=-1, metavar="[ENTRY]...")
@click.option("--client", "clientId", required=True, help="Id of the client.")
@click.option("--group", required=True, help="Its group.")
@click.option("--parent", "topic", help="Parent topic. Without it, `leave` ends the client on all its parents.")
@click.option(
    "--action", type=click.Choice(list(_ACTIONS)), default="replace", show_default=True,
    help="Change of the client's set.",
)  # fmt: skip
@click.option("--version", type=int, help="Version of the request.")
@dialect_option("Dialect of the entries. [default: lite]", None)
@click.option("--policy", type=click.Choice(POLICIES), help="Match policy, in dialect wamp.")
@click.option("--sql", help="SQL92 selector of the group.")
@click.option("--tag", help="TAG selector of the group.")
@_sending_options
def send_subscription(
    *,
    entries: tuple[str, ...],
    action: str,
    sql: str | None,
    tag: str | None,
    waits: bool,
    as_json: bool,
    **fields: Any,
) -> None:
    """Send a request of a client. Its entries are patterns in a wildcard group, and names in other groups.

    \b
    Example:
      reexpand send subscription 'eu__**' us__1__paid --client c1 --group billing --parent orders
      reexpand send subscription --client c1 --group billing --action leave
    """
    if sql is not None and tag is not None:
        raise click.UsageError("--sql and --tag cannot be combined: a group has one selector")
    if action == "leave":
        _refuse("--action leave", entries=entries, selector=sql or tag)
    kind, text = ("SQL92", sql) if sql is not None else ("TAG", tag)
    record = {
        "action": _ACTIONS[action],
        "liteTopicSet": None if action == "leave" else list(entries),
        "selector": None if text is None else {"type": kind, "expression": text},
        **fields,
    }
    _send("subscription", _without_none(record), waits=waits, as_json=as_json)


@send.command("group")
@click.argument("group")
@click.option("--parent", help="Parent topic of the group.")
@click.option("--wildcard", is_flag=True, help="The entries of its clients are patterns.")
@click.option("--exclusive", is_flag=True, help="Each lite topic is received by only one of its clients.")
@click.option("--quota", type=int, help="Maximum number of lite topics per client; -1 for no limit.")
@click.option("--attribute", "attributes", multiple=True, metavar="NAME=VALUE", help="An attribute; repeatable.")
@click.option("--delete", is_flag=True, help="Delete its attributes.")
@_sending_options
def send_group(
    *,
    group: str,
    parent: str | None,
    wildcard: bool,
    exclusive: bool,
    quota: int | None,
    attributes: tuple[str, ...],
    delete: bool,
    **how: Any,
) -> None:
    """Replace the attributes of a group.

    \b
    Example:
      reexpand send group billing --parent orders --wildcard --quota 100
    """
    from streaming.records.model import BIND_TOPIC, MODEL, QUOTA, WILDCARD

    own = _without_none(
        {
            BIND_TOPIC: parent,
            WILDCARD: "true" if wildcard else None,
            MODEL: "Exclusive" if exclusive else None,
            QUOTA: None if quota is None else str(quota),
        }
    )
    others = _pairs(attributes, "--attribute")
    if twice := own.keys() & others.keys():
        raise click.UsageError(f"{min(twice)} is given by --attribute and by an option of its own")
    if delete:
        _refuse("--delete", attributes=(own.keys() | others.keys()) - {BIND_TOPIC})
    record = {"group": group, "attributes": {} if delete else {**own, **others}}
    if delete and parent is not None:
        record["parentTopic"] = parent
    if not delete and not record["attributes"]:
        raise click.UsageError("no attributes given; use --delete to delete the attributes of the group")
    _send("group", record, **how)


@send.command("record")
@click.argument("file", type=InputFile(), default="-")
@kind_option
@_sending_options
def send_record(*, file: IO[bytes], kind: str | None, **how: Any) -> None:
    """Send a JSON record from a file, or from standard input.

    \b
    Example:
      reexpand send record request.json --wait
    """
    text, record = read_record(file)
    _send(kind, record, text, **how)
