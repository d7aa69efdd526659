"""A dispatcher: hands each message of a parent topic to the clients that receive its lite topic.

The message's key names the lite topic. Of a group's clients that receive it, one gets the message, the one that has
waited longest; so does one of each share of a shared subscription. A subscription that counts by itself (`wamp:...`)
gets each message.

A message is delivered at least once. One that comes before the updates of its topic are read reaches nobody: send to a
new topic when its subscribers are known, or keep messages without recipients for a while.
"""

from __future__ import annotations

import logging
import signal
import threading
from collections import defaultdict
from contextlib import closing
from itertools import count
from typing import TYPE_CHECKING, Protocol

import click
import orjson
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer

from streaming.client import UPDATES, Change, Op, Row, Subscriber, SubscriptionClient

if TYPE_CHECKING:
    from collections.abc import Callable

log = logging.getLogger("dispatcher")

_AT_ONCE = 500


class Subscriptions(Protocol):
    """What knows who receives a lite topic."""

    def subscribers(self, parent: str, lite_topic: str) -> list[Row]:
        """The rows that receive a lite topic."""


class Turns:
    """Whose turn it is among those who share their messages."""

    def __init__(self) -> None:
        self._clock = count(1)
        self._last: dict[Subscriber, int] = {}

    def next(self, rows: list[Row]) -> Row:
        """The one that has waited longest."""
        chosen = min(rows, key=lambda row: self._last.get(row.subscriber, 0))
        if len(rows) > 1:
            self._last[chosen.subscriber] = next(self._clock)
        return chosen

    def forget(self, change: Change) -> None:
        """Keeps nothing of those who left; whoever leaves one topic only is first in another once."""
        if change.op is Op.REMOVE:
            self._last.pop(change.row.subscriber, None)


class Dispatcher:
    """Gives each message to `deliver` once for each of its recipients."""

    def __init__(self, subscriptions: Subscriptions, turns: Turns, deliver: Callable[[Row, Message], None]) -> None:
        self._subscriptions = subscriptions
        self._turns = turns
        self._deliver = deliver

    def recipients(self, parent: str, lite_topic: str) -> list[Row]:
        """Who gets the next message of a lite topic."""
        sharing: dict[object, list[Row]] = defaultdict(list)
        for row in self._subscriptions.subscribers(parent, lite_topic):
            alone = row.part is not None and row.share is None
            sharing[row.subscriber if alone else (row.group, row.part)].append(row)
        return [self._turns.next(rows) for rows in sharing.values()]

    def dispatch(self, message: Message) -> None:
        """Delivers a message to its recipients, if it names a lite topic."""
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
    """Delivers into Kafka: to the topic `<parent>-delivered`, which must exist, under the client's id as key."""

    def __init__(self, producer: Producer) -> None:
        self._producer = producer
        self._failed: list[KafkaError] = []

    def __call__(self, row: Row, message: Message) -> None:
        """Sends the message on; `flush` makes sure of it."""
        headers = [
            *(message.headers() or []),
            ("group", row.group.encode()),
            ("client", row.client_id.encode()),
            ("liteTopic", row.lite_topic.encode()),
            ("patterns", orjson.dumps(row.patterns)),
        ]
        topic, key, value = f"{row.parent}-delivered", row.client_id.encode(), message.value()
        while True:
            try:
                self._producer.produce(topic, value, key, headers=headers, on_delivery=self._written)
                break
            except BufferError:  # its queue is full
                self._producer.poll(0.1)
        self._producer.poll(0)

    def flush(self) -> None:
        """Waits until everything is written.

        Raises:
            KafkaException: something could not be written.
        """
        self._producer.flush()
        if self._failed:
            raise KafkaException(self._failed[0])

    def _written(self, error: KafkaError | None, _: Message) -> None:
        if error is not None:
            self._failed.append(error)


def run(
    consumer: Consumer, subscriptions: SubscriptionClient, dispatcher: Dispatcher, inbox: Inbox, stop: threading.Event
) -> None:
    """Dispatches until told to stop. Offsets are committed when their messages are delivered."""
    while not stop.is_set():
        if subscriptions.error is not None:  # the relation grows old
            raise subscriptions.error
        first = consumer.poll(0.2)
        if first is None:
            continue
        for message in (first, *consumer.consume(_AT_ONCE, 0)):
            error = message.error()
            if error is not None:
                raise KafkaException(error)
            dispatcher.dispatch(message)
        inbox.flush()
        consumer.commit(asynchronous=False)


@click.command()
@click.option("--bootstrap-servers", required=True, help="Kafka brokers, host:port[,host:port...].")
@click.option("--parent", "parents", required=True, multiple=True, help="Parent topic, a Kafka topic; may be repeated.")
@click.option("--updates", default=UPDATES, show_default=True, help="The updates topic.")
@click.option("--group-id", default="dispatcher", show_default=True, help="Dispatchers with one id share the work.")
@click.option("--option", "options", multiple=True, metavar="KEY=VALUE", help="librdkafka option; may be repeated.")
def main(
    bootstrap_servers: str, parents: tuple[str, ...], updates: str, group_id: str, options: tuple[str, ...]
) -> None:
    """Deliver the messages of parent topics until SIGTERM or Ctrl-C.

    Example: python -m streaming.examples.dispatcher --bootstrap-servers broker:9092 --parent orders
    """
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    common = {**dict(option.split("=", 1) for option in options), "bootstrap.servers": bootstrap_servers}
    own = {"group.id": group_id, "enable.auto.commit": False, "auto.offset.reset": "earliest"}
    turns = Turns()
    inbox = Inbox(Producer({**common, "enable.idempotence": True}))
    with (
        SubscriptionClient(bootstrap_servers, updates, options=common, on_change=turns.forget) as subscriptions,
        closing(Consumer({**common, **own})) as consumer,
    ):
        subscriptions.wait_ready(60)
        consumer.subscribe(list(parents))
        log.info("ready: %d rows", len(subscriptions.relation))
        run(consumer, subscriptions, Dispatcher(subscriptions, turns, inbox), inbox, stop)


if __name__ == "__main__":
    main()
