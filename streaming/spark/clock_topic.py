"""The clock topic at the start of the job: it has the broker's time, and is made anew where it was lost.

All that stands in it follows from the other inputs. So a job whose clock topic was deleted, or created anew, goes on:
it reads the new topic from its present end, and the shards get the alarms for which they wait once more.
"""

import logging
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, Self

import orjson
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from streaming.config import Settings
from streaming.errors import KafkaUnavailable
from streaming.spark import kafka_options, positions
from streaming.spark.checkpoint import QUERY, CheckpointFiles
from streaming.spark.positions import InputEnds, Positions
from streaming.spark.producer import Producer
from streaming.storage.archive import Folder
from streaming.updates.records import KafkaRecord
from streaming.worker.reminders import reminders

log = logging.getLogger("reexpand")

NOTE = "clock.json"
"""File of the checkpoint with the id of the clock topic."""

_TIME = "message.timestamp.type"
_BROKERS_TIME = "LogAppendTime"

_INITIAL = f"{QUERY}/sources/0/0"
"""File in which Spark's Kafka source keeps the positions of its beginning."""


def prepare(spark: SparkSession, settings: Settings) -> None:
    """Let the broker stamp the records of the clock topic, and go on with a new topic where the former one was lost.

    Raises:
        KafkaUnavailable: no broker answers.
    """
    _set_brokers_time(spark, settings)
    with InputEnds(spark, settings) as ends:
        topic_id, present = ends.id(settings.clock), ends.of([settings.clock])[settings.clock]
    files = CheckpointFiles(spark, settings.checkpoint)
    note, former = _Note.read(files), _OffsetLog(files)
    if former.has_begun() and (note.id not in (None, topic_id) or former.is_beyond(settings.clock, present)):
        former.move(settings.clock, present)
        note = note._replace(remind=True)
        log.warning("the topic %s was deleted or created anew; the job goes on with the new one", settings.clock)
    note._replace(id=topic_id).write(files)


def remind(spark: SparkSession, settings: Settings) -> None:
    """Write the alarms for which shards wait once more, if the clock topic was lost before this start.

    It is time for that when the running query has committed a micro-batch: then the states tell of all alarms that
    were written to the lost topic.

    Raises:
        NotWritten: Kafka did not take an alarm.
    """
    files = CheckpointFiles(spark, settings.checkpoint)
    note = _Note.read(files)
    if not note.remind:
        return
    count = 0
    with Producer(spark, settings) as producer:
        for key, value in _reminders(spark, settings, files):
            producer.send(settings.clock, key.decode(), (value or b"").decode())
            count += 1
    note._replace(remind=False).write(files)
    log.info("wrote %d alarms to %s once more, for the shards that wait for them", count, settings.clock)


def is_lost(spark: SparkSession, settings: Settings) -> bool:
    """Tell whether the clock topic is not the one of this start any more."""
    try:
        with InputEnds(spark, settings) as ends:
            return ends.id(settings.clock) != _Note.read(CheckpointFiles(spark, settings.checkpoint)).id
    except KafkaUnavailable as error:
        return "UnknownTopicOrPartition" in str(error)


class _Note(NamedTuple):
    """What the checkpoint says of the clock topic.

    Attributes:
        id: the id that Kafka gave it; None in a checkpoint of a former release.
        remind: the alarms for which shards wait are to be written to it once more.
    """

    id: str | None = None
    remind: bool = False

    @classmethod
    def read(cls, files: CheckpointFiles) -> Self:
        """Read the note of a checkpoint; an empty one if it has none."""
        return cls(**orjson.loads(files.read(NOTE))) if files.exists(NOTE) else cls()

    def write(self, files: CheckpointFiles) -> None:
        """Write the note, unless it is there already."""
        if self != self.read(files):
            files.write(NOTE, orjson.dumps(self._asdict()))


class _OffsetLog:
    """Positions of the micro-batches of a checkpoint, as Spark keeps them."""

    def __init__(self, files: CheckpointFiles) -> None:
        self._files = files
        self._committed = max(files.numbers(f"{QUERY}/commits"), default=None)
        self._planned = max(files.numbers(f"{QUERY}/offsets"), default=None)

    def has_begun(self) -> bool:
        """Tell whether a micro-batch was begun."""
        return self._planned is not None

    def is_beyond(self, topic: str, ends: Mapping[int, int]) -> bool:
        """Tell whether micro-batches were to read a topic beyond its end."""
        return any(
            offset > ends.get(number, 0)
            for name in self._files_to_move()
            for number, offset in self._positions(name).get(topic, {}).items()
        )

    def move(self, topic: str, ends: Mapping[int, int]) -> None:
        """Let the next micro-batch begin at the ends of a topic, whatever was read of it before."""
        for name in self._files_to_move():
            head, separator, tail = self._files.read(name).rstrip().rpartition(b"\n")
            moved: Positions = {**positions.parse(tail), topic: ends}
            self._files.write(name, head + separator + positions.dump(moved).encode())

    def _files_to_move(self) -> list[str]:
        """Return the files from which Spark takes the positions of the next micro-batch."""
        begin = _INITIAL if self._committed is None else f"{QUERY}/offsets/{self._committed}"
        return list(dict.fromkeys((begin, f"{QUERY}/offsets/{self._planned}")))

    def _positions(self, name: str) -> Positions:
        return positions.parse(self._files.read(name).rstrip().rpartition(b"\n")[2])


def _reminders(spark: SparkSession, settings: Settings, files: CheckpointFiles) -> Iterator[KafkaRecord]:
    micro_batch = files.numbers(f"{QUERY}/commits")[-1]
    query = f"{settings.checkpoint.rstrip('/')}/{QUERY}"
    stored = spark.read.format("statestore").option("batchId", micro_batch).load(query)
    rows = stored.select("key.parent", "key.shard", "value.groupState.value").toLocalIterator()
    archives = Folder(settings.checkpoint)
    for parent, number, value in rows:
        yield from reminders(parent, number, bytes(value), archives.of(parent, number))


def _set_brokers_time(spark: SparkSession, settings: Settings) -> None:
    """Let the broker stamp the records of the clock topic; warn if it does not allow that."""
    jvm: Any = spark._jvm  # noqa: SLF001 - the one way to the Kafka client that Spark uses
    config = jvm.org.apache.kafka.common.config.ConfigResource
    package = jvm.org.apache.kafka.clients.admin
    topic = config(config.Type.TOPIC, settings.clock)
    admin = package.Admin.create(kafka_options.for_client(jvm, settings, positions.TIMEOUTS))
    try:
        if admin.describeConfigs([topic]).all().get()[topic].get(_TIME).value() == _BROKERS_TIME:
            return
        change = package.AlterConfigOp(package.ConfigEntry(_TIME, _BROKERS_TIME), package.AlterConfigOp.OpType.SET)
        admin.incrementalAlterConfigs({topic: [change]}).all().get()
        log.info("set %s=%s for the topic %s", _TIME, _BROKERS_TIME, settings.clock)
    except Py4JJavaError as error:
        log.warning(
            "the topic %s cannot get %s=%s (%s): the job takes the time from the clocks of this machine "
            "and of the executors; keep them right",
            settings.clock,
            _TIME,
            _BROKERS_TIME,
            positions.root_cause(error),
        )
    finally:
        admin.close()
