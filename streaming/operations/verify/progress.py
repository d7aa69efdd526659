"""The progress of a job, as its checkpoint tells it: settings, micro-batches, and the offsets that they read."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import orjson
from pyarrow import ArrowException
from pyarrow.fs import FileSelector, FileSystem

from streaming.errors import NotVerified
from streaming.events.routing import Routing
from streaming.kafka.facts import NotedTopic
from streaming.kafka.reader import Partition
from streaming.quarantine.decisions import NOTE, Quarantine
from streaming.storage.archive import opened
from streaming.storage.layout import IDENTITY, QUERY
from streaming.worker.limits_note import LIMITS, Limits, parse
from streaming.worker.reading import StreamTopics
from streaming.worker.signature import SIGNATURE, Signer

Offsets = dict[Partition, int]
"""Offset behind the last record that was read, by partition."""


class MicroBatches(NamedTuple):
    """Numbers of a job's last micro-batches.

    Attributes:
        committed: the last one that is complete.
        begun: the one after it, whose records may be written in part; None if none has begun.
    """

    committed: int
    begun: int | None


@dataclass(frozen=True)
class JobCheckpoint:
    """Checkpoint of a job, read beside it.

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
                f"{self.location} is no checkpoint of a job: it has no {IDENTITY}. Give the --checkpoint of the job."
            ) from None
        except (OSError, ValueError, ArrowException) as error:
            raise NotVerified(f"{self.location}/{IDENTITY} cannot be read: {error}") from None
        if not isinstance(found, dict):
            raise NotVerified(f"{self.location}/{IDENTITY} cannot be read: it holds no JSON object")
        return found

    @property
    def id(self) -> str | None:
        """Name by which Kafka knows the checkpoint; None in one of a release without leases."""
        return self._identity.get("id")

    @property
    def partitions(self) -> int:
        """Number of state partitions; 1 in a checkpoint whose release did not note it."""
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
        """Kafka topics of the checkpoint by role; none in one of a release that noted none."""
        found = self._identity.get("topics") or {}
        return {role: NotedTopic(topic["name"], topic["id"]) for role, topic in found.items()}

    @property
    def routing(self) -> Routing:
        """Distribution of topics over shards."""
        return Routing(self._identity["shards"], self._identity["route_depth"])

    @property
    def inner_multi(self) -> bool:
        """True if `**` may stand inside a pattern."""
        return bool(self._identity["allow_inner_multi"])

    @cached_property
    def signer(self) -> Signer | None:
        """Signer of the job's records to itself; None in a checkpoint of a release without signatures.

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
        """Decisions of the job to leave out entries.

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
        """Limits of input records, the latest ones last; none in a checkpoint of a release that noted none.

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
        """Return the last micro-batches as of now.

        Raises:
            NotVerified: there is none yet.
        """
        committed = self._numbers("commits")
        if not committed:
            raise NotVerified(
                f"the job of {self.location} has not committed a micro-batch yet; start it, and verify again then"
            )
        last = max(committed)
        begun = max(self._numbers("offsets"), default=last)
        return MicroBatches(last, begun if begun > last else None)

    def offsets(self, micro_batch: int) -> Offsets:
        """Return the offsets up to which a micro-batch reads.

        Raises:
            NotVerified: Spark keeps no offsets of this micro-batch any more, or they cannot be read.
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
            raise NotVerified(f"Python does not reach the checkpoint {self.location}: {error}") from None
