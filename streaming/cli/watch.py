"""`reexpand watch-kafka` and `watch-rocketmq`: topics of Kafka, and lite topics of RocketMQ, as topic events."""
# ruff: noqa: PLC0415 - a verb imports its own needs

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from streaming.cli import printing
from streaming.cli.root import bootstrap_servers_option, kafka_options_option, verbose_option

if TYPE_CHECKING:
    from streaming.config import Settings


@click.command()
@bootstrap_servers_option
@click.option("--parent", default="kafka", show_default=True, help="Parent topic of the announced topics.")
@click.option("--topic-events", default=None, help="Kafka topic of the events. [default: lite-topic-events]")
@click.option(
    "--include", multiple=True, metavar="PATTERN", help="Only topics that one of these patterns matches; repeatable."
)
@click.option("--exclude", multiple=True, metavar="PATTERN", help="No topic that one of these matches; repeatable.")
@click.option("--dialect", default="nats", show_default=True, help="Dialect of --include and --exclude.")
@click.option("--interval", type=click.FloatRange(0.05), default=0.5, show_default=True, help="Seconds between looks.")
@kafka_options_option
@click.option("--once", is_flag=True, help="Announce the changes since the last time, and end.")
@click.option("--json", "as_json", is_flag=True, help="Print each event as it is written, one a line.")
@verbose_option
def watch_kafka(
    bootstrap_servers: str | None, topic_events: str | None, kafka_options: Path | None, *, as_json: bool, **given: Any
) -> None:
    """Announce births and deaths of Kafka topics.

    It runs until SIGTERM or Ctrl-C. Changes that happened in its absence are announced at the next start. Topics that
    Kafka marks as internal and the topics of reexpand are left out.

    Exit code 0 after SIGTERM or Ctrl-C, 1 when Kafka cannot be watched, 2 when an option is wrong. With --once, exit
    code 1 when it was stopped before everything was announced.

    \b
    Example:
      reexpand watch-kafka --bootstrap-servers broker:9092
      reexpand watch-kafka --bootstrap-servers broker:9092 --parent shop --include 'orders.>' --exclude 'orders.test.>'
    """
    from streaming.adapters import watch_kafka as watcher
    from streaming.kafka.options import for_librdkafka

    settings = _settings(bootstrap_servers, topic_events, kafka_options)
    watcher.run(settings, watcher.Options(client=for_librdkafka(settings), **given), _shown(as_json=as_json))


@click.command()
@bootstrap_servers_option
@click.option("--namesrv", "name_server", required=True, metavar="HOST:PORT", help="Address of RocketMQ's name server.")
@click.option("--parent", required=True, help="Parent topic whose lite topics are announced.")
@click.option("--topic-events", default=None, help="Kafka topic of the events. [default: lite-topic-events]")
@kafka_options_option
@click.option(
    "--rocketmq-options", type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="File of login and TLS of RocketMQ, one key=value a line: accessKey, secretKey, tls.client.trustCertPath.",
)  # fmt: skip
@click.option("--once", is_flag=True, help="Announce the changes since the last time, and end.")
@click.option("--json", "as_json", is_flag=True, help="Print each event as it is written, one a line.")
@verbose_option
def watch_rocketmq(
    bootstrap_servers: str | None,
    topic_events: str | None,
    kafka_options: Path | None,
    rocketmq_options: Path | None,
    *,
    as_json: bool,
    **given: Any,
) -> None:
    """Announce births and deaths of lite topics of RocketMQ.

    It reads the parent's own queues, without a consumer group of its own, and needs nothing on the broker. Changes that
    happened in its absence are announced at the next start. It runs until SIGTERM or Ctrl-C.

    Exit code 0 after SIGTERM or Ctrl-C, 1 when RocketMQ or Kafka cannot be used, 2 when an option is wrong. With
    --once, exit code 1 when it was stopped before everything was announced.

    \b
    Example:
      reexpand watch-rocketmq --bootstrap-servers broker:9092 --namesrv rocketmq:9876 --parent orders
    """
    from streaming.kafka.options import for_librdkafka
    from streaming.rocketmq import access, watcher

    settings = _settings(bootstrap_servers, topic_events, kafka_options)
    options = watcher.RocketMQOptions(client=for_librdkafka(settings), access=access.load(rocketmq_options), **given)
    watcher.run(settings, options, _shown(as_json=as_json))


def _settings(bootstrap_servers: str | None, topic_events: str | None, kafka_options: Path | None) -> "Settings":
    """Return the settings of a watcher, which has no checkpoint."""
    from streaming import config

    given = {"bootstrap_servers": bootstrap_servers, "topic_events": topic_events, "kafka_options": kafka_options}
    return config.load({**given, "checkpoint": "unused"})


def _shown(*, as_json: bool) -> Callable[[bytes], None]:
    """Return what prints each written event."""
    from streaming.adapters.watch import in_words

    return lambda event: printing.json_line(event.decode()) if as_json else printing.line(in_words(event))
