"""A job's progress in its checkpoint: settings, micro-batches, and the offsets that they read."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import orjson
from pyarrow import ArrowException
from pyarrow.fs import FileSelector, FileSystem

from streaming.errors import NotVerified
from streaming.kafka.facts import NotedTopic
from streaming.kafka.reader import Partition
from streaming.records.routing import Routing
from streaming.storage.archive import opened
from streaming.storage.folder import IDENTITY, QUERY
from streaming.worker.limits_note import LIMITS, Limits, parse
from streaming.worker.quarantine import NOTE, Quarantine
from streaming.worker.reading import StreamTopics
from streaming.worker.signature import SIGNATURE, Signer

Offsets = dict[Partition, int]
"""Offset after the last record read, by partition."""


class MicroBatches(NamedTuple):
    """Numbers of a job's last micro-batches.

    Attributes:
        committed: number of the last complete micro-batch.
        begun: number of the next micro-batch, whose records may be partly written; None if it has not started.
    """

    committed: int
    begun: int | None


@dataclass(frozen=True)
class JobCheckpoint:
    """Checkpoint of a job that may be running, read only.

    Attributes:
        location: its directory or URI.
    """

    location: str

    @cached_property
    def _identity(self) -> dict[str, Any]:
        try:
            found = orjson.loads(self._read(IDENTITY))
        except FileNotFoundError:
            raise NotVerified(
                f"{self.location} is not a checkpoint of a job: it has no {IDENTITY}. Give the --checkpoint of the job."
            ) from None
        except (OSError, ValueError, ArrowException) as error:
            raise NotVerified(f"{self.location}/{IDENTITY} cannot be read: {error}") from None
        if not isinstance(found, dict):
            raise NotVerified(f"{self.location}/{IDENTITY} cannot be read: it is not a JSON object")
        return found

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
            str(self._identity[name]) for name in ("group_events", "subscription_events", "topic_events", "clock")
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
        return Routing(self._identity["shards"], self._identity["route_depth"])

    @property
    def inner_multi(self) -> bool:
        """True if `**` is allowed inside a pattern."""
        return bool(self._identity["allow_inner_multi"])

    @cached_property
    def signer(self) -> Signer | None:
        """Signer of the job's records to itself; None for a release without signatures.

        Raises:
            NotVerified: it cannot be read.
        """
        try:
            return Signer.parse(self._read(SIGNATURE))
        except FileNotFoundError:
            return None
        except (OSError, ValueError, ArrowException) as error:
            raise NotVerified(f"{self.location}/{SIGNATURE} cannot be read: {error}") from None

    @property
    def quarantine(self) -> Quarantine:
        """Quarantined entries.

        Raises:
            NotVerified: they cannot be read.
        """
        try:
            return Quarantine.parse(self._read(NOTE))
        except FileNotFoundError:
            return Quarantine()
        except (OSError, ValueError, ArrowException) as error:
            raise NotVerified(f"{self.location}/{NOTE} cannot be read: {error}") from None

    @cached_property
    def limits(self) -> tuple[Limits, ...]:
        """Limits of input records, latest last; empty for a release that did not store them.

        Raises:
            NotVerified: they cannot be read.
        """
        try:
            return parse(self._read(LIMITS))
        except FileNotFoundError:
            return ()
        except (OSError, ValueError, ArrowException) as error:
            raise NotVerified(f"{self.location}/{LIMITS} cannot be read: {error}") from None

    def has_state(self) -> bool:
        """Return True if a micro-batch is complete."""
        return bool(self._numbers("commits"))

    def micro_batches(self) -> MicroBatches:
        """Return the current last micro-batches.

        Raises:
            NotVerified: none is committed yet.
        """
        committed = self._numbers("commits")
        if not committed:
            raise NotVerified(
                f"the job of {self.location} has not committed a micro-batch yet; start it, then verify again"
            )
        last = max(committed)
        begun = max(self._numbers("offsets"), default=last)
        return MicroBatches(last, begun if begun > last else None)

    def offsets(self, micro_batch: int) -> Offsets:
        """Return the offsets up to which a micro-batch reads.

        Raises:
            NotVerified: Spark has deleted the offsets of this micro-batch, or they cannot be read.
        """
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

    def _numbers(self, log: str) -> list[int]:
        files, root = self._opened()
        try:
            listed = files.get_file_info(FileSelector(f"{root}/{QUERY}/{log}", allow_not_found=True))
        except (OSError, ArrowException) as error:
            raise NotVerified(f"{self.location}/{QUERY}/{log} cannot be read: {error}") from None
        return [int(info.base_name) for info in listed if info.base_name.isdigit()]

    def _read(self, name: str) -> bytes:
        files, root = self._opened()
        with files.open_input_stream(f"{root}/{name}", compression=None) as stream:
            return bytes(stream.read())

    def _opened(self) -> tuple[FileSystem, str]:
        try:
            return opened(self.location)
        except (OSError, ValueError, ArrowException) as error:
            raise NotVerified(f"Python cannot access the checkpoint {self.location}: {error}") from None
