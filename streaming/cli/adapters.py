"""`reexpand watch-kafka`, `watch-rocketmq`, `cloudevents` and `schema`: other systems, and the format of records."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

from streaming.cli import output
from streaming.cli.root import (
    FILE,
    Seconds,
    combined,
    connection_options,
    dialect_option,
    json_option,
    kafka_options,
    main,
    settings,
    topic_events_option,
    verbose_option,
)
from streaming.errors import ReexpandError
from streaming.printable import counted

if TYPE_CHECKING:
    from streaming.adapters.cloudevents import BridgeOptions
    from streaming.config import Settings


_watch_options = combined(
    click.option("--once", is_flag=True, help="Announce the changes since the last run, and exit."),
    json_option("Print each written event, one per line."),
)


@main.command()
@connection_options
@click.option("--parent", default="kafka", show_default=True, help="Parent topic of the announced Kafka topics.")
@topic_events_option
@click.option(
    "--include",
    multiple=True,
    metavar="PATTERN",
    help="Only Kafka topics that one of these patterns matches; repeatable.",
)
@click.option(
    "--exclude", multiple=True, metavar="PATTERN", help="No Kafka topic that one of these matches; repeatable."
)
@dialect_option("Dialect of --include and --exclude.", "nats")
@click.option("--interval", type=Seconds(0.05), default=0.5, show_default=True, help="Seconds between polls.")
@_watch_options
def watch_kafka(topic_events: str | None, *, as_json: bool, **given: Any) -> None:
    """Announce births and deaths of Kafka topics.

    It runs until SIGTERM or Ctrl-C. The next start announces changes that happened in the meantime. Internal topics of
    Kafka and topics of reexpand are ignored.

    Exit code 0 after SIGTERM or Ctrl-C, 1 if Kafka cannot be watched, 2 if an option is invalid. With --once, exit
    code 1 if it was stopped before all changes were announced.

    \b
    Example:
      reexpand watch-kafka --bootstrap-servers broker:9092
      reexpand watch-kafka --bootstrap-servers broker:9092 --parent shop --include 'orders.>' --exclude 'orders.test.>'
    """
    from streaming.adapters import watch_kafka as watcher
    from streaming.kafka.options import for_librdkafka

    kafka = settings(topic_events=topic_events)
    watcher.run(kafka, watcher.Options(client=for_librdkafka(kafka), **given), _shown(as_json=as_json))


@main.command()
@connection_options
@click.option("--namesrv", "name_server", required=True, metavar="HOST:PORT", help="Address of RocketMQ's name server.")
@click.option("--parent", required=True, help="Parent topic whose lite topics are announced.")
@topic_events_option
@click.option(
    "--rocketmq-options", type=FILE,
    help="File of login and TLS of RocketMQ, one key=value per line: accessKey, secretKey, tls.client.trustCertPath.",
)  # fmt: skip
@_watch_options
def watch_rocketmq(topic_events: str | None, rocketmq_options: Path | None, *, as_json: bool, **given: Any) -> None:
    """Announce births and deaths of lite topics of RocketMQ.

    It reads the parent's own queues without a consumer group, and needs no plug-in in the broker. The next start
    announces changes that happened in the meantime. It runs until SIGTERM or Ctrl-C.

    Exit code 0 after SIGTERM or Ctrl-C, 1 if RocketMQ or Kafka cannot be used, 2 if an option is invalid. With --once,
    exit code 1 if it was stopped before all changes were announced.

    \b
    Example:
      reexpand watch-rocketmq --bootstrap-servers broker:9092 --namesrv rocketmq:9876 --parent orders
    """
    from streaming.kafka.options import for_librdkafka
    from streaming.rocketmq import remoting, watcher

    kafka = settings(topic_events=topic_events)
    access = remoting.load_access(rocketmq_options)
    options = watcher.RocketMQOptions(client=for_librdkafka(kafka), access=access, **given)
    watcher.run(kafka, options, _shown(as_json=as_json))


def _shown(*, as_json: bool) -> Callable[[bytes], None]:
    """Return a function that prints each written event."""
    from streaming.adapters.watch import in_words

    return lambda event: output.json_line(event.decode()) if as_json else output.line(in_words(event))


_bridge_options = combined(
    click.argument("topic"),
    verbose_option,
    kafka_options,
    click.option("--once", is_flag=True, help="Stop when all records present at the start are converted."),
)


@main.group()
def cloudevents() -> None:
    """Convert CloudEvents to inputs, and outputs to CloudEvents.

    Each record is converted exactly once, in transactions. The verbs run until SIGTERM or Ctrl-C. They need the extra
    `cloudevents`.

    Exit code 0, 1 if Kafka cannot be read or written, 2 if an option is invalid.

    \b
    Example:
      reexpand cloudevents accept my-events --bootstrap-servers broker:9092
      reexpand cloudevents emit my-changes --bootstrap-servers broker:9092 --structured
    """


@cloudevents.command()
@_bridge_options
def accept(**given: Any) -> None:
    """Write the CloudEvents of the Kafka topic TOPIC to the job's inputs.

    The type of an event is reexpand.topic-event, reexpand.subscription-event or reexpand.group-event, and its data the
    record. Other events and other records are skipped and logged.

    \b
    Example:
      reexpand cloudevents accept my-events --bootstrap-servers broker:9092
    """
    job, options = _bridge(given)
    from streaming.adapters import cloudevents as bridge

    click.echo(counted(bridge.accept(job, options), "input"), err=True)


@cloudevents.command()
@click.option("--structured", is_flag=True, help="Put the whole event into the value, instead of headers.")
@_bridge_options
def emit(**given: Any) -> None:
    """Write updates and dead letters to the Kafka topic TOPIC.

    They become CloudEvents. By default an event has its attributes in headers (ce_...), and the record as its value.

    \b
    Example:
      reexpand cloudevents emit my-changes --bootstrap-servers broker:9092
    """
    job, options = _bridge(given)
    from streaming.adapters import cloudevents as bridge

    click.echo(counted(bridge.emit(job, options), "event"), err=True)


def _bridge(given: dict[str, Any]) -> "tuple[Settings, BridgeOptions]":
    """Return settings, with the names of the job's topics, and options of a bridge."""
    from streaming.adapters.cloudevents import BridgeOptions
    from streaming.config import TOPIC_NAME
    from streaming.kafka.facts import names
    from streaming.kafka.options import for_librdkafka

    if not re.fullmatch(TOPIC_NAME, given["topic"]):
        raise click.BadParameter(f"{given['topic']!r} is not the name of a Kafka topic.", param_hint="TOPIC")
    job = settings()
    if given["topic"] in {*names(job).values(), job.answers}:  # a bridge would read what it or the job writes
        raise click.BadParameter(f"{given['topic']} is a topic of the job.", param_hint="TOPIC")
    return job, BridgeOptions(client=for_librdkafka(job), **given)


def _complete(_ctx: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    from streaming.records import schemas

    return [CompletionItem(name) for name in schemas.names() if name.startswith(incomplete)]


@main.command()
@click.argument("name", required=False, shell_complete=_complete)
@click.option("--avro", is_flag=True, help="Print the Avro schema instead of the JSON Schema.")
@json_option("Without NAME: print the list as JSON.")
@click.option(
    "--folder", type=click.Path(file_okay=False, path_type=Path),
    help="Without NAME: write all schemas to this folder, JSON Schema as .json and Avro as .avsc.",
)  # fmt: skip
def schema(name: str | None, *, avro: bool, as_json: bool, folder: Path | None) -> None:
    """Print the schema of a record, or all names.

    Schemas are JSON Schema (draft 2020-12). The name `asyncapi` is the AsyncAPI
    document of all topics and records. Exit code 1 if a file cannot be written, 2 if there is no such schema.

    \b
    Example:
      reexpand schema                   # the names
      reexpand schema update > update.json
      reexpand schema --avro update
      reexpand schema asyncapi
      reexpand schema --folder schemas  # all files
    """
    from streaming.records import schemas

    form = "avro" if avro else "json"
    if name is not None and folder is not None:
        raise click.UsageError("--folder writes all schemas: leave NAME out")
    if folder is not None:
        files = {folder / file: content for file, content in schemas.files().items()}
        try:
            folder.mkdir(parents=True, exist_ok=True)
            for path, content in files.items():
                path.write_bytes(content)
        except OSError as error:
            raise ReexpandError(f"{error.filename} cannot be written: {error.strerror}") from None
        for path in files:
            click.echo(path)
    elif name is None:
        _list_schemas(as_json=as_json)
    elif name not in schemas.names(form):
        kind = "Avro schema" if avro else "schema"
        raise click.UsageError(f"there is no {kind} {name!r}; `reexpand schema` lists all")
    else:
        click.echo(schemas.content(name, form), nl=False)


def _list_schemas(*, as_json: bool) -> None:
    """Print the names, each with its description."""
    import orjson

    from streaming.records import schemas

    found = {}
    for name in schemas.names():
        content = orjson.loads(schemas.content(name))
        found[name] = content.get("description") or content["info"]["description"]
    if as_json:
        click.echo(orjson.dumps(found, option=orjson.OPT_INDENT_2))
        return
    width = max(map(len, found))
    for name, description in found.items():
        click.echo(f"{name:{width}}  {description}")
