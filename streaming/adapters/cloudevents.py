"""CloudEvents 1.0 as inputs and outputs of the job, by the official SDK.

Records are converted one by one. A bridge between Kafka topics converts each record exactly once, in transactions. It
raises `BridgeFailed` if Kafka cannot be read or written.
"""

from __future__ import annotations

import json
import logging
import signal
import threading
from datetime import UTC, datetime
from hashlib import blake2b
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import quote

from cloudevents.core.bindings import kafka
from cloudevents.core.exceptions import BaseCloudEventException
from cloudevents.core.formats.json import JSONFormat
from cloudevents.core.v1.event import CloudEvent
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from streaming.errors import BridgeFailed, NotConverted
from streaming.kafka.clients import PARTITION_END, concerns_group, create, produce, reason
from streaming.kafka.permissions import Grant, readable, usable_group, writable
from streaming.records.json_fields import MAX_DEPTH, depth
from streaming.records.parsing import key_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from streaming.config import Settings

log = logging.getLogger("reexpand")

PREFIX: Final = "reexpand."
"""Prefix of the types of all events."""

INPUTS: Final = {
    f"{PREFIX}topic-event": "topic_events",
    f"{PREFIX}subscription-event": "subscription_events",
    f"{PREFIX}group-event": "group_events",
}
"""Settings with the topic of each input, by type of event."""

_STRUCTURED: Final = "application/cloudevents"
_STRUCTURED_JSON: Final = (_STRUCTURED, f"{_STRUCTURED}+json")
_RECORDS_AT_ONCE = 1_000
_REQUEST_SECONDS = 30.0
_MAX_BYTES = 1_048_588
"""Default limit of Kafka's topics; above librdkafka's, which is below that of other clients."""


class Converted(NamedTuple):
    """Record of an input, and the setting with its topic."""

    setting: str
    key: str
    value: bytes


def to_input(headers: Mapping[str, bytes], value: bytes | None) -> Converted:
    """Return the input in a CloudEvent of binary or structured mode.

    In binary mode the bytes of the value stay unchanged.

    Raises:
        NotConverted: the record is no CloudEvent, or the event is no input of the job.
    """
    is_binary = not _is_structured(headers)
    plain = value or b""
    _check_depth(plain)
    # Other headers are not of the event, and may hold any bytes.
    own = {name: text for name, text in headers.items() if name.lower().startswith((kafka.CE_PREFIX, "content-type"))}
    try:
        message = kafka.KafkaMessage(own, None, plain)
        event = (kafka.from_binary if is_binary else kafka.from_structured)(message, JSONFormat())
    except (BaseCloudEventException, ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
        raise NotConverted(f"invalid CloudEvent: {error}") from None
    kind = event.get_type()
    if kind not in INPUTS:
        raise NotConverted(f"its type is {kind!r}; expected {', '.join(INPUTS)}")
    data = plain if is_binary else event.get_data()
    if not is_binary and isinstance(data, bytes):  # data_base64
        _check_depth(data)
    try:
        content = json.loads(data) if isinstance(data, bytes) else data
    except ValueError as error:
        raise NotConverted(f"its data is not JSON: {error}") from None
    if not isinstance(content, dict):
        raise NotConverted("its data is not a JSON object")
    if not isinstance(data, bytes):
        # Escapes would multiply the size. A lone surrogate stays one, for the job to reject.
        data = json.dumps(content, separators=(",", ":"), ensure_ascii=False).encode(errors="surrogatepass")
    return Converted(INPUTS[kind], (key_of(content) or "").encode(errors="replace").decode(), data)


def _check_depth(text: bytes) -> None:
    if depth(text) > MAX_DEPTH:
        raise NotConverted(f"its JSON nests deeper than {MAX_DEPTH} levels")


def _is_structured(headers: Mapping[str, bytes]) -> bool:
    """Return True if the value is a whole event.

    The content type decides (Kafka binding, section 3), because structured events may also have headers of binary mode.
    Without any of these headers the value must be a whole event.

    Raises:
        NotConverted: the format of the event is not JSON.
    """
    names = {name.lower(): value for name, value in headers.items()}
    content_type = names.get("content-type", b"").partition(b";")[0].strip().lower().decode(errors="replace")
    if content_type.startswith(_STRUCTURED):
        if content_type not in _STRUCTURED_JSON:
            raise NotConverted(f"its content type is {content_type!r}; expected {_STRUCTURED}+json")
        return True
    return not any(name.startswith(kafka.CE_PREFIX) for name in names)


def to_event(key: bytes, value: bytes, *, is_update: bool, structured: bool = False) -> kafka.KafkaMessage:
    """Convert an update or a dead letter to a CloudEvent.

    An update has its `eventId` as id and its topic as subject. A dead letter has its key with a digest of its value, as
    several shards may report an entry, and its reason. A structured event is the whole value. Otherwise its attributes
    are headers, next to the value.
    """
    record = json.loads(value)
    source, kind = record["source"], "update" if is_update else "dead-letter"
    attributes = {
        "specversion": "1.0",
        "id": record["eventId"] if is_update else f"{key.decode()}-{blake2b(value, digest_size=8).hexdigest()}",
        "source": f"/reexpand/{quote(str(source['topic']))}",
        "type": f"{PREFIX}{kind}",
        "subject": record["liteTopic"] if is_update else record["reason"],
        "time": datetime.fromtimestamp(source["timestamp"] / 1_000, UTC),
        "datacontenttype": "application/json",
        "dataschema": f"urn:reexpand:{kind}",
        "partitionkey": key.decode(),
    }
    convert = kafka.to_structured if structured else kafka.to_binary
    return convert(CloudEvent(attributes, record if structured else value), JSONFormat(), key_mapper=lambda _: key)


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
        once: stop when all records present at the start are converted.
        client: further options of the Kafka clients.
    """

    topic: str
    structured: bool = False
    once: bool = False
    client: Mapping[str, str] = {}


def accept(settings: Settings, options: BridgeOptions) -> int:
    """Write the inputs in CloudEvents to the topics of the job until stopped, and return their number.

    Records that cannot be converted are skipped and logged.
    """

    def convert(message: Message) -> Produced:
        pairs: list[tuple[str, bytes]] = list(message.headers() or [])  # type: ignore[arg-type]  # they come as a list
        headers = {name: value or b"" for name, value in pairs}
        found = to_input(headers, message.value())
        return Produced(getattr(settings, found.setting), found.key, found.value, [])

    outputs = [getattr(settings, setting) for setting in INPUTS.values()]
    return _Bridge(settings, options, f"reexpand-accept-{options.topic}").run([options.topic], outputs, convert)


def emit(settings: Settings, options: BridgeOptions) -> int:
    """Write updates and dead letters as CloudEvents until stopped, and return their number.

    A record without a value, which deletes its key, stays unchanged.
    """

    def convert(message: Message) -> Produced:
        key, value = message.key() or b"", message.value()
        if value is None:
            return Produced(options.topic, key, None, [])
        is_update = message.topic() == settings.updates
        try:
            found = to_event(key, value, is_update=is_update, structured=options.structured)
        except (BaseCloudEventException, ValueError, KeyError, TypeError, OverflowError) as error:
            raise NotConverted(f"not a record of the job: {error!r}") from None
        return Produced(options.topic, key, found.value, list(found.headers.items()))

    sources = [settings.updates, settings.dead_letters]
    return _Bridge(settings, options, f"reexpand-emit-{options.topic}").run(sources, [options.topic], convert)


def _too_large(_: Message) -> Produced:
    raise NotConverted("it is too large for Kafka")


class _Bridge:
    """Loop of a bridge. Each transaction has converted records, and the offsets of their sources."""

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
            Producer,
            {
                "message.max.bytes": _MAX_BYTES,
                **common,
                "transactional.id": name,
                "partitioner": "murmur2_random",
                "linger.ms": 5,
            },
        )
        self._stop = threading.Event()
        self._count = 0

    def run(self, sources: Sequence[str], outputs: Sequence[str], convert: Callable[[Message], Produced]) -> int:
        """Convert until SIGTERM or SIGINT, or until the end of the sources."""
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
            self._leave()
            for number, handler in former.items():
                signal.signal(number, handler)
        return self._count

    def _leave(self) -> None:
        """Close the consumer. Its `close` hangs for good if it meets an assignment (librdkafka issue 4884)."""
        self._consumer.unsubscribe()
        while self._consumer.poll(0.1) is not None:
            pass
        self._consumer.close()

    def _check(self, sources: Sequence[str], outputs: Sequence[str]) -> None:
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
        """Write records in a transaction, or in several to leave out those that are too large."""
        producer = self._producer
        producer.begin_transaction()
        refused, skipped = self._produce(messages, convert)
        if any(error.code() == KafkaError.MSG_SIZE_TOO_LARGE for error in refused):
            producer.abort_transaction(_REQUEST_SECONDS)
            if len(messages) == 1:
                self._write(messages, _too_large)
                return
            half = len(messages) // 2
            self._write(messages[:half], convert)
            self._write(messages[half:], convert)
            return
        ends = {(each.topic() or "", each.partition() or 0): (each.offset() or 0) + 1 for each in messages}
        offsets = [TopicPartition(*place, offset) for place, offset in ends.items()]
        producer.send_offsets_to_transaction(offsets, self._consumer.consumer_group_metadata(), _REQUEST_SECONDS)
        producer.commit_transaction(_REQUEST_SECONDS)
        if refused:
            raise self._failed(reason(refused[0]))
        for message, why in skipped:
            log.warning("skipped %s[%s]@%s: %s", message.topic(), message.partition(), message.offset(), why)
        self._count += len(messages) - len(skipped)

    def _produce(
        self, messages: list[Message], convert: Callable[[Message], Produced]
    ) -> tuple[list[KafkaError], list[tuple[Message, NotConverted]]]:
        """Send records, and return Kafka's errors and the records that cannot be converted."""
        refused, skipped = list[KafkaError](), list[tuple[Message, NotConverted]]()

        def written(error: KafkaError | None, _: Message) -> None:
            if error is not None:
                refused.append(error)

        for message in messages:
            try:
                topic, key, value, headers = convert(message)
                produce(self._producer, topic, value, key, headers=headers, on_delivery=written)
            except NotConverted as error:
                skipped.append((message, error))
            except KafkaException as error:
                if error.args[0].code() != KafkaError.MSG_SIZE_TOO_LARGE:
                    raise
                refused.append(error.args[0])
        self._producer.flush(_REQUEST_SECONDS)
        return refused, skipped

    def _ends(self, topics: Sequence[str]) -> dict[tuple[str, int], int]:
        """Return the end offset of each partition that has unconverted records."""
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
        """Return the error of the group that caused a timeout; the client reports it at its next poll."""
        message = self._consumer.poll(0.2) if error.code() == KafkaError._TIMED_OUT else None  # noqa: SLF001 - its name
        polled = None if message is None else message.error()
        return next((each for each in (*self._trouble, polled) if each is not None and concerns_group(each)), error)

    def _why(self, error: KafkaError, topic: str | None = None) -> str:
        """Return the reason of an error of the group, of transactions, or of a source topic."""
        needed = {
            KafkaError.GROUP_AUTHORIZATION_FAILED: usable_group(self._name),
            KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: Grant("TRANSACTIONAL_ID", self._name, "WRITE"),
        }
        return reason(error, needed.get(error.code(), None if topic is None else readable(topic)))

    def _failed(self, why: str) -> BridgeFailed:
        return BridgeFailed(
            f"CloudEvents of {self._options.topic} at {self._settings.bootstrap_servers} cannot be converted: {why}. "
            "The next start continues from there."
        )
