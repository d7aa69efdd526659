"""`reexpand watch-kafka` and `watch-rocketmq`: topic events for Kafka topics and for lite topics of RocketMQ."""
# ruff: noqa: PLC0415 - a verb imports its own needs

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from streaming.cli import printing
from streaming.cli.root import connection_options, settings


@click.command()
@connection_options
@click.option("--parent", default="kafka", show_default=True, help="Parent topic of the announced topics.")
@click.option("--topic-events", default=None, help="Kafka topic of the events. [default: lite-topic-events]")
@click.option(
    "--include", multiple=True, metavar="PATTERN", help="Only topics that one of these patterns matches; repeatable."
)
@click.option("--exclude", multiple=True, metavar="PATTERN", help="No topic that one of these matches; repeatable.")
@click.option("--dialect", default="nats", show_default=True, help="Dialect of --include and --exclude.")
@click.option("--interval", type=click.FloatRange(0.05), default=0.5, show_default=True, help="Seconds between polls.")
@click.option("--once", is_flag=True, help="Announce the changes since the last run, and exit.")
@click.option("--json", "as_json", is_flag=True, help="Print each written event, one per line.")
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


@click.command()
@connection_options
@click.option("--namesrv", "name_server", required=True, metavar="HOST:PORT", help="Address of RocketMQ's name server.")
@click.option("--parent", required=True, help="Parent topic whose lite topics are announced.")
@click.option("--topic-events", default=None, help="Kafka topic of the events. [default: lite-topic-events]")
@click.option(
    "--rocketmq-options", type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="File of login and TLS of RocketMQ, one key=value per line: accessKey, secretKey, tls.client.trustCertPath.",
)  # fmt: skip
@click.option("--once", is_flag=True, help="Announce the changes since the last run, and exit.")
@click.option("--json", "as_json", is_flag=True, help="Print each written event, one per line.")
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
    from streaming.rocketmq import access, watcher

    kafka = settings(topic_events=topic_events)
    options = watcher.RocketMQOptions(client=for_librdkafka(kafka), access=access.load(rocketmq_options), **given)
    watcher.run(kafka, options, _shown(as_json=as_json))


def _shown(*, as_json: bool) -> Callable[[bytes], None]:
    """Return a function that prints each written event."""
    from streaming.adapters.watch import in_words

    return lambda event: printing.json_line(event.decode()) if as_json else printing.line(in_words(event))
