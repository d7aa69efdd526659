"""Administrative requests to Kafka, by the client in Spark's JVM with the job's client options."""

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any, Self, TypeVar

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from streaming.config import Settings
from streaming.errors import KafkaUnavailable
from streaming.kafka.facts import EntryPlace, Offsets, sources
from streaming.kafka.options import java_options
from streaming.kafka.reach import wait_for_broker
from streaming.kafka.topics import TopicSpec
from streaming.spark.gateway import items, java_class
from streaming.spark.kafka_clients import client_properties, kafka_class, root_cause

T = TypeVar("T")

BROKER_TIMEOUT_MS = 60_000
"""Longest wait for an answer at the start of the job, in milliseconds."""

SHORT_TIMEOUT_MS = 10_000
"""Longest wait during a running query, in milliseconds; a stopping job would wait for it."""

_TAIL_RECORDS = 1_000
"""Number of records at the end of each partition of the updates topic that a start reads."""

_TAIL_SECONDS = 20
"""Longest time that a start reads them."""

_LOOK_SECONDS = 0.1
"""Time between two checks for new topics."""


class KafkaAdmin:
    """Kafka's administration client, as a context manager.

    All methods raise `KafkaUnavailable` if Kafka does not answer within the timeout in milliseconds, or refuses a
    request. `is_over` ends the wait for a first broker early, without an exception.
    """

    def __init__(
        self,
        spark: SparkSession,
        settings: Settings,
        timeout_ms: int = BROKER_TIMEOUT_MS,
        *,
        is_over: Callable[[], bool] = lambda: False,
    ) -> None:
        self._spark = spark
        self._settings = settings
        self._timeout_ms = timeout_ms
        given = java_options(settings).get("default.api.timeout.ms", "")
        patience_ms = min(timeout_ms, int(given)) if given.isdecimal() else timeout_ms
        wait_for_broker(settings.bootstrap_servers, patience_ms / 1_000, is_over=is_over)
        timeouts = {"default.api.timeout.ms": timeout_ms, "request.timeout.ms": timeout_ms // 2}
        properties = client_properties(spark, settings, timeouts)
        self._admin = self._call(lambda: self._class("clients.admin.Admin").create(properties))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._admin.close(java_class(self._spark, "java.time.Duration").ZERO)  # do not wait for outstanding answers

    def names(self) -> set[str]:
        """Return the names of all topics that the job may see."""
        return set(items(self._call(lambda: self._admin.listTopics().names().get())))

    def create(self, spec: TopicSpec) -> bool:
        """Create a topic with the broker's default number of partitions; return False if it exists."""
        default = java_class(self._spark, "java.util.Optional").empty()
        topic = self._class("clients.admin.NewTopic")(spec.name, default, default).configs(dict(spec.config))
        try:
            self._admin.createTopics([topic]).all().get()
        except Py4JJavaError as error:
            if "TopicExistsException" not in root_cause(error):  # else someone has created it in the meantime
                raise self._unavailable(error) from None
            return False
        return True

    def ids(self, names: Collection[str]) -> dict[str, str]:
        """Return the ids of topics that exist."""
        return self.ids_of(self.asked(names))

    def asked(self, names: Collection[str]) -> dict[str, Any]:
        """Request the ids of topics without waiting, and return a future for each."""
        futures = self._call(lambda: self._admin.describeTopics(list(names)).topicNameValues())
        return {name: futures[name] for name in names}

    def ids_of(self, asked: Mapping[str, Any]) -> dict[str, str]:
        """Return the ids of the topics that exist, by name, from the futures of a request."""
        found = {}
        for name, future in asked.items():
            try:
                found[name] = str(future.get().topicId().toString())
            except Py4JJavaError as error:
                if "UnknownTopicOrPartitionException" not in root_cause(error):
                    raise self._unavailable(error) from None
        return found

    def ids_of_new(self, names: Collection[str]) -> dict[str, str]:
        """Return the ids of topics that were just created: a broker may list them a moment later."""
        deadline = time.monotonic() + self._timeout_ms / 1_000
        while True:
            found = self.ids(names)
            unknown = set(names) - found.keys()
            if not unknown:
                return found
            if time.monotonic() > deadline:
                raise KafkaUnavailable(
                    f"Kafka at {self._settings.bootstrap_servers} has created {', '.join(sorted(unknown))}, "
                    "and does not show it. Check the brokers."
                )
            time.sleep(_LOOK_SECONDS)

    def allowed_on_topics(self, names: Collection[str]) -> dict[str, set[str]]:
        """Return the operations that this user is allowed on topics, if brokers report them."""
        options = self._class("clients.admin.DescribeTopicsOptions")().includeAuthorizedOperations(True)
        futures = self._call(lambda: self._admin.describeTopics(list(names), options).topicNameValues())
        found = {name: self._allowed(futures[name]) for name in names}
        return {name: operations for name, operations in found.items() if operations is not None}

    def allowed_on_group(self, group: str) -> set[str] | None:
        """Return the operations that this user is allowed on a consumer group; None if unknown."""
        options = self._class("clients.admin.DescribeConsumerGroupsOptions")().includeAuthorizedOperations(True)
        futures = self._call(lambda: self._admin.describeConsumerGroups([group], options).describedGroups())
        return self._allowed(futures[group])

    def _allowed(self, future: Any) -> set[str] | None:
        try:
            operations = future.get().authorizedOperations()
        except Py4JJavaError as error:
            return set() if "AuthorizationException" in root_cause(error) else None
        return None if operations is None else {str(each.name()) for each in items(operations)}

    def configure(self, name: str, option: str, value: str) -> None:
        """Set an option of a topic."""
        operation = self._class("clients.admin.AlterConfigOp")
        change = operation(self._class("clients.admin.ConfigEntry")(option, value), operation.OpType.SET)
        self._call(lambda: self._admin.incrementalAlterConfigs({self._topic(name): [change]}).all().get())

    def configurations(self, names: Iterable[str], options: Iterable[str]) -> dict[str, dict[str, str]]:
        """Return the values of some options of topics."""
        resources = {name: self._topic(name) for name in names}
        found = self._call(lambda: self._admin.describeConfigs(list(resources.values())).all().get())
        return {
            name: {option: str(found[resource].get(option).value()) for option in options}
            for name, resource in resources.items()
        }

    def _topic(self, name: str) -> Any:
        config = self._class("common.config.ConfigResource")
        return config(config.Type.TOPIC, name)

    def ends(self, names: Collection[str], isolation: str = "READ_UNCOMMITTED") -> Offsets:
        """Return the offsets behind the last records of topics, or with READ_COMMITTED up to which they can be read."""
        return self._offsets(self._partitions(names), self._class("clients.admin.OffsetSpec").latest(), isolation)

    def spans(self, names: Collection[str]) -> tuple[Offsets, Offsets]:
        """Return the offsets of the first record and behind the last record, of each partition of topics."""
        partitions = self._partitions(names)
        spec = self._class("clients.admin.OffsetSpec")
        return self._offsets(partitions, spec.earliest()), self._offsets(partitions, spec.latest())

    @cached_property
    def _partition(self) -> Any:
        """Java's class of a partition, of which there may be many."""
        return self._class("common.TopicPartition")

    @cached_property
    def _offset(self) -> Any:
        """Java's class of an offset, as above."""
        return self._class("clients.consumer.OffsetAndMetadata")

    def ends_request(self, numbers: Mapping[str, Collection[int]]) -> Any:
        """Return a reusable request for `asked_ends`, since making it takes a call per partition."""
        latest = self._class("clients.admin.OffsetSpec").latest()
        request = java_class(self._spark, "java.util.HashMap")()
        for name, several in numbers.items():
            for number in several:
                request.put(self._partition(name, number), latest)
        return request

    def asked_ends(self, request: Any) -> Any:
        """Request the offsets behind the last records, and return the future of the response."""
        return self._call(lambda: self._admin.listOffsets(request).all())

    def asked_to_commit(self, group: str, offsets: Mapping[tuple[str, int], int]) -> Any:
        """Request a commit of a consumer group's offsets, and return the future of the response."""
        request = java_class(self._spark, "java.util.HashMap")()
        for place, position in offsets.items():
            request.put(self._partition(*place), self._offset(position))
        return self._call(lambda: self._admin.alterConsumerGroupOffsets(group, request).all())

    def markers(self, groups: Collection[str]) -> dict[str, int]:
        """Return how many micro-batches each partition has written, by marker.

        See `jvm/reexpand/FencedProducer.java`.
        """
        spec = self._class("clients.admin.ListConsumerGroupOffsetsSpec")()
        stable = self._class("clients.admin.ListConsumerGroupOffsetsOptions")().requireStable(True)
        request = dict.fromkeys(groups, spec)
        found = self._call(lambda: self._admin.listConsumerGroupOffsets(request, stable).all().get())
        offsets = {group: [each.getValue() for each in items(found[group].entrySet())] for group in groups}
        return {group: max((each.offset() for each in offsets[group] if each), default=0) for group in groups}

    def open_transactions(self) -> set[str]:
        """Return the transactional ids with an open transaction, as far as this user may see them."""
        ongoing = self._class("clients.admin.TransactionState").ONGOING
        options = self._class("clients.admin.ListTransactionsOptions")().filterStates([ongoing])
        listed = self._call(lambda: self._admin.listTransactions(options).all().get())
        return {str(each.transactionalId()) for each in items(listed)}

    def end_transactions(self, producers: Collection[str]) -> None:
        """Abort the open transactions of producers that write no more, by their transactional ids."""
        self._call(lambda: self._admin.fenceProducers(list(producers)).all().get())

    def last_sources(self, updates: str) -> set[EntryPlace]:
        """Return the sources of the latest updates, at the end of each partition of the updates topic."""
        partitions = self._partitions([updates])
        spec = self._class("clients.admin.OffsetSpec")
        beginnings = self._offsets(partitions, spec.earliest())[updates]
        ends = self._offsets(partitions, spec.latest(), "READ_COMMITTED")[updates]
        held = {number: end for number, end in ends.items() if end > beginnings[number]}
        positions = {number: max(beginnings[number], end - _TAIL_RECORDS) for number, end in held.items()}
        return self._call(lambda: self._read(updates, positions, ends)) if positions else set()

    def _read(self, topic: str, positions: Mapping[int, int], ends: Mapping[int, int]) -> set[EntryPlace]:
        deserializer = self._class("common.serialization.StringDeserializer")
        defaults = {"isolation.level": "read_committed", "enable.auto.commit": "false"}
        properties = client_properties(self._spark, self._settings, defaults)
        consumer = self._class("clients.consumer.KafkaConsumer")(properties, deserializer(), deserializer())
        try:
            assigned = {number: self._partition(topic, number) for number in positions}
            consumer.assign(list(assigned.values()))
            for number, offset in positions.items():
                consumer.seek(assigned[number], offset)
            found: set[EntryPlace] = set()
            wait = java_class(self._spark, "java.time.Duration").ofMillis(500)
            deadline = time.monotonic() + _TAIL_SECONDS
            while time.monotonic() < deadline and any(
                consumer.position(assigned[number]) < ends[number] for number in assigned
            ):
                records = consumer.poll(wait)
                for each in items(records.partitions()):
                    # The text of all records at once: asking for them one by one takes a millisecond each.
                    found |= sources(records.records(each).toString())
            return found
        finally:
            consumer.close(java_class(self._spark, "java.time.Duration").ZERO)  # it holds nothing on the broker

    def _partitions(self, names: Collection[str]) -> dict[str, Any]:
        futures = self._call(lambda: self._admin.describeTopics(list(names)).allTopicNames().get())
        partitions = {name: items(futures[name].partitions()) for name in names}
        return {name: [self._partition(name, each.partition()) for each in every] for name, every in partitions.items()}

    def _offsets(self, partitions: Mapping[str, Any], spec: Any, isolation: str = "READ_UNCOMMITTED") -> Offsets:
        request = {each: spec for parts in partitions.values() for each in parts}
        level = getattr(self._class("common.IsolationLevel"), isolation)
        options = self._class("clients.admin.ListOffsetsOptions")(level)
        found = self._call(lambda: self._admin.listOffsets(request, options).all().get())
        return {name: {each.partition(): found[each].offset() for each in parts} for name, parts in partitions.items()}

    def _class(self, name: str) -> Any:
        return kafka_class(self._spark, name)

    def _call(self, request: Callable[[], T]) -> T:
        try:
            return request()
        except Py4JJavaError as error:
            raise self._unavailable(error) from None

    def _unavailable(self, error: Py4JJavaError) -> KafkaUnavailable:
        return KafkaUnavailable(
            f"Kafka at {self._settings.bootstrap_servers} does not serve the job: {root_cause(error).rstrip('.')}. "
            "Check the address and the client options, and that the broker runs."
        )


def written(settings: Settings, admin: KafkaAdmin, producers: Sequence[str]) -> list[int] | None:
    """Return how many micro-batches each state partition has written; fence it.

    The result is None if the job writes at least once. See `Agreement.partition_names` for the names of producers.
    """
    if settings.delivery != "exactly-once":
        return None
    admin.end_transactions(producers)  # a task that was cancelled may be about to commit
    markers = admin.markers(producers)
    return [markers[name] for name in producers]
