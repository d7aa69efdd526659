"""Quarantine by an operator: decisions in the checkpoint of a job that has ended."""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass

from confluent_kafka import KafkaException, Message
from pyarrow import ArrowException

from streaming.errors import NotVerified, QuarantineRefused
from streaming.kafka.clients import reason
from streaming.kafka.facts import EntryPlace
from streaming.kafka.permissions import partition_names
from streaming.kafka.reader import Partition, TopicReader, committed_offsets
from streaming.operations.checkpoint import JobCheckpoint
from streaming.records.routing import Placed, placed
from streaming.storage.archive import opened
from streaming.worker.quarantine import NOTE, Decision, Quarantine, now_ms, partition_of
from streaming.worker.rows import STREAMS, position


@dataclass(frozen=True, slots=True)
class HeldCheckpoint:
    """Checkpoint of a job that has ended, and its Kafka."""

    checkpoint: JobCheckpoint
    bootstrap_servers: str
    options: Mapping[str, str]

    def add(self, place: EntryPlace, why: str) -> Decision:
        """Quarantine an entry, and return the decision.

        Raises:
            QuarantineRefused: the entry does not exist, is quarantined already, or was applied.
            NotVerified: the checkpoint cannot be read.
            TopicUnreadable: Kafka does not answer.
        """
        noted = self.checkpoint.quarantine
        if noted.of(place) is not None:
            raise QuarantineRefused(f"{place} is quarantined already; see `reexpand quarantine list`")
        self._check_unread(place)
        message = self._record(place)
        micro_batch, written = self._progress()
        exempt = tuple(sorted(number for number, count in written.items() if count > micro_batch))
        keys = self._keys(place, message)
        count = self.checkpoint.partitions
        free = [key for key in keys if partition_of(key.parent, key.shard, count) not in exempt]
        if not free:
            raise QuarantineRefused(
                f"{place} was written completely in micro-batch {micro_batch}; it cannot be quarantined"
            )
        time, key = message.timestamp()[1], (free[0].parent, free[0].shard)
        decision = Decision(*place, time, micro_batch, *key, why, exempt, now_ms(), by_hand=True)
        self._write(noted.with_(decision))
        return decision

    def remove(self, place: EntryPlace) -> Decision:
        """Release an entry from quarantine, and return the former decision.

        Raises:
            QuarantineRefused: the entry is not quarantined, or the job has read it.
            NotVerified: the checkpoint cannot be read.
        """
        noted = self.checkpoint.quarantine
        decision = noted.of(place)
        if decision is None:
            raise QuarantineRefused(f"{place} is not quarantined; see `reexpand quarantine list`")
        self._check_unread(place)
        micro_batch, written = self._progress()
        without = [number for number, count in written.items() if count > micro_batch and number not in decision.exempt]
        if without:
            raise QuarantineRefused(
                f"state partitions {', '.join(map(str, sorted(without)))} have written micro-batch {micro_batch} "
                f"without {place}. Start the job, and send the entry again: `reexpand dlq replay`"
            )
        self._write(noted.without(place))
        return decision

    def _check_unread(self, place: EntryPlace) -> None:
        if place.topic not in self.checkpoint.topics:
            raise QuarantineRefused(
                f"{place.topic} is not an input of this checkpoint; its inputs are {', '.join(self.checkpoint.topics)}"
            )
        if not self.checkpoint.has_state():
            return
        read = self.checkpoint.offsets(self.checkpoint.micro_batches().committed)
        if place.offset < read.get(Partition(place.topic, place.partition), 0):
            raise QuarantineRefused(
                f"the micro-batch that read {place} is committed, so its result is final. To undo the entry, send "
                "an entry that reverts it"
            )

    def _progress(self) -> tuple[int, dict[int, int]]:
        """Return the next micro-batch, and the number of micro-batches that each state partition has written."""
        if not self.checkpoint.has_state():
            return 0, self._written()
        batches = self.checkpoint.micro_batches()
        return batches.committed + 1, {} if batches.begun is None else self._written()

    def _written(self) -> dict[int, int]:
        found: dict[int, int] = {}
        names = partition_names(self.checkpoint.id, self.checkpoint.partitions) if self.checkpoint.id else []
        for number, group in enumerate(names):
            try:
                with committed_offsets(self.bootstrap_servers, self.options, group) as offset_in:
                    found[number] = max(0, offset_in(self.checkpoint.topics[-1]))
            except KafkaException as error:
                raise NotVerified(f"Kafka does not return the marker of {group}: {reason(error)}") from None
        return found

    def _record(self, place: EntryPlace) -> Message:
        with TopicReader(self.bootstrap_servers, self.options) as reader:
            message = reader.record(Partition(place.topic, place.partition), place.offset)
        if message is None:
            raise QuarantineRefused(f"Kafka has no record {place}")
        return message

    def _keys(self, place: EntryPlace, message: Message) -> list[Placed]:
        stream = STREAMS[self.checkpoint.topics.index(place.topic)]
        found = placed(stream, message.value(), self.checkpoint.routing)
        keys = [each for each in found if position(each.entry) == place.entry]
        if not keys:
            raise QuarantineRefused(f"the record has no entry {place.entry}: {place}")
        return keys

    def _write(self, noted: Quarantine) -> None:
        """Replace the file of decisions atomically."""
        try:
            files, root = opened(self.checkpoint.location)
            path, unfinished = f"{root}/{NOTE}", f"{root}/.{NOTE}.unfinished"
            if files.type_name != "local":  # an object becomes visible as a whole
                unfinished = path
            with files.open_output_stream(unfinished, compression=None) as stream:
                stream.write(noted.dump())
            if unfinished != path:
                with suppress(FileNotFoundError):
                    files.delete_file(f"{root}/.{NOTE}.crc")  # Hadoop's checksum of the former content
                files.move(unfinished, path)
        except (OSError, ValueError, ArrowException) as error:
            raise NotVerified(f"{self.checkpoint.location}/{NOTE} cannot be written: {error}") from None
