"""Clock of the job: time is written as records, so it passes at the same place for every reader.

All records of the clock topic follow from the other inputs. So a job whose clock topic was deleted or recreated goes
on: it reads the new topic from its present end, and the alarms for which shards wait are written again.
"""

import logging
import threading
import time
from collections.abc import Iterator
from typing import Self

import orjson
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from streaming import coordinator, state
from streaming.config import Settings
from streaming.errors import JobFailed, KafkaUnavailable, NotWritten
from streaming.kafka.facts import NotedTopic, Offsets
from streaming.printable import counted
from streaming.records.record import KafkaRecord
from streaming.spark import checkpoint, positions
from streaming.spark.checkpoint import CheckpointFiles, QueryProgress
from streaming.spark.kafka_admin import SHORT_TIMEOUT_MS, KafkaAdmin
from streaming.spark.kafka_clients import Producer
from streaming.spark.states import StateReader
from streaming.state import ShardState
from streaming.storage.archive import Folder
from streaming.storage.folder import QUERY
from streaming.storage.journal import Journal

log = logging.getLogger("reexpand")

NOTE = "clock.json"
"""File of the checkpoint that records whether alarms are to be written again."""

_REMIND = "remind"

_TIME = "message.timestamp.type"
_BROKERS_TIME = "LogAppendTime"

MARGIN_MS = 1_000
"""Time in milliseconds by which ticks stay behind the broker's clock.

It covers records that a broker is just accepting, and brokers whose clocks differ a little.
"""

_POLL_SECONDS = 0.1
_COMPLAINT_SECONDS = 60
"""Time in seconds after which a clock that waits for the job logs this."""


def prepare(
    spark: SparkSession, settings: Settings, admin: KafkaAdmin, noted: NotedTopic | None, progress: QueryProgress
) -> None:
    """Let the broker stamp the clock topic's records, and replace a lost topic.

    `noted` is the clock topic of the checkpoint, or None if the checkpoint is new, or of a former release. Raises
    `KafkaUnavailable`.
    """
    _set_brokers_time(settings, admin)
    if not progress.begun:
        return
    present = admin.ends([settings.clock])[settings.clock]
    is_another = noted is not None and admin.ids([settings.clock]).get(settings.clock) != noted.id
    positions = [offsets.get(settings.clock, {}) for offsets in (progress.read, progress.planned)]
    is_shorter = any(offset > present.get(number, 0) for each in positions for number, offset in each.items())
    if is_another or is_shorter:
        checkpoint.move(spark, settings, settings.clock, present)
        CheckpointFiles(spark, settings.checkpoint).write(NOTE, orjson.dumps({_REMIND: True}))
        log.warning("the topic %s was deleted or created again; the job goes on with the new one", settings.clock)


def remind(spark: SparkSession, settings: Settings) -> None:
    """Write alarms again if the clock topic was lost; raise `NotWritten`.

    The running query must have committed a micro-batch: then the states contain all alarms that were written to the
    lost topic.
    """
    files = CheckpointFiles(spark, settings.checkpoint)
    if not _is_to_remind(files):
        return
    with Producer(spark, settings) as producer:
        count = producer.send_all(settings.clock, _reminders(spark, settings, files))
    files.write(NOTE, orjson.dumps({_REMIND: False}))
    log.info("wrote %s to %s again, for the shards that wait for them", counted(count, "alarm"), settings.clock)


def _is_to_remind(files: CheckpointFiles) -> bool:
    """Return True if the note says so, or cannot be read, as after a power loss: an alarm does no harm twice."""
    if not files.exists(NOTE):
        return False
    try:
        return bool(orjson.loads(files.read(NOTE))[_REMIND])
    except (OSError, ValueError, KeyError, TypeError):
        return True


def _reminders(spark: SparkSession, settings: Settings, files: CheckpointFiles) -> Iterator[KafkaRecord]:
    """Yield the records for which shards wait; the coordinator waits for ticks only."""
    archives = Folder(settings.checkpoint)
    micro_batch = files.numbers(f"{QUERY}/commits")[-1]
    for parent, number, value in StateReader(spark, settings.checkpoint).values(micro_batch):
        if parent == coordinator.COORDINATOR:
            continue
        shard, journal = ShardState(), Journal.open(value, archives.of(parent, number))
        state.replay(shard, journal.changes())
        yield from (coordinator.alarm(parent, number, time) for time in sorted(shard.alarms))
        if shard.backfills or journal.has_left_parts:
            yield coordinator.wake(parent, number, 0)


def _set_brokers_time(settings: Settings, admin: KafkaAdmin) -> None:
    """Let the broker stamp the records of the clock topic; warn if it does not allow that."""
    try:
        if admin.configurations([settings.clock], [_TIME])[settings.clock][_TIME] == _BROKERS_TIME:
            return
        admin.configure(settings.clock, _TIME, _BROKERS_TIME)
        log.info("set %s=%s for the topic %s", _TIME, _BROKERS_TIME, settings.clock)
    except KafkaUnavailable as error:
        log.warning(
            "the topic %s cannot get %s=%s: the job takes the time from the clocks of this machine "
            "and of the executors; keep them right. %s",
            settings.clock,
            _TIME,
            _BROKERS_TIME,
            error,
        )


class Clock:
    """Thread for the clock stream: writes the time as long as the context is open.

    A tick never runs ahead of the query. The thread takes the time, notes the ends of the inputs, and writes that time
    when the query has committed micro-batches up to there. So when a client or a topic ends, all records that were in
    Kafka by then have been read, and while the job is behind, no time passes.

    The time is the broker's, independent of this machine's clock: it counts on from the last accepted record, and never
    runs ahead. A tick that cannot be written is left out: the next tick covers it.

    Attributes:
        has_told_present: a tick with a time after the clock's start was written, or there are no ticks.
    """

    def __init__(self, spark: SparkSession, settings: Settings, query: StreamingQuery) -> None:
        self._spark = spark
        self._settings = settings
        self._query = query
        self._ahead_ms: int | None = None
        self._failure: Exception | None = None
        self._begun_ms: int | None = None
        self.has_told_present = not settings.tick_interval_ms
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="clock", daemon=True)

    def __enter__(self) -> Self:
        if self._settings.tick_interval_ms:
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        if self._settings.tick_interval_ms:
            self._thread.join()

    @property
    def has_failed(self) -> bool:
        """True if an error has ended the thread."""
        return self._failure is not None

    def check(self) -> None:
        """Raise `JobFailed` if an error has ended the thread."""
        if self._failure is not None:
            reason = str(self._failure).partition("\n")[0]
            raise JobFailed(
                f"the clock of the job has stopped, so that neither topics nor clients would end: "
                f"{type(self._failure).__name__}: {reason}. Start the job again; report the error if it comes back."
            ) from self._failure

    def _run(self) -> None:
        try:
            with (
                Producer(self._spark, self._settings) as producer,
                KafkaAdmin(self._spark, self._settings, SHORT_TIMEOUT_MS) as admin,
            ):
                self._write(producer, 0)  # has no effect; its timestamp is the broker's time
                self._remind(admin)
                while not self._stop.wait(self._settings.tick_interval_ms / 1_000):
                    self._tick(producer, admin)
        except Exception as error:  # noqa: BLE001 - after any error, the job must not go on without a clock
            self._failure = error

    def _remind(self, admin: KafkaAdmin) -> None:
        """Write alarms again if the clock topic was lost, after the first committed micro-batch."""
        reminded = False
        while not (reminded or self._stop.is_set()):
            try:
                if self._wait_until_read(admin.ends([self._settings.clock])):
                    remind(self._spark, self._settings)
                reminded = True
            except (KafkaUnavailable, NotWritten) as error:
                log.warning("no time passes: %s", error)
                self._stop.wait(self._settings.tick_interval_ms / 1_000)

    def _tick(self, producer: Producer, admin: KafkaAdmin) -> None:
        """Write the present time when all that is in Kafka now has been read."""
        if self._ahead_ms is None:
            self._write(producer, 0)
            return
        now = self._ahead_ms + _monotonic_ms()
        try:
            present = admin.ends(self._settings.inputs)
        except KafkaUnavailable as error:
            log.warning("no time passes: %s", error)
            return
        if self._wait_until_read(present):
            self._write(producer, max(0, now - MARGIN_MS))

    def _wait_until_read(self, present: Offsets) -> bool:
        """Return True when the query has read the inputs up to these positions, False if the clock is to stop."""
        complaint = time.monotonic() + _COMPLAINT_SECONDS
        while unread := positions.unread(present, positions.committed(self._query)):
            if time.monotonic() >= complaint:
                log.info("no time passes until the inputs are read: %s", ", ".join(unread))
                complaint = float("inf")
            if self._stop.wait(_POLL_SECONDS):
                return False
        return True

    def _write(self, producer: Producer, tick: int) -> None:
        try:
            taken = producer.send(self._settings.clock, "tick", orjson.dumps({"tick": tick}).decode())
        except NotWritten as error:
            log.warning("a tick cannot be written: %s", error)
        else:
            self._ahead_ms = taken - _monotonic_ms()
            if self._begun_ms is None:
                self._begun_ms = taken
            elif tick >= self._begun_ms:
                self.has_told_present = True


def _monotonic_ms() -> int:
    return int(time.monotonic() * 1_000)
