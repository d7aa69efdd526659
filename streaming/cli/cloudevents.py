"""`reexpand cloudevents`: CloudEvents as inputs and outputs."""
# ruff: noqa: PLC0415 - a verb imports its own needs

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from streaming.cli.root import bootstrap_servers_option, kafka_options_option, verbose_option
from streaming.errors import ConfigInvalid

if TYPE_CHECKING:
    from streaming.config import Settings

F = TypeVar("F", bound=Callable[..., Any])


def _common_options(command: F) -> F:
    once = click.option("--once", is_flag=True, help="Stop when all records present at the start are converted.")
    for option in (once, kafka_options_option, bootstrap_servers_option, verbose_option):
        command = option(command)
    return click.argument("topic")(command)


@click.group()
def cloudevents() -> None:
    """Convert CloudEvents to inputs, and outputs to CloudEvents.

    Each record is converted exactly once, in transactions. The verbs run until SIGTERM or Ctrl-C. They need the extra
    `cloudevents`.

    Exit code 0, 1 when Kafka cannot be read or written, 2 when an option is wrong.

    \b
    Example:
      reexpand cloudevents accept my-events --bootstrap-servers broker:9092
      reexpand cloudevents emit my-changes --bootstrap-servers broker:9092 --structured
    """


@cloudevents.command()
@_common_options
def accept(topic: str, bootstrap_servers: str | None, kafka_options: Path | None, *, once: bool) -> None:
    """Write the CloudEvents of TOPIC to the job's inputs.

    The type of an event is reexpand.topic-event, reexpand.subscription-event or reexpand.group-event, and its data the
    record. Other events and other records are skipped and logged.

    \b
    Example:
      reexpand cloudevents accept my-events --bootstrap-servers broker:9092
    """
    _require_sdk()
    from streaming.adapters import cloudevents as bridge

    settings = _settings(bootstrap_servers, kafka_options)
    count = bridge.accept(settings, bridge.BridgeOptions(topic, once=once, client=_client(settings)))
    click.echo(f"{count:,} inputs", err=True)


@cloudevents.command()
@click.option("--structured", is_flag=True, help="Put the whole event into the value, instead of headers.")
@_common_options
def emit(
    topic: str, bootstrap_servers: str | None, kafka_options: Path | None, *, once: bool, structured: bool
) -> None:
    """Write updates and dead letters to TOPIC.

    They become CloudEvents. By default an event has its attributes in headers (ce_...), and the record as its value.

    \b
    Example:
      reexpand cloudevents emit my-changes --bootstrap-servers broker:9092
    """
    _require_sdk()
    from streaming.adapters import cloudevents as bridge

    settings = _settings(bootstrap_servers, kafka_options)
    options = bridge.BridgeOptions(topic, structured=structured, once=once, client=_client(settings))
    click.echo(f"{bridge.emit(settings, options):,} events", err=True)


def _require_sdk() -> None:
    from importlib.util import find_spec

    if find_spec("cloudevents") is None:
        raise ConfigInvalid(
            "The SDK of CloudEvents is not installed: pip install 'reexpand[cloudevents]' "
            "(from a checkout: pip install '.[cloudevents]')"
        )


def _settings(bootstrap_servers: str | None, kafka_options: Path | None) -> "Settings":
    """Return the settings, with the names of the job's topics."""
    from streaming import config

    return config.load({"bootstrap_servers": bootstrap_servers, "kafka_options": kafka_options, "checkpoint": "unused"})


def _client(settings: "Settings") -> dict[str, str]:
    from streaming.kafka.options import for_librdkafka

    return for_librdkafka(settings)
