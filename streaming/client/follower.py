"""Reader of the updates topic, in a separate thread."""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING, Any, Self

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message, TopicPartition

from streaming.client.relation import Change, Relation
from streaming.errors import CallbackFailed, ClientError, Malformed, NotReady, UpdatesUnreadable
from streaming.kafka.clients import BY_HAND, NO_ACCESS, PARTITION_END, concerns_group, reason
from streaming.kafka.permissions import readable

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from streaming.client.rows import Row, Subscriber

log = logging.getLogger("reexpand.client")

UPDATES = "lite-subscription-updates"
"""Default name of the updates topic in Kafka."""

_POLL_SECONDS = 0.2
_REQUEST_SECONDS = 2.0
_RECORDS_PER_POLL = 1_000

_DEFAULTS = {
    "group.id": "reexpand-client",  # required, but unused: partitions are assigned by hand
    "log_level": 0,  # its log lines are also reported as errors, and each is logged here once
    "reconnect.backoff.max.ms": 1_000,  # instead of 10 s, to reconnect soon
}
_ALL_DOWN = KafkaError._ALL_BROKERS_DOWN  # noqa: SLF001
_GONE = KafkaError._AUTO_OFFSET_RESET  # noqa: SLF001
_FATAL = NO_ACCESS.union(
    (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.TOPIC_EXCEPTION, KafkaError.TOPIC_AUTHORIZATION_FAILED, _GONE)
)


class SubscriptionClient:
    """Current relation, read from the updates topic until the end of the `with` block, or `close`.

    | question | answer |
    |---|---|
    | `subscribers("orders", "eu__created")` | rows that receive a lite topic |
    | `topics("orders", "billing", "c1")` | lite topics received by a client |
    | `ready`, `wait_ready(30)` | all records from before the start are read |
    | `error` | error that stopped the client |
    | `trouble` | last error from which the client recovers |

    All methods are safe in any number of threads. Answers reflect the records read so far, from the start on; after an
    error they no longer change.

    Args:
        bootstrap_servers: Kafka brokers.
        topic: the updates topic.
        options: librdkafka options, such as credentials.
        on_change: called with each change, in order and in the client's own thread, from the first record on. Any
            exception in it stops the client.
        refresh_seconds: seconds between two searches for new partitions.
        admits: predicate of the subscribers whose rows are kept; see `Relation`.

    Raises:
        UpdatesUnreadable: an option is invalid.
    """

    def __init__(
        self,
        bootstrap_servers: str,
        topic: str = UPDATES,
        *,
        options: Mapping[str, Any] | None = None,
        on_change: Callable[[Change], object] | None = None,
        refresh_seconds: float = 30,
        admits: Callable[[Subscriber], bool] | None = None,
    ) -> None:
        self.relation = Relation(admits)
        self.malformed = 0
        self.error: ClientError | None = None
        self._bootstrap_servers = bootstrap_servers
        self._topic = topic
        self._on_change = on_change
        self._refresh_seconds = refresh_seconds
        self._errors: list[KafkaError] = []
        self._trouble: KafkaError | None = None
        self._logged: int | None = None
        self._partitions: set[int] = set()
        self._ends: dict[int, int] = {}
        self._caught_up = threading.Event()
        self._settled = threading.Event()
        self._stop = threading.Event()
        given = {**_DEFAULTS, **(options or {}), **BY_HAND, "error_cb": self._errors.append}
        try:
            self._consumer = Consumer({**given, "bootstrap.servers": bootstrap_servers})
        except KafkaException as error:
            raise UpdatesUnreadable(f"The Kafka client rejects its options: {error.args[0].str()}.") from error
        self._thread = threading.Thread(target=self._run, name=f"follows {topic}", daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def subscribers(self, parent: str, lite_topic: str) -> list[Row]:
        """Return the rows that receive a lite topic."""
        return self.relation.subscribers(parent, lite_topic)

    def topics(self, parent: str, group: str, client_id: str) -> set[str]:
        """Return the lite topics received by a client, over all of its subscriptions."""
        return self.relation.topics(parent, group, client_id)

    @property
    def ready(self) -> bool:
        """True once all records from before the start are read, and until the client stops."""
        return self._caught_up.is_set() and self.error is None and not self._stop.is_set()

    @property
    def trouble(self) -> str:
        """Last error from which the client recovers; blank after the next successful request."""
        trouble = self._trouble
        return trouble.str() if trouble else ""

    def wait_ready(self, timeout: float | None = None) -> None:
        """Wait until the client is ready.

        Raises:
            UpdatesUnreadable: the updates cannot be read.
            CallbackFailed: `on_change` raised.
            NotReady: the client has not caught up within `timeout` seconds, or is closed.
        """
        if not self._settled.wait(timeout):
            why = f"; the last error is: {self._trouble.str()}" if self._trouble else ""
            raise NotReady(f"{self._where} is not read to its end within {timeout:g} s{why}")
        if self.error is not None:
            raise type(self.error)(*self.error.args) from self.error
        if not self.ready:
            raise NotReady(f"The client of {self._where} is closed.")

    def close(self) -> None:
        """Stop reading; answers no longer change."""
        self._stop.set()
        if threading.current_thread() is not self._thread:
            self._thread.join()

    @property
    def _where(self) -> str:
        return f"{self._topic} at {self._bootstrap_servers}"

    def _run(self) -> None:
        """Body of the thread: follow, and keep the error that ends it."""
        try:
            self._follow()
        except ClientError as error:
            self.error = error
        except BaseException as error:  # noqa: BLE001 - a thread that dies silently would leave answers out of date
            self.error = ClientError(f"Following {self._where} failed: {error!r}")
            self.error.__cause__ = error
        finally:
            if self.error is not None:
                log.error("%s", self.error)
            self._consumer.close()
            self._settled.set()

    def _follow(self) -> None:
        refresh_at = 0.0
        while not self._stop.is_set():
            if time.monotonic() >= refresh_at:
                self._assign_new_partitions()
                refresh_at = time.monotonic() + (self._refresh_seconds if self._partitions else 0)
            first = self._consumer.poll(_POLL_SECONDS)
            while self._errors:
                self._judge(self._errors.pop(0))
            for message in [] if first is None else [first, *self._consumer.consume(_RECORDS_PER_POLL, 0)]:
                self._handle(message)
                if self._stop.is_set():
                    return

    def _assign_new_partitions(self) -> None:
        try:
            found = self._consumer.list_topics(self._topic, timeout=_REQUEST_SECONDS).topics[self._topic]
            if found.error is not None and not self._partitions:  # for a topic in use, reading reports the same error
                self._judge(found.error)
                return
            new = sorted(found.partitions.keys() - self._partitions)
            ends: dict[int, int] = {}
            for number in () if self._partitions else new:
                partition = TopicPartition(self._topic, number)
                start, end = self._consumer.get_watermark_offsets(partition, timeout=_REQUEST_SECONDS)
                if start < end:  # empty ones have no end to wait for
                    ends[number] = end
        except KafkaException as exception:
            self._trouble = self._trouble or exception.args[0]
            return
        self._trouble = self._logged = None
        if not new:
            return
        self._consumer.incremental_assign([TopicPartition(self._topic, number, OFFSET_BEGINNING) for number in new])
        if not self._partitions:
            self._ends = ends
            self._check_caught_up()
        self._partitions.update(new)

    def _handle(self, message: Message) -> None:
        """Apply a record or handle an error, and note the end of a partition."""
        error, partition, offset = message.error(), message.partition() or 0, message.offset() or 0
        if error is None:
            self._apply(message.key(), message.value(), f"{self._topic}[{partition}]@{offset}")
        elif error.code() != PARTITION_END:
            self._judge(error)
            return
        # The last offset may be a transaction marker and no record. Then only the end event follows.
        if partition in self._ends and offset + 1 >= self._ends[partition]:
            del self._ends[partition]
            self._check_caught_up()

    def _apply(self, key: bytes | None, value: bytes | None, place: str) -> None:
        """Apply a record to the relation, and report the change."""
        try:
            change = self.relation.apply(key, value)
        except Malformed as error:
            self.malformed += 1
            log.warning("%s is skipped: %s", place, error)
            return
        if change is None or self._on_change is None:
            return
        try:
            self._on_change(change)
        except Exception as error:
            raise CallbackFailed(f"on_change failed at {place}: {error!r}") from error

    def _check_caught_up(self) -> None:
        """Become ready once every partition is read to its end."""
        if not self._ends:
            self._caught_up.set()
            self._settled.set()

    def _judge(self, error: KafkaError) -> None:
        """Keep an error from which librdkafka recovers; raise any other."""
        code = error.code()
        if error.fatal() or code in _FATAL:
            why = reason(error, readable(self._topic))
            raise UpdatesUnreadable(f"{self._where} cannot be read: {why}.")
        if code == _ALL_DOWN or concerns_group(error):  # `_ALL_DOWN` follows an error with more detail
            return
        self._trouble = error
        if code != self._logged:
            self._logged = code
            log.warning("%s: %s", self._where, error.str())
