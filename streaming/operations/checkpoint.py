"""Checkpoint of a job: its settings, its micro-batches, the offsets that they read, and the end of its driver."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, NamedTuple, TypeVar

import orjson
from confluent_kafka import KafkaException
from pyarrow import ArrowException
from pyarrow.fs import FileSelector, FileSystem

from streaming.errors import BackupRefused, NotVerified
from streaming.kafka.clients import reason
from streaming.kafka.facts import NotedTopic
from streaming.kafka.permissions import LEASE_SECONDS, own_group
from streaming.kafka.reader import Partition, committed_offsets
from streaming.records.routing import Routing
from streaming.storage.archive import opened
from streaming.storage.folder import IDENTITY, QUERY
from streaming.worker.limits_note import LIMITS, Limits, parse
from streaming.worker.quarantine import NOTE, Quarantine
from streaming.worker.rows import StreamTopics
from streaming.worker.signature import SIGNATURE, Signer

T = TypeVar("T")

Offsets = dict[Partition, int]
"""Offset after the last record read, by partition."""

Progress = Callable[[str, int, int | None], None]
"""Callback with the activity, the number of items so far, and their total (None: unknown)."""

_LOOK_SECONDS: Final = 0.5


class MicroBatches(NamedTuple):
    """Numbers of a job's last complete micro-batch, and of one whose records may be partly written, if begun."""

    committed: int
    begun: int | None


@dataclass(frozen=True)
class JobCheckpoint:
    """Checkpoint of a job that may be running, read only. Files that cannot be read raise `NotVerified`."""

    location: str
    """Directory or URI."""

    @cached_property
    def _identity(self) -> dict[str, Any]:
        found = self._parsed(IDENTITY, orjson.loads, None)
        if found is None:
            raise NotVerified(
                f"{self.location} is not a checkpoint of a job: it has no {IDENTITY}. Give the --checkpoint of the job."
            )
        if not isinstance(found, dict):
            raise NotVerified(f"{self.location}/{IDENTITY} cannot be read: it is not a JSON object")
        return found

    def _fixed(self, name: str) -> Any:
        try:
            return self._identity[name]
        except KeyError:
            raise NotVerified(f"{self.location}/{IDENTITY} cannot be read: it lacks {name}") from None

    @property
    def id(self) -> str | None:
        """Id of the checkpoint in names in Kafka; None for a release without leases."""
        return self._identity.get("id")

    @property
    def partitions(self) -> int:
        """Number of state partitions; 1 for a release that did not store it."""
        return int(self._identity.get("shuffle_partitions", 1))

    @property
    def topics(self) -> StreamTopics:
        """Kafka topics of the input streams: groups, subscriptions, topics, clock."""
        groups, subscriptions, topics, clock = (
            str(self._fixed(name)) for name in ("group_events", "subscription_events", "topic_events", "clock")
        )
        return groups, subscriptions, topics, clock

    @property
    def noted(self) -> dict[str, NotedTopic]:
        """Kafka topics of the checkpoint by role; empty for a release that did not store them."""
        found = self._identity.get("topics") or {}
        return {role: NotedTopic(topic["name"], topic["id"]) for role, topic in found.items()}

    @property
    def routing(self) -> Routing:
        """Distribution of topics over shards."""
        return Routing(self._fixed("shards"), self._fixed("route_depth"))

    @property
    def inner_multi(self) -> bool:
        """True if `**` is allowed inside a pattern."""
        return bool(self._fixed("allow_inner_multi"))

    @cached_property
    def signer(self) -> Signer | None:
        """Signer of the job's records to itself; None for a release without signatures."""
        return self._parsed(SIGNATURE, Signer.parse, None)

    @property
    def quarantine(self) -> Quarantine:
        """Quarantined entries."""
        return self._parsed(NOTE, Quarantine.parse, Quarantine())

    @cached_property
    def limits(self) -> tuple[Limits, ...]:
        """Limits of input records, latest last; empty for a release that did not store them."""
        return self._parsed(LIMITS, parse, ())

    def has_state(self) -> bool:
        """Return True if a micro-batch is complete."""
        return self.last("commits") is not None

    def micro_batches(self) -> MicroBatches:
        """Return the current last micro-batches; raise `NotVerified` if none is committed."""
        committed, begun = self.last("commits"), self.last("offsets")
        if committed is None:
            raise NotVerified(
                f"the job of {self.location} has not committed a micro-batch yet; start it, then verify again"
            )
        return MicroBatches(committed, begun if begun is not None and begun > committed else None)

    def offsets(self, micro_batch: int) -> Offsets:
        """Return the offsets up to which a micro-batch reads. Spark deletes old ones."""
        try:
            lines = self._read(f"{QUERY}/offsets/{micro_batch}").splitlines()
            found = orjson.loads(lines[-1])
        except (OSError, ValueError, IndexError, ArrowException) as error:
            raise NotVerified(
                f"the offsets of micro-batch {micro_batch} in {self.location} cannot be read: {error}"
            ) from None
        return {
            Partition(topic, int(number)): offset
            for topic, partitions in found.items()
            for number, offset in partitions.items()
        }

    def last(self, log: str) -> int | None:
        """Return the number of the last micro-batch in a log of the query; None for none."""
        files, root = self._opened()
        try:
            listed = files.get_file_info(FileSelector(f"{root}/{QUERY}/{log}", allow_not_found=True))
        except (OSError, ArrowException) as error:
            raise NotVerified(f"{self.location}/{QUERY}/{log} cannot be read: {error}") from None
        return max((int(info.base_name) for info in listed if info.base_name.isdigit()), default=None)

    def _parsed(self, name: str, parse: Callable[[bytes], T], missing: T) -> T:
        try:
            return parse(self._read(name))
        except FileNotFoundError:
            return missing
        except (OSError, ValueError, ArrowException) as error:
            raise NotVerified(f"{self.location}/{name} cannot be read: {error}") from None

    def _read(self, name: str) -> bytes:
        files, root = self._opened()
        with files.open_input_stream(f"{root}/{name}", compression=None) as stream:
            return bytes(stream.read())

    def _opened(self) -> tuple[FileSystem, str]:
        try:
            return opened(self.location)
        except (OSError, ValueError, ArrowException) as error:
            raise NotVerified(f"Python cannot access the checkpoint {self.location}: {error}") from None


def check_ended(checkpoint: JobCheckpoint, bootstrap_servers: str, options: Mapping[str, str]) -> None:
    """Check for up to 10 s that no driver of a checkpoint sends heartbeats; see `streaming.spark.lease`.

    Raises:
        BackupRefused: a driver is running, Kafka does not answer, or the checkpoint does not say what to ask.
    """
    try:
        checkpoint_id, clock = checkpoint.id, checkpoint.topics[-1]
    except NotVerified as error:
        raise BackupRefused(
            f"{str(error).rstrip('.')}. If it is a damaged checkpoint, Kafka cannot be asked for its driver: "
            "make sure that it has ended, and give --driver-has-ended."
        ) from None
    if checkpoint_id is None:  # releases without ids had no lease
        return
    try:
        with committed_offsets(bootstrap_servers, options, own_group(checkpoint_id)) as offset_in:
            # Not the metadata with the driver's address: some releases of librdkafka return it truncated.
            check_silent(lambda: offset_in(clock))
    except KafkaException as error:
        raise BackupRefused(
            f"Kafka at {bootstrap_servers} cannot be asked for the driver of the checkpoint: {reason(error)}. "
            "Check the address and the client options, or give --driver-has-ended."
        ) from None


def check_silent(beats: Callable[[], int], seconds: float = LEASE_SECONDS) -> None:
    """Raise `BackupRefused` if the number of heartbeats, if any, changes."""
    first, deadline = beats(), time.monotonic() + seconds
    while first >= 0 and time.monotonic() < deadline:
        time.sleep(_LOOK_SECONDS)
        if beats() != first:
            raise BackupRefused("a driver uses the checkpoint: it has just renewed its lease. Stop it first.")
