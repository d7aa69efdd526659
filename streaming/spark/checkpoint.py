"""The identity of a checkpoint: the settings and the Kafka topics fixed for its life.

Spark and the routing place data by these settings: under other settings, the job would not find its state. The state
contains the positions in the inputs and the content of the updates topic: with other topics it would be wrong. The
file `reexpand.json` of the checkpoint holds both. A start compares them first, and writes them right before the query
begins, so that a start that fails earlier fixes nothing.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeVar
from urllib.parse import urlparse
from uuid import uuid4

import orjson
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from streaming import coordinator
from streaming.config import Settings
from streaming.errors import CheckpointInUse, CheckpointMismatch, CheckpointUnusable
from streaming.kafka.facts import START_OVER, NotedTopic, Offsets, rebuild
from streaming.kafka.permissions import own_group, partition_names
from streaming.spark import positions
from streaming.spark.failures import one_line
from streaming.spark.gateway import java_class
from streaming.spark.session import default_partitions
from streaming.storage import journal, s3
from streaming.storage.folder import IDENTITY, QUERY

_ID = "id"
"""Key of the checkpoint's name in Kafka."""
_TOPICS = "topics"
"""Field of the identity with name and id of each Kafka topic by role; older releases did not write it."""

_OFFSETS = f"{QUERY}/offsets"
"""Folder of the offset log: a file for each planned micro-batch, with the offsets at which it ends."""

_COMMITS = f"{QUERY}/commits"
_INITIAL = f"{QUERY}/sources/0/0"
"""File with the offsets at which the first micro-batch begins."""

_MANAGER: Final = "org.apache.spark.sql.execution.streaming.checkpointing.CheckpointFileManager"

_EXPECTED: Final = ("FileNotFoundException", "FileAlreadyExistsException")
"""Ends of the names of exceptions that callers handle."""

T = TypeVar("T")


@dataclass(frozen=True)
class QueryProgress:
    """How far the query of a checkpoint has come; offsets by topic and partition.

    Attributes:
        begun: True if a micro-batch was planned, so that updates may have been written.
        read: offsets up to which committed micro-batches have read.
        planned: offsets up to which the latest planned micro-batch reads.
    """

    begun: bool = False
    read: Offsets = field(default_factory=dict)
    planned: Offsets = field(default_factory=dict)
    micro_batches: int = 0


@dataclass(frozen=True)
class Agreement:
    """Values on which a checkpoint and the settings agree.

    The id is generated if the checkpoint has none. It has no topics, by role, if it is new or of an older release.
    """

    checkpoint_id: str
    shuffle_partitions: int
    topics: Mapping[str, NotedTopic] = field(default_factory=dict)

    @property
    def group(self) -> str:
        """Consumer group and transactional id of the checkpoint's lease."""
        return own_group(self.checkpoint_id)

    @property
    def partition_names(self) -> list[str]:
        """Names of the state partitions: of the sink's producers, and of the groups of its markers."""
        return partition_names(self.checkpoint_id, self.shuffle_partitions)


class CheckpointFiles:
    """Small files of a checkpoint, on any file system known to Spark."""

    def __init__(self, spark: SparkSession, checkpoint: str) -> None:
        session: Any = spark
        self._root = for_java(checkpoint).rstrip("/")
        self._path = java_class(spark, "org.apache.hadoop.fs.Path")
        self._io = java_class(spark, "org.apache.commons.io.IOUtils")
        # Spark's own manager replaces a file atomically on each kind of file system.
        managers = java_class(spark, _MANAGER)
        hadoop = session._jsparkSession.sessionState().newHadoopConf()  # noqa: SLF001 - PySpark does not expose it
        self._checkpoint = checkpoint
        self._manager = self._call(lambda: managers.create(self._path(self._root), hadoop))

    def exists(self, name: str) -> bool:
        """Return True if the checkpoint has a file or folder of that name."""
        return bool(self._call(self._manager.exists, self._in_checkpoint(name)))

    def read(self, name: str) -> bytes:
        """Return the content of a file; raise `OSError` if it cannot be read."""
        try:
            stream = self._call(self._manager.open, self._in_checkpoint(name))
            try:
                return bytes(self._io.toByteArray(stream))
            finally:
                stream.close()
        except Py4JJavaError as error:
            differs = str(error.java_exception.getClass().getName()).endswith("ChecksumException")
            raise OSError(_differs(name) if differs else str(error.java_exception)) from None

    def numbers(self, folder: str) -> list[int]:
        """Return the names in a folder that are numbers, in order; none if there is no folder."""
        if not self.exists(folder):
            return []
        names = [
            str(status.getPath().getName()) for status in self._call(self._manager.list, self._in_checkpoint(folder))
        ]
        return sorted(int(name) for name in names if name.isdecimal())

    def write(self, name: str, content: bytes) -> None:
        """Create or replace a file atomically: a crash leaves the former or the new content."""
        self._put(name, content, replaces=True)

    def create(self, name: str, content: bytes) -> None:
        """Create a file atomically, if possible; raise `FileExistsError`."""
        try:
            self._put(name, content, replaces=False)
        except Py4JJavaError as error:
            if "FileAlreadyExistsException" not in str(error.java_exception):
                raise
            raise FileExistsError(name) from None

    def _put(self, name: str, content: bytes, *, replaces: bool) -> None:
        file = self._in_checkpoint(name)
        self._call(self._manager.mkdirs, file.getParent())
        stream = self._call(self._manager.createAtomic, file, replaces)
        try:
            stream.write(content)
        except BaseException:
            stream.cancel()
            raise
        stream.close()  # which gives the file its name

    def delete(self, name: str) -> None:
        """Delete a file, or a folder with all that is in it; a name that does not exist is left alone."""
        self._call(self._manager.delete, self._in_checkpoint(name))

    def _in_checkpoint(self, name: str) -> Any:
        return self._path(f"{self._root}/{name}")

    def _call(self, method: Callable[..., Any], *arguments: Any) -> Any:
        """Call Spark's manager, whose refusals become one sentence."""
        try:
            return method(*arguments)
        except Py4JJavaError as error:
            kind = str(error.java_exception.getClass().getName())
            if kind.endswith(_EXPECTED):
                raise
            reason = one_line(str(error.java_exception.getMessage() or kind))
            raise CheckpointUnusable(
                f"the checkpoint {self._checkpoint} cannot be used: {reason.rstrip('.')}. Check its address, and that "
                "this user may read and write there."
            ) from None


def _differs(name: str) -> str:
    """Return the error for a file that differs from its checksum."""
    folder, _, file = name.rpartition("/")
    checksum = f"{folder}/.{file}.crc" if folder else f".{file}.crc"
    return f"it differs from its checksum in {checksum}; if a copy has replaced the file, delete {checksum} as well"


def absolute(checkpoint: str) -> str:
    """Return the absolute path of a local checkpoint, or a URI as it is.

    Executors run in other folders.
    """
    scheme, colon, rest = checkpoint.partition(":")
    if scheme in s3.SCHEMES and colon:
        return f"{s3.SCHEMES[0]}:{rest}"  # the scheme that Hadoop supports
    return checkpoint if urlparse(checkpoint).scheme else str(Path(checkpoint).absolute())


def for_java(checkpoint: str) -> str:
    """Return a checkpoint for Hadoop: a local path as a URI, independent of `HADOOP_CONF_DIR`."""
    return checkpoint if urlparse(checkpoint).scheme else f"file://{Path(checkpoint).absolute()}"


def read_note(files: CheckpointFiles, location: str, name: str, parse: Callable[[bytes], T], remedy: str) -> T | None:
    """Return a parsed note at a location, None without one.

    Raises `CheckpointMismatch` with the remedy if the note cannot be read.
    """
    return _parsed(files, location, name, parse, remedy) if files.exists(name) else None


def _parsed(files: CheckpointFiles, location: str, name: str, parse: Callable[[bytes], T], remedy: str) -> T:
    try:
        return parse(files.read(name))
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise CheckpointMismatch(f"{location.rstrip('/')}/{name} cannot be read: {error}. {remedy}") from None


def identity(settings: Settings, shuffle_partitions: int) -> dict[str, Any]:
    """Return the settings fixed for the life of a checkpoint, and the format of its states."""
    return {
        "format": journal.FORMAT,
        "shuffle_partitions": shuffle_partitions,
        "topic_events": settings.topic_events,
        "subscription_events": settings.subscription_events,
        "group_events": settings.group_events,
        "clock": settings.clock,
        "shards": dict(sorted(settings.shards.items())),
        "route_depth": settings.route_depth,
        "allow_inner_multi": settings.allow_inner_multi,
        "home_buckets": coordinator.BUCKETS,
    }


def agree(spark: SparkSession, settings: Settings) -> Agreement:
    """Compare the settings with the identity of the checkpoint; write nothing.

    The number of state partitions is the configured one, the checkpoint's, or the default, in this order. Raises
    `CheckpointMismatch` if settings differ, or if the identity is missing or cannot be read.
    """
    files = CheckpointFiles(spark, settings.checkpoint)
    fixed = _read(files, settings.checkpoint)
    if fixed is None:
        return Agreement(str(uuid4()), settings.shuffle_partitions or default_partitions())
    noted: dict[str, Any] = fixed.pop(_TOPICS, None) or {}
    topics = {role: NotedTopic(topic["name"], topic["id"]) for role, topic in noted.items()}
    checkpoint_id = str(fixed.pop(_ID, None) or uuid4())
    partitions: int = settings.shuffle_partitions or fixed.get("shuffle_partitions") or default_partitions()
    wanted = identity(settings, partitions)
    different = [
        f"{name} is {wanted.get(name)!r}, the checkpoint has {fixed.get(name)!r}"
        for name in sorted(wanted.keys() | fixed.keys())
        if wanted.get(name) != fixed.get(name)
        and not (name == "format" and fixed.get("format") in journal.READ_FORMATS)
    ]
    if different:
        raise CheckpointMismatch(
            f"the checkpoint {settings.checkpoint} was made with other settings: {'; '.join(different)}. "
            f"Set them back, or {rebuild(settings)}."
        )
    return Agreement(checkpoint_id, partitions, topics)


def progress(spark: SparkSession, settings: Settings) -> QueryProgress:
    """Return the progress of a checkpoint's query; raise `CheckpointMismatch`."""
    files = CheckpointFiles(spark, settings.checkpoint)
    logged = _logged(files)
    if not logged:
        return QueryProgress()
    offsets = [_offsets(files, settings, name) for name in logged]
    number = int(logged[-1].rpartition("/")[2])
    return QueryProgress(begun=True, read=offsets[0], planned=offsets[-1], micro_batches=number + 1)


def move(spark: SparkSession, settings: Settings, topic: str, ends: Mapping[int, int]) -> None:
    """Let a query that has begun go on at the ends of a topic.

    Raises `CheckpointMismatch` if a file of the query cannot be read.
    """
    files = CheckpointFiles(spark, settings.checkpoint)
    for name in _logged(files):
        head, separator, _ = files.read(name).rstrip().rpartition(b"\n")
        moved = {**_offsets(files, settings, name), topic: ends}
        files.write(name, head + separator + orjson.dumps(moved, option=orjson.OPT_NON_STR_KEYS))


def fix(spark: SparkSession, settings: Settings, agreed: Agreement, topics: Mapping[str, NotedTopic]) -> None:
    """Write the identity of a checkpoint after `agree`, if something is new.

    Former releases cannot read the checkpoint from then on. Raises `CheckpointInUse` if another driver has begun on the
    new checkpoint in the meantime.
    """
    files = CheckpointFiles(spark, settings.checkpoint)
    noted = {role: topic._asdict() for role, topic in sorted(topics.items())}
    wanted = {**identity(settings, agreed.shuffle_partitions), _ID: agreed.checkpoint_id, _TOPICS: noted}
    content = orjson.dumps(wanted, option=orjson.OPT_INDENT_2)
    former = _read(files, settings.checkpoint)
    if former is None:
        try:
            files.create(IDENTITY, content)
        except FileExistsError:
            raise just_begun(settings) from None
    elif former.get(_ID, agreed.checkpoint_id) != agreed.checkpoint_id:
        raise just_begun(settings)
    elif former != wanted:
        files.write(IDENTITY, content)


def just_begun(settings: Settings) -> CheckpointInUse:
    """Return the error for a new checkpoint that another driver has begun in the meantime."""
    return CheckpointInUse(f"another driver has just started on the new checkpoint {settings.checkpoint}.")


def _logged(files: CheckpointFiles) -> list[str]:
    """Return the files of the next offsets: its begin and its planned end.

    Both are the same file if all planned micro-batches are committed; there is none if none was planned.
    """
    planned = files.numbers(_OFFSETS)
    if not planned:
        return []
    committed = [number for number in files.numbers(_COMMITS) if number in planned]
    begin = f"{_OFFSETS}/{committed[-1]}" if committed else _INITIAL
    return list(dict.fromkeys((begin, f"{_OFFSETS}/{planned[-1]}")))


def _offsets(files: CheckpointFiles, settings: Settings, name: str) -> Offsets:
    """Return the offsets in the last line of a file of the query."""
    remedy = f"Restore the whole checkpoint from a copy that was made while the job was stopped, or {START_OVER}."
    parse = positions.parse
    return _parsed(files, settings.checkpoint, name, lambda it: parse(it.rstrip().rpartition(b"\n")[2]), remedy)


def _read(files: CheckpointFiles, checkpoint: str) -> dict[str, Any] | None:
    """Return the identity of a checkpoint; None if it is new."""
    remedy = f"Restore the file from a copy of the checkpoint, or {START_OVER}."
    if not files.exists(IDENTITY) and files.exists(QUERY):
        raise CheckpointMismatch(
            f"{checkpoint.rstrip('/')}/{IDENTITY} is missing, so the settings with which the checkpoint was made are "
            f"unknown. {remedy}"
        )
    return read_note(files, checkpoint, IDENTITY, lambda content: {**orjson.loads(content)}, remedy)
