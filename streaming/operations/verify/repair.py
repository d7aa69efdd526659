"""Corrections of the updates topic, written while the job may run.

The job may change a row at any time. So a correction is written only if a fresh state still requires it and the topic
has no newer record of the row; then the topic is read further. If the job wrote the row in between, its record is
written again after the correction. The job is authoritative.
"""

import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, Self

from confluent_kafka import KafkaError, Message, Producer

from streaming.errors import NotVerified
from streaming.kafka.clients import cause, create, reason, writing
from streaming.kafka.permissions import writable
from streaming.kafka.reader import Partition, Span
from streaming.operations.verify.corrections import Correction, corrections
from streaming.operations.verify.findings import DamagedState, Difference
from streaming.operations.verify.replay import Key
from streaming.operations.verify.verifier import Look
from streaming.operations.verify.witnesses import JobView, ShardPair, operation
from streaming.state import ShardState

_ANSWER_SECONDS: Final = 60.0

_BY_KEY: Final = -1
"""Partition number that lets the client choose."""

_LIKE_JAVA: Final = {"partitioner": "murmur2_random"}
"""Partitioner of the job's own client."""


class Corrector:
    """Writer of corrections, as a context manager.

    Args:
        job: the job.
        bootstrap_servers: addresses of brokers.
        options: further client options of librdkafka.
        folder: folder for temporary files.
    """

    def __init__(self, job: JobView, bootstrap_servers: str, options: Mapping[str, str], folder: Path) -> None:
        self._job = job
        self._folder = folder
        self._refused: KafkaError | None = None
        self._own: dict[Partition, set[int]] = defaultdict(set)
        given: dict[str, Any] = {
            "log_level": 0,
            **options,
            **_LIKE_JAVA,
            "bootstrap.servers": bootstrap_servers,
            "enable.idempotence": True,
        }
        self._producer = create(Producer, given)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._producer.flush(0)

    def correct(self, found: Look) -> set[bytes]:
        """Write corrections of the differences that remain, and return the keys of their rows.

        Raises:
            NotVerified: Kafka rejected a correction; repair again.
        """
        due = {each.key: each for each in self._due(found.findings.repairable)}
        checked_to = self._drop_renewed(due, found.heard.ends)
        self._write(due.values())
        while again := self._overwritten(due, checked_to):
            self._write(again)
        return set(due)

    def _due(self, differences: Iterable[Difference]) -> Iterator[Correction]:
        """Yield the corrections that the current state requires."""
        job, by_shard = self._job, defaultdict[Key, list[Difference]](list)
        for difference in differences:
            row = difference.row
            by_shard[row.parent, job.rules.routing.shard_of(row.parent, row.lite_topic)].append(difference)
        if not by_shard:
            return
        with TemporaryDirectory(dir=self._folder) as temporary:
            for pair in job.shards(job.moment(), Path(temporary)):
                if isinstance(pair, DamagedState):
                    by_shard.pop((pair.parent, pair.shard), None)
                elif pair.key in by_shard:
                    yield from corrections(job.rules, job.updates, pair, by_shard.pop(pair.key))
        for key, left in by_shard.items():  # these shards have no state
            nothing = ShardState()
            yield from corrections(job.rules, job.updates, ShardPair(key, nothing, nothing), left)

    def _drop_renewed(self, due: dict[bytes, Correction], ends: Mapping[Partition, int]) -> dict[Partition, int]:
        """Drop the corrections of rows that have records after these offsets; return the new ends."""
        spans = {
            partition: Span(ends.get(partition, span.start), span.end)
            for partition, span in self._job.reader.spans([self._job.updates]).items()
        }
        for block in self._job.reader.read(spans):
            for message in block:
                due.pop(message.key() or b"", None)
        return {partition: span.end for partition, span in spans.items()}

    def _write(self, written: Iterable[Correction]) -> None:
        with writing(self._producer, self._job.updates, self._not_taken):
            for key, values, partition in written:
                for value in values:
                    self._send(key, value, partition)
            left = self._producer.flush(_ANSWER_SECONDS)
        if self._refused is not None:
            refused = cause(self._producer, self._refused)
            raise self._not_taken(reason(refused, writable(self._job.updates)))
        if left:
            raise self._not_taken("no answer")

    def _send(self, key: bytes, value: bytes | None, partition: int | None) -> None:
        where = _BY_KEY if partition is None else partition
        while True:
            try:
                self._producer.produce(self._job.updates, value, key, where, on_delivery=self._delivered)
            except BufferError:  # the queue is full
                self._producer.poll(0.1)
            else:
                self._producer.poll(0)
                return

    def _not_taken(self, why: str) -> NotVerified:
        return NotVerified(f"Kafka rejected a correction for {self._job.updates}: {why}; repair again")

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self._refused = error
        else:
            self._own[Partition(self._job.updates, message.partition() or 0)].add(message.offset() or 0)

    def _overwritten(self, due: Mapping[bytes, Correction], checked_to: dict[Partition, int]) -> list[Correction]:
        """Return the job's last records of rows that a correction has overwritten, from `checked_to` on."""
        words: dict[bytes, Correction] = {}
        lost: dict[bytes, Correction] = {}
        for block in self._job.reader.read(self._unchecked(checked_to)):
            for message in block:
                where, key = Partition(self._job.updates, message.partition() or 0), message.key() or b""
                if key not in due:
                    continue
                if message.offset() in self._own[where]:
                    if key in words:
                        lost[key] = words[key]
                    continue
                lost.pop(key, None)
                value = message.value()
                former = words[key].values[:1] if key in words and operation(value) is None else ()
                words[key] = Correction(key, (*former, value), where.number)
        return list(lost.values())

    def _unchecked(self, checked_to: dict[Partition, int]) -> dict[Partition, Span]:
        """Return the spans from `checked_to` to beyond all corrections, and advance `checked_to`.

        An open transaction of the job hides all records after its first record.
        """
        deadline = time.monotonic() + _ANSWER_SECONDS
        while True:
            spans = self._job.reader.spans([self._job.updates])
            if all(max(own, default=-1) < spans[partition].end for partition, own in self._own.items()):
                break
            if time.monotonic() > deadline:
                raise NotVerified(f"a transaction on {self._job.updates} does not end; verify again after its end")
            time.sleep(0.1)
        found = {partition: Span(checked_to.get(partition, span.start), span.end) for partition, span in spans.items()}
        checked_to.update({partition: span.end for partition, span in spans.items()})
        return found


def merged(first: Look, later: Look, written: set[bytes]) -> Look:
    """Return the later result, with the differences that only the first can detect.

    Args:
        first: result for all sources.
        later: result for state and updates.
        written: keys of the rows that were corrected.
    """
    known = {difference.key: difference.fault for difference in first.findings.repairable}
    kept = [difference for difference in first.findings.differences if difference.key not in known]
    again = [difference for difference in later.findings.differences if difference.key in known]
    left = {difference.key for difference in again}
    findings = replace(
        first.findings,
        rows={**first.findings.rows, "updates": later.findings.rows["updates"]},
        differences=sorted([*kept, *again], key=lambda difference: difference.key),
        corrected=Counter(known[key] for key in written - left if key in known),
    )
    return Look(later.moment, later.heard, findings)
