"""A dispatcher: passes each message of a parent topic on to the subscribers of its lite topic.

The key of a message names the lite topic. In each group one subscriber gets the message, the least recently served one;
the same holds for each share of a shared subscription. A subscription that counts by itself (`wamp:...`) gets every
message.

Delivery is at least once. A message reaches nobody if it comes before the updates of its topic: send to a new topic
only when its subscribers are known, or keep messages without recipients for a while.
"""

from __future__ import annotations

import logging
import signal
import sys
import threading
from collections import defaultdict
from contextlib import closing
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import orjson
from confluent_kafka import Consumer, KafkaException, Message

from streaming.client import UPDATES, Change, ClientError, Op, Row, Subscriber, SubscriptionClient, client_options
from streaming.errors import ConfigInvalid, NotWritten, TopicUnreadable
from streaming.kafka.clients import concerns_group, create, reason
from streaming.kafka.options import is_secret
from streaming.kafka.permissions import Grant, readable
from streaming.kafka.writer import Writer
from streaming.printable import PrintableFormatter, counted

if TYPE_CHECKING:
    from collections.abc import Callable

log = logging.getLogger("dispatcher")

_MESSAGES_PER_COMMIT = 500

_UNLIMITED = -1
"""Time to wait for a write, as librdkafka takes it: until `message.timeout.ms`."""

_READY_SECONDS = 60.0
"""Longest wait at the start, in seconds, for the updates topic to be read to its end."""


class LeastRecentlyServed:
    """Rotation among subscribers that share their messages."""

    def __init__(self) -> None:
        self._clock = count(1)
        self._last: dict[Subscriber, int] = {}

    def next(self, rows: list[Row]) -> Row:
        """Return the row of the least recently served subscriber, and count it as served."""
        chosen = min(rows, key=lambda row: self._last.get(row.subscriber, 0))
        if len(rows) > 1:
            self._last[chosen.subscriber] = next(self._clock)
        return chosen

    def forget(self, change: Change) -> None:
        """Forget a subscriber at its first REMOVE; if it keeps other topics, it is first in one of them once."""
        if change.op is Op.REMOVE:
            self._last.pop(change.row.subscriber, None)


class Dispatcher:
    """Calls `deliver` once for each recipient of a message.

    Args:
        subscribers: returns the rows that receive a lite topic of a parent.
        rotation: rotation among subscribers that share their messages.
        deliver: passes a message on to the subscriber of a row.
    """

    def __init__(
        self,
        subscribers: Callable[[str, str], list[Row]],
        rotation: LeastRecentlyServed,
        deliver: Callable[[Row, Message], None],
    ) -> None:
        self._subscribers = subscribers
        self._rotation = rotation
        self._deliver = deliver

    def recipients(self, parent: str, lite_topic: str) -> list[Row]:
        """Return the recipients of the next message of a lite topic."""
        sharing: dict[object, list[Row]] = defaultdict(list)
        for row in self._subscribers(parent, lite_topic):
            counts_by_itself = row.part is not None and row.share is None
            sharing[row.subscriber if counts_by_itself else (row.group, row.part)].append(row)
        return [self._rotation.next(rows) for rows in sharing.values()]

    def dispatch(self, message: Message) -> None:
        """Deliver a message to its recipients, if it names a lite topic."""
        try:
            lite_topic = (message.key() or b"").decode()
        except UnicodeDecodeError:
            lite_topic = ""
        if not lite_topic:
            log.warning("%s[%s]@%s names no lite topic", message.topic(), message.partition(), message.offset())
            return
        for row in self.recipients(message.topic() or "", lite_topic):
            self._deliver(row, message)


class Inbox:
    """Delivery into Kafka: to the existing topic `<parent>-delivered`, with the client's id as key."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer

    def __call__(self, row: Row, message: Message) -> None:
        """Send a message on; `flush` waits until it is written."""
        headers: list[tuple[str, str | bytes | None]] = [
            *(message.headers() or []),
            ("group", row.group.encode()),
            ("client", row.client_id.encode()),
            ("liteTopic", row.lite_topic.encode()),
            ("patterns", orjson.dumps(row.patterns)),
        ]
        self._writer.send(f"{row.parent}-delivered", message.value(), row.client_id.encode(), headers=headers)

    def flush(self) -> None:
        """Wait until everything is written.

        Raises:
            NotWritten: a message could not be written.
        """
        self._writer.flush(_UNLIMITED)


def run(
    consumer: Consumer,
    subscriptions: SubscriptionClient,
    dispatcher: Dispatcher,
    inbox: Inbox,
    *,
    group_id: str,
    stop: threading.Event,
) -> None:
    """Dispatch until told to stop, and commit offsets after their messages are delivered.

    Raises:
        ClientError: the relation is no longer up to date.
        NotWritten: a message could not be written.
        TopicUnreadable: a parent topic cannot be read.
    """
    while not stop.is_set():
        if subscriptions.error is not None:
            raise subscriptions.error
        first = consumer.poll(0.2)
        if first is None:
            continue
        for message in (first, *consumer.consume(_MESSAGES_PER_COMMIT, 0)):
            error = message.error()
            topic = message.topic()
            if error is not None and (concerns_group(error) or topic is None):
                raise TopicUnreadable(f"the group {group_id}: {reason(error, Grant('GROUP', group_id, 'READ'))}")
            if error is not None:
                raise TopicUnreadable(f"the topic {topic}: {reason(error, readable(topic or ''))}")
            dispatcher.dispatch(message)
        inbox.flush()
        consumer.commit(asynchronous=False)


def _pairs(_ctx: click.Context, _parameter: click.Parameter, texts: tuple[str, ...]) -> dict[str, str]:
    """Parse `KEY=VALUE` texts."""
    pairs = {}
    for text in texts:
        name, found, value = text.partition("=")
        if not (name and found):
            raise click.BadParameter(f"{text!r} is not KEY=VALUE.")
        if is_secret(name):
            raise click.BadParameter(f"{name} belongs into the file of --kafka-options: others see a command line.")
        pairs[name] = value
    return pairs


def _on_signals(action: Callable[[], object]) -> None:
    """Call this on SIGTERM and on Ctrl-C."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: action())


@click.command()
@click.option("--bootstrap-servers", required=True, help="Kafka brokers, host:port[,host:port...].")
@click.option("--parent", "parents", required=True, multiple=True, help="Parent topic, a Kafka topic; may be repeated.")
@click.option("--updates", default=UPDATES, show_default=True, help="The updates topic.")
@click.option("--group-id", default="dispatcher", show_default=True, help="Dispatchers with one id share the work.")
@click.option(
    "--option", "options", multiple=True, metavar="KEY=VALUE", callback=_pairs,
    help="librdkafka option; may be repeated.",
)  # fmt: skip
@click.option(
    "--kafka-options", type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="File of Kafka client options, as for `reexpand run`; the place for credentials.",
)  # fmt: skip
def main(
    *,
    bootstrap_servers: str,
    parents: tuple[str, ...],
    updates: str,
    group_id: str,
    options: dict[str, str],
    kafka_options: Path | None,
) -> None:
    """Deliver the messages of parent topics until SIGTERM or Ctrl-C.

    Exit code 1 if Kafka does not answer or refuses something, 2 if an option is invalid.

    Example: python -m streaming.examples.dispatcher --bootstrap-servers broker:9092 --parent orders
    """
    handler = logging.StreamHandler()
    handler.setFormatter(PrintableFormatter("%(asctime)s %(levelname)s %(message)s"))
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    own = {"group.id": group_id, "enable.auto.commit": False, "auto.offset.reset": "earliest"}
    try:
        given = client_options(kafka_options) if kafka_options else {}
        common: dict[str, Any] = {"log_level": 0, **given, **options, "bootstrap.servers": bootstrap_servers}
        # Another partitioner would move the messages of a client to another partition.
        partitioner = {"partitioner": common.get("partitioner", "consistent_random")}
        writer = Writer(bootstrap_servers, common, NotWritten, partitioner)
        consumer = create(Consumer, {**common, **own})
    except ConfigInvalid as error:
        raise click.UsageError(str(error)) from None
    _on_signals(sys.exit)  # nothing is delivered yet
    rotation, inbox, stop = LeastRecentlyServed(), Inbox(writer), threading.Event()
    try:
        with (
            closing(consumer),
            SubscriptionClient(bootstrap_servers, updates, options=common, on_change=rotation.forget) as subscriptions,
        ):
            log.info("reading %s at %s to its end, for at most %g s", updates, bootstrap_servers, _READY_SECONDS)
            subscriptions.wait_ready(_READY_SECONDS)
            _on_signals(stop.set)
            consumer.subscribe(list(parents))
            log.info("ready: %s", counted(len(subscriptions.relation), "row"))
            dispatcher = Dispatcher(subscriptions.subscribers, rotation, inbox)
            run(consumer, subscriptions, dispatcher, inbox, group_id=group_id, stop=stop)
    except (ClientError, NotWritten, TopicUnreadable) as error:
        raise click.ClickException(str(error)) from error
    except KafkaException as error:
        raise click.ClickException(
            f"Kafka at {bootstrap_servers} fails: {reason(error, Grant('GROUP', group_id, 'READ'))}."
        ) from error


if __name__ == "__main__":
    main()
