"""Clock topic at the start of the job: it has the broker's time, and is replaced if it was lost.

All its records follow from the other inputs. So a job whose clock topic was deleted or recreated goes on: it reads the
new topic from its present end, and the alarms for which shards wait are written again.
"""

import logging
from collections.abc import Iterator, Mapping

import orjson
from pyspark.sql import SparkSession

from streaming.config import Settings
from streaming.errors import KafkaUnavailable
from streaming.kafka.facts import NotedTopic
from streaming.records.writing import KafkaRecord
from streaming.spark import checkpoint
from streaming.spark.checkpoint import CheckpointFiles, QueryProgress
from streaming.spark.kafka_admin import KafkaAdmin
from streaming.spark.producer import Producer
from streaming.spark.states import StateReader
from streaming.storage.archive import Folder
from streaming.storage.folder import QUERY
from streaming.worker.reminders import reminders

log = logging.getLogger("reexpand")

NOTE = "clock.json"
"""File of the checkpoint that records whether alarms are to be written again."""

_REMIND = "remind"

_TIME = "message.timestamp.type"
_BROKERS_TIME = "LogAppendTime"


def prepare(
    spark: SparkSession, settings: Settings, admin: KafkaAdmin, noted: NotedTopic | None, progress: QueryProgress
) -> None:
    """Let the broker stamp the clock topic's records, and go on with a new topic if it was lost.

    Args:
        spark: session of the job.
        settings: settings of the job.
        admin: Kafka, with all of the job's client options.
        noted: the clock topic of the checkpoint; None if the checkpoint is new, or of a former release.
        progress: how far the query of the checkpoint has come.

    Raises:
        KafkaUnavailable: no broker answers.
    """
    _set_brokers_time(settings, admin)
    if not progress.begun:
        return
    present = admin.ends([settings.clock])[settings.clock]
    is_another = noted is not None and admin.ids([settings.clock]).get(settings.clock) != noted.id
    positions = [offsets.get(settings.clock, {}) for offsets in (progress.read, progress.planned)]
    if is_another or any(_is_beyond(each, present) for each in positions):
        checkpoint.move(spark, settings, settings.clock, present)
        _note(CheckpointFiles(spark, settings.checkpoint), remind=True)
        log.warning("the topic %s was deleted or created anew; the job goes on with the new one", settings.clock)


def _is_beyond(offsets: Mapping[int, int], ends: Mapping[int, int]) -> bool:
    return any(offset > ends.get(number, 0) for number, offset in offsets.items())


def remind(spark: SparkSession, settings: Settings) -> None:
    """Write the alarms for which shards wait again, if the clock topic was lost before this start.

    The running query must have committed a micro-batch: then the states contain all alarms that were written to the
    lost topic.

    Raises:
        NotWritten: Kafka did not take an alarm.
    """
    files = CheckpointFiles(spark, settings.checkpoint)
    if not _must_remind(files):
        return
    count = 0
    with Producer(spark, settings) as producer:
        for key, value in _reminders(spark, settings, files):
            producer.send(settings.clock, key.decode(), (value or b"").decode())
            count += 1
    _note(files, remind=False)
    log.info("wrote %d alarms to %s once more, for the shards that wait for them", count, settings.clock)


def _must_remind(files: CheckpointFiles) -> bool:
    return files.exists(NOTE) and bool(orjson.loads(files.read(NOTE))[_REMIND])


def _note(files: CheckpointFiles, *, remind: bool) -> None:
    files.write(NOTE, orjson.dumps({_REMIND: remind}))


def _reminders(spark: SparkSession, settings: Settings, files: CheckpointFiles) -> Iterator[KafkaRecord]:
    archives = Folder(settings.checkpoint)
    micro_batch = files.numbers(f"{QUERY}/commits")[-1]
    for parent, number, value in StateReader(spark, settings.checkpoint).values(micro_batch):
        yield from reminders(parent, number, value, archives.of(parent, number))


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
