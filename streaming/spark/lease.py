"""The lease of a checkpoint: one driver at a time.

The broker keeps it as the committed offset of a consumer group of the checkpoint's own. The offset counts the beats of
the driver, the metadata describe it. A driver that starts is refused as long as the beats go on: no clocks are
compared, and no files are locked. Beats are written by a transactional producer. The broker refuses the beats of a
replaced driver, which then finds its successor in the metadata, and ends.
"""

import logging
import os
import socket
import threading
import time
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

import orjson
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from streaming.config import Settings
from streaming.errors import CheckpointInUse, KafkaUnavailable, TakenOver
from streaming.kafka.permissions import LEASE_SECONDS, own_group
from streaming.spark.gateway import java_class
from streaming.spark.kafka_clients import JAVA_ERRORS, client_properties, kafka_class, root_cause

log = logging.getLogger("reexpand")

_PROC = Path("/proc")
_ENDED = "ZX"
"""States of a process in /proc that has ended."""


class Holder(NamedTuple):
    """A driver, and whether it still holds the checkpoint.

    Attributes:
        generation: number of the driver; larger for each later driver of the same checkpoint.
        since: time of its start, with the zone.
        process: unique name of the process on this machine and in its containers; empty if unknown.
        spark: unique name of its Spark's JVM, which may outlive it for a moment.
    """

    generation: int
    host: str
    pid: int
    since: str
    process: str
    released: bool = False
    spark: str = ""

    @classmethod
    def of_this_process(cls, generation: int, jvm: int | None = None) -> Self:
        """Return this process as holder, with the process id of its Spark's JVM."""
        since = datetime.now().astimezone().isoformat(sep=" ", timespec="seconds")
        return cls(
            generation,
            socket.gethostname(),
            os.getpid(),
            since,
            _process(os.getpid()),
            spark=_process(jvm) if jvm else "",
        )

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the holder of a text made by `text`, of any release."""
        return cls(**{name: value for name, value in orjson.loads(text).items() if name in cls._fields})

    def text(self) -> str:
        """Return the holder as JSON."""
        return orjson.dumps(self._asdict()).decode()

    def has_ended(self) -> bool:
        """Return whether it has surely ended: in order, or its processes were of this machine and are gone."""
        if self.released:
            return True
        mine = _process(os.getpid())
        if not (self.process and mine) or self.process.split()[:2] != mine.split()[:2]:
            return False  # of another boot or namespace, whose ids cannot be compared
        return all(_process(int(name.split()[2])) != name for name in (self.process, self.spark) if name)

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}, since {self.since}"


def _process(pid: int) -> str:
    """Return a unique name of a process: boot, namespace of ids, id, and start in ticks since the boot.

    It is empty if there is no /proc, or no such process. A process that has ended may be there until it is waited for.
    """
    try:
        boot = (_PROC / "sys/kernel/random/boot_id").read_text().strip()
        namespace = (_PROC / "self/ns/pid").readlink()
        status, *words = (_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
        ticks = words[18]
    except (OSError, IndexError, ValueError):
        return ""
    return "" if status in _ENDED else f"{boot} {namespace} {pid} {ticks}"


BEAT_SECONDS: Final = 2.0
"""Seconds between two beats."""

_NOTICE_SECONDS = 2 * BEAT_SECONDS + 1
"""Time in which a live driver notices that it was replaced; until then it may plan micro-batches."""

_LOOK_SECONDS = 0.25
_CLOSE_MS = 2_000
_TIMEOUTS = {
    "request.timeout.ms": 5_000,
    "default.api.timeout.ms": 10_000,
    "max.block.ms": 10_000,
    "delivery.timeout.ms": 10_000,
    "transaction.timeout.ms": 10_000,
}
"""Longest waits for a broker, and longest time of a beat, in milliseconds."""

_TAKE_OVER = "Stop that driver, or start this one with --take-over, which ends it."

_Look = tuple[int, Holder] | None
"""Number of beats and holder of the lease; None if it was never held."""


class Lease:
    """The right to write for a checkpoint, as a context manager that releases it.

    The broker keeps it under the name of the clock's topic.
    """

    def __init__(self, spark: SparkSession, settings: Settings, checkpoint_id: str) -> None:
        self._spark = spark
        self._settings = settings
        self.checkpoint_id = checkpoint_id
        self._group = own_group(checkpoint_id)
        self._options = client_properties(spark, settings, _TIMEOUTS)
        self._admin = self._call(lambda: kafka_class(spark, "clients.admin.Admin").create(self._options))
        self._partition = kafka_class(spark, "common.TopicPartition")(settings.clock, 0)
        self._producer: Any = None
        self._beats = 0
        self._mine: Holder | None = None
        self.successor: Holder | None = None
        self._gone: _Look = None
        self._former: Holder | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._keep, name="lease", daemon=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()
        try:
            if self._mine is not None and self.successor is None:
                self._beat(self._mine._replace(released=True))
        except JAVA_ERRORS:  # the next driver waits for LEASE_SECONDS
            log.debug("the lease could not be released")
        for client in (self._producer, self._admin):
            self._close(client)

    @property
    def generation(self) -> int:
        """Number of this driver, larger than the number of each former driver."""
        if self._mine is None:
            raise CheckpointInUse("the lease of the checkpoint is not acquired")
        return self._mine.generation

    def end_of_former(self) -> str:
        """Return how the previous driver has ended, in a word or two."""
        if self._former is None:
            return "none"
        return "in order" if self._former.released else "crashed"

    def wait_until_free(self, stop: threading.Event) -> bool:
        """Wait until the holder is gone or silent; return False on `stop`.

        Silent is `LEASE_SECONDS` without a beat. While no broker answers, the holder does not count as silent.
        """
        last: _Look = None
        heard = time.monotonic()
        while not stop.wait(_LOOK_SECONDS):
            try:
                look = self._look()
            except Py4JJavaError as error:
                log.debug("the lease could not be looked at: %s", error)
                last = None
                continue
            if look is None or look[1].has_ended():
                return True
            if look != last:
                last, heard = look, time.monotonic()
            elif time.monotonic() - heard > LEASE_SECONDS:
                self._gone = look
                return True
        return False

    def is_abandoned(self) -> bool:
        """Return whether a driver has held the lease and is gone.

        If in doubt, it is watched for `LEASE_SECONDS`. Raises `KafkaUnavailable`.
        """
        try:
            return self._call(lambda: self._wait_for_end_of_holder(_TAKE_OVER)) is not None
        except CheckpointInUse:
            return False

    def acquire(self, *, take_over: bool, way_out: str = _TAKE_OVER) -> None:
        """Hold the lease until the end of the context, if not held already.

        Raises:
            CheckpointInUse: another driver lives, without `take_over`; the message names it, and ends with `way_out`.
            KafkaUnavailable: no broker answers, or it refuses.
        """
        if self._mine is None:
            self._mine = self._call(lambda: self._acquire(take_over=take_over, way_out=way_out))
            self._thread.start()

    def find_successor(self) -> Holder | None:
        """Read the lease from the broker, and return the driver that has taken it over."""
        try:
            self._check(self._look())
        except JAVA_ERRORS:
            log.debug("the lease could not be looked at")
        return self.successor

    def taken_over(self) -> TakenOver:
        """Return the error of a driver that was replaced."""
        return TakenOver(
            f"another driver has taken over the checkpoint {self._settings.checkpoint}: {self.successor}. "
            "This one has ended."
        )

    def _call(self, action: Any) -> Any:
        try:
            return action()
        except Py4JJavaError as error:
            cause = str(root_cause(error)).rstrip(".")
            raise KafkaUnavailable(
                f"Kafka at {self._settings.bootstrap_servers} does not keep the lease of the checkpoint: {cause}. "
                "The job must be allowed to use the group and the transactional ids that begin with "
                f"{self._group}, and needs READ on the topic {self._settings.clock}."
            ) from None

    def _acquire(self, *, take_over: bool, way_out: str) -> Holder:
        free = None if take_over else self._wait_for_end_of_holder(way_out)
        before = self._look()
        try:
            former, mine = self._claim(free, take_over=take_over, way_out=way_out)
        except Py4JJavaError:
            now = self._next_look(before)
            if now == before:
                raise
            raise self._in_use(now, way_out) from None
        self._former = former[1] if former else None
        if former and not former[1].has_ended():
            log.warning("took over the checkpoint from %s", former[1])
            if take_over:  # else it was silent for longer than that
                time.sleep(_NOTICE_SECONDS)
        return mine

    def _claim(self, free: _Look, *, take_over: bool, way_out: str) -> tuple[_Look, Holder]:
        """Write the first beat, and return the lease before it and the new holder."""
        self._begin()
        former = self._look(stable=True)
        if not take_over and former != free:  # another waiting driver was first, and restarts the beats
            raise self._in_use(former, way_out)
        self._beats = former[0] if former else 0
        # By the clock, because the broker forgets the former number when no driver has run for a week.
        generation = max(int(time.time() * 1_000), former[1].generation + 1 if former else 0)
        jvm = java_class(self._spark, "java.lang.ProcessHandle").current().pid()
        mine = Holder.of_this_process(generation, int(jvm))
        self._beat(mine)
        return former, mine

    def _wait_for_end_of_holder(self, way_out: str) -> _Look:
        """Return the last beat of the holder, or None if there was none."""
        first = self._look()
        if first is None or first[1].has_ended() or first == self._gone:
            return first
        log.info("the checkpoint was in use by %s: watching for %g s whether it lives", first[1], LEASE_SECONDS)
        deadline = time.monotonic() + LEASE_SECONDS
        while time.monotonic() < deadline:
            time.sleep(_LOOK_SECONDS)
            now = self._look()
            if now is None or now[1].has_ended():
                return now
            if now != first:
                raise self._in_use(now, way_out)
        return first

    def _in_use(self, look: _Look, way_out: str) -> CheckpointInUse:
        holder = look[1] if look else "another driver"
        return CheckpointInUse(f"the checkpoint {self._settings.checkpoint} is in use by {holder}. {way_out}")

    def _begin(self) -> None:
        """Replace the producer; from now on the broker refuses the beats of all others."""
        self._close(self._producer)
        producer = kafka_class(self._spark, "clients.producer.KafkaProducer")
        serializer = kafka_class(self._spark, "common.serialization.StringSerializer")
        self._options.put("transactional.id", self._group)
        self._producer = producer(self._options, serializer(), serializer())
        self._producer.initTransactions()

    def _close(self, client: Any) -> None:
        if client is not None:
            with suppress(*JAVA_ERRORS):  # the JVM may have ended
                client.close(java_class(self._spark, "java.time.Duration").ofMillis(_CLOSE_MS))

    def _beat(self, holder: Holder) -> None:
        self._beats += 1
        offset = kafka_class(self._spark, "clients.consumer.OffsetAndMetadata")(self._beats, holder.text())
        group = kafka_class(self._spark, "clients.consumer.ConsumerGroupMetadata")(self._group)
        self._producer.beginTransaction()
        self._producer.sendOffsetsToTransaction({self._partition: offset}, group)
        self._producer.commitTransaction()

    def _look(self, *, stable: bool = False) -> _Look:
        options = kafka_class(self._spark, "clients.admin.ListConsumerGroupOffsetsOptions")().requireStable(stable)
        found = self._admin.listConsumerGroupOffsets(self._group, options).partitionsToOffsetAndMetadata().get()
        offset = found.get(self._partition)
        return None if offset is None else (offset.offset(), Holder.parse(offset.metadata()))

    def _next_look(self, former: _Look) -> _Look:
        """Poll the lease until it differs from `former`, for at most `BEAT_SECONDS`.

        A later driver fences off earlier beats, and writes its own a moment later.
        """
        deadline = time.monotonic() + BEAT_SECONDS
        while (now := self._look(stable=True)) == former and time.monotonic() < deadline:
            time.sleep(_LOOK_SECONDS)
        return now

    def _check(self, look: _Look) -> None:
        if look is not None and look[1].generation > self.generation:
            self.successor = look[1]

    def _keep(self) -> None:
        """Beat until the end of the context or of the lease; retry a beat that fails."""
        well = True
        while not self.successor and not self._stop.wait(BEAT_SECONDS):
            try:
                if not well:
                    self._begin()
                    # A fenced producer and a lost broker raise the same error: the generation decides.
                    self._check(self._look(stable=True))
                if self._mine is not None and not self.successor:
                    self._beat(self._mine)
                well = True
            except JAVA_ERRORS as error:
                log.debug("a beat of the lease failed: %s", error)
                well = False
