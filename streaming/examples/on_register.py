"""The part of a broker plug-in, as a program: reports the creation and deletion of lite topics.

A plug-in of RocketMQ knows a lite topic by the name of its queue, `%LMQ%$parent$child`, and this name is enough:

    {"event": "CREATED", "lmqName": "%LMQ%$orders$eu__created", "timestamp": 1760000000000}

The key of the record is the parent, so that the events of a parent stay in one partition and thus in order. A repeated
event changes nothing: after a write in doubt, the plug-in sends the event again.

The program uses kafka-python, an independent second client, to show that Kafka alone is needed; reexpand does not
install it.
"""
# ruff: noqa: D301 - click wants the character \b, not its two letters, above what it must not wrap

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from collections.abc import Mapping

LMQ_PREFIX = "%LMQ%$"
_TIMEOUT_SECONDS = 10


def on_register(lmq_name: str, timestamp: int) -> dict[str, Any]:
    """Return the event for a new lite topic."""
    return {"event": "CREATED", "lmqName": lmq_name, "timestamp": timestamp}


def on_unregister(lmq_name: str, timestamp: int) -> dict[str, Any]:
    """Return the event for a deleted lite topic."""
    return {"event": "DELETED", "lmqName": lmq_name, "timestamp": timestamp}


def record(event: Mapping[str, Any]) -> tuple[bytes, bytes]:
    """Return the key and the value of an event's record."""
    parent = event["lmqName"].removeprefix(LMQ_PREFIX).partition("$")[0]
    return parent.encode(), json.dumps(event).encode()


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--bootstrap-servers", required=True, help="Kafka brokers, host:port[,host:port...].")
@click.option("--topic-events", default="lite-topic-events", show_default=True, help="Kafka topic of the events.")
@click.option("--parent", required=True, help="The parent topic.")
@click.option("--gone", is_flag=True, help="Report the topics as deleted instead.")
@click.argument("children", nargs=-1, required=True, metavar="LITE_TOPIC...")
def main(bootstrap_servers: str, topic_events: str, parent: str, gone: bool, children: tuple[str, ...]) -> None:  # noqa: FBT001 - click passes options by name
    """Report new lite topics to reexpand, and print the events sent.

    \b
    Example:
      python -m streaming.examples.on_register --bootstrap-servers broker:9092 --parent orders eu__created us__created
    """
    try:
        from kafka import KafkaProducer  # noqa: PLC0415 - help needs none of it
        from kafka.errors import KafkaError  # noqa: PLC0415
    except ImportError:
        raise click.ClickException("kafka-python is not installed; `pip install kafka-python` does that.") from None

    event_of = on_unregister if gone else on_register
    events = [event_of(f"{LMQ_PREFIX}{parent}${child}", time.time_ns() // 1_000_000) for child in children]
    try:
        producer = KafkaProducer(bootstrap_servers=bootstrap_servers, acks="all", max_block_ms=_TIMEOUT_SECONDS * 1_000)
        try:
            sent = [producer.send(topic_events, key=key, value=value) for key, value in map(record, events)]
            for event, future in zip(events, sent, strict=True):
                future.get(_TIMEOUT_SECONDS)
                click.echo(json.dumps(event))
        finally:
            producer.close(_TIMEOUT_SECONDS)
    except KafkaError as error:
        reason = str(error).rstrip(".") or type(error).__name__
        raise click.ClickException(f"Kafka at {bootstrap_servers} does not take the events: {reason}.") from None


if __name__ == "__main__":
    main()
