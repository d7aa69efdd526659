"""Bridges between Kafka topics of CloudEvents and the job: each record is converted exactly once, in transactions."""

from __future__ import annotations

import logging
import signal
import threading
from typing import TYPE_CHECKING, Any, NamedTuple

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from streaming.adapters.cloud_events.conversion import INPUTS, Wrapper, to_input
from streaming.errors import BridgeFailed, NotConverted
from streaming.kafka.clients import PARTITION_END, concerns_group, create, reason
from streaming.kafka.permissions import Grant, readable, usable_group, writable

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from streaming.config import Settings

log = logging.getLogger("reexpand")

_RECORDS_AT_ONCE = 1_000
_REQUEST_SECONDS = 30.0


class Produced(NamedTuple):
    """Record to write."""

    topic: str
    key: bytes | str | None
    value: bytes | None
    headers: list[tuple[str, bytes]]


class BridgeOptions(NamedTuple):
    """Options of a bridge.

    Attributes:
        topic: Kafka topic of the CloudEvents.
        structured: write them in structured mode.
        once: end when everything is converted that was there at the start.
        client: further options of the Kafka clients.
    """

    topic: str
    structured: bool = False
    once: bool = False
    client: Mapping[str, str] = {}


def accept(settings: Settings, options: BridgeOptions) -> int:
    """Write the inputs in CloudEvents to the topics of the job, until stopped; return their number.

    Events that are none are passed over, with a line in the log.

    Raises:
        BridgeFailed: Kafka cannot be read or written.
    """

    def convert(message: Message) -> Produced:
        pairs: list[tuple[str, bytes]] = list(message.headers() or [])  # type: ignore[arg-type]  # they come as a list
        headers = {name: value or b"" for name, value in pairs}
        found = to_input(headers, message.value())
        return Produced(getattr(settings, found.setting), found.key, found.value, [])

    outputs = [getattr(settings, setting) for setting in INPUTS.values()]
    return _Bridge(settings, options, f"reexpand-accept-{options.topic}").run([options.topic], outputs, convert)


def emit(settings: Settings, options: BridgeOptions) -> int:
    """Write updates and dead letters as CloudEvents, until stopped; return their number.

    A record without value, which deletes its key, stays one.

    Raises:
        BridgeFailed: Kafka cannot be read or written.
    """
    wrapper = Wrapper(structured=options.structured)

    def convert(message: Message) -> Produced:
        key, value = message.key() or b"", message.value()
        if value is None:
            return Produced(options.topic, key, None, [])
        make = wrapper.update if message.topic() == settings.updates else wrapper.dead_letter
        try:
            found = make(key, value)
        except (ValueError, KeyError, TypeError) as error:
            raise NotConverted(f"it is no record of the job: {error!r}") from None
        return Produced(options.topic, key, found.value, list(found.headers.items()))

    sources = [settings.updates, settings.dead_letters]
    return _Bridge(settings, options, f"reexpand-emit-{options.topic}").run(sources, [options.topic], convert)


class _Bridge:
    """Loop of a bridge: records and the offsets up to which they are converted are written in one transaction."""

    def __init__(self, settings: Settings, options: BridgeOptions, name: str) -> None:
        self._settings = settings
        self._options = options
        self._name = name
        self._trouble: list[KafkaError] = []
        common = {
            "log_level": 0,
            **options.client,
            "bootstrap.servers": settings.bootstrap_servers,
            "error_cb": self._trouble.append,
        }
        own = {"group.id": name, "enable.auto.commit": False, "auto.offset.reset": "earliest"}
        self._consumer = create(
            Consumer, {**common, **own, "isolation.level": "read_committed", "enable.partition.eof": True}
        )
        self._producer = create(
            Producer, {**common, "transactional.id": name, "partitioner": "murmur2_random", "linger.ms": 5}
        )
        self._stop = threading.Event()
        self._count = 0

    def run(self, sources: Sequence[str], outputs: Sequence[str], convert: Callable[[Message], Produced]) -> int:
        """Convert until SIGTERM or SIGINT, or to the end."""
        former = {
            number: signal.signal(number, lambda *_: self._stop.set()) for number in (signal.SIGTERM, signal.SIGINT)
        }
        try:
            self._check(sources, outputs)
            self._producer.init_transactions(_REQUEST_SECONDS)
            self._consumer.subscribe(list(sources))
            log.info("ready: converting %s", ", ".join(sources))
            self._convert(sources, convert)
        except KafkaException as error:
            raise self._failed(self._why(self._behind(error.args[0]))) from None
        finally:
            self._consumer.close()
            for number, handler in former.items():
                signal.signal(number, handler)
        return self._count

    def _check(self, sources: Sequence[str], outputs: Sequence[str]) -> None:
        """Check that all topics exist, and may be seen."""
        for needed in (*map(readable, sources), *map(writable, outputs)):
            error = self._consumer.list_topics(needed.name, timeout=_REQUEST_SECONDS).topics[needed.name].error
            if error is not None and error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise BridgeFailed(
                    f"The topic {needed.name} does not exist at {self._settings.bootstrap_servers}: create it."
                )
            if error is not None:
                raise self._failed(reason(error, needed))

    def _convert(self, sources: Sequence[str], convert: Callable[[Message], Produced]) -> None:
        unread = self._ends(sources) if self._options.once else {}
        while not self._stop.is_set() and not (self._options.once and not unread):
            messages = self._consumer.consume(_RECORDS_AT_ONCE, 0.2)
            records = []
            for message in messages:
                error = message.error()
                if error is None:
                    records.append(message)
                elif error.code() != PARTITION_END and not error.retriable():
                    raise self._failed(self._why(error, message.topic()))
                place = message.topic() or "", message.partition() or 0
                if place in unread and (message.offset() or 0) + (error is None) >= unread[place]:
                    del unread[place]
            if records:
                self._write(records, convert)

    def _write(self, messages: list[Message], convert: Callable[[Message], Produced]) -> None:
        """Write one transaction."""
        producer, refused = self._producer, list[KafkaError]()

        def written(error: KafkaError | None, _: Message) -> None:
            if error is not None:
                refused.append(error)

        producer.begin_transaction()
        ends: dict[tuple[str, int], int] = {}
        for message in messages:
            place = message.topic() or "", message.partition() or 0
            ends[place] = (message.offset() or 0) + 1
            try:
                record = convert(message)
            except NotConverted as error:
                log.warning("%s[%d]@%s is passed over: %s", *place, message.offset(), error)
                continue
            topic, key, value, headers = record
            self._produce(topic, value, key, headers=headers, on_delivery=written)
            self._count += 1
        offsets = [TopicPartition(*place, offset) for place, offset in ends.items()]
        producer.send_offsets_to_transaction(offsets, self._consumer.consumer_group_metadata(), _REQUEST_SECONDS)
        producer.commit_transaction(_REQUEST_SECONDS)
        if refused:
            raise self._failed(reason(refused[0]))

    def _produce(self, *record: Any, **further: Any) -> None:
        while True:
            try:
                self._producer.produce(*record, **further)
            except BufferError:  # its queue is full
                self._producer.poll(0.1)
            else:
                return

    def _ends(self, topics: Sequence[str]) -> dict[tuple[str, int], int]:
        """Return the present ends of all partitions that have records, as far as they are not converted."""
        found = {}
        for topic in topics:
            for number in self._consumer.list_topics(topic, timeout=_REQUEST_SECONDS).topics[topic].partitions:
                partition = TopicPartition(topic, number)
                start, end = self._consumer.get_watermark_offsets(partition, timeout=_REQUEST_SECONDS)
                (committed,) = self._consumer.committed([partition], timeout=_REQUEST_SECONDS)
                if max(start, committed.offset) < end:
                    found[topic, number] = end
        return found

    def _behind(self, error: KafkaError) -> KafkaError:
        """Return the refusal of the group that is behind a time-out; the client tells of it at its next poll."""
        message = self._consumer.poll(0.2) if error.code() == KafkaError._TIMED_OUT else None  # noqa: SLF001 - its name
        polled = None if message is None else message.error()
        return next((each for each in (*self._trouble, polled) if each is not None and concerns_group(each)), error)

    def _why(self, error: KafkaError, topic: str | None = None) -> str:
        """Return the reason of an error: of the group, of the transactions, or of a topic that is read."""
        needed = {
            KafkaError.GROUP_AUTHORIZATION_FAILED: usable_group(self._name),
            KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: Grant("TRANSACTIONAL_ID", self._name, "WRITE"),
        }
        return reason(error, needed.get(error.code(), None if topic is None else readable(topic)))

    def _failed(self, why: str) -> BridgeFailed:
        return BridgeFailed(
            f"CloudEvents of {self._options.topic} at {self._settings.bootstrap_servers} cannot be converted: {why}. "
            "The next start goes on where this one ended."
        )
