"""Stopped job as files: its checkpoint, the records of its six Kafka topics, and its settings.

settings.json        settings by name, as of `reexpand run`, without addresses and paths; `ends` of the Kafka topics
checkpoint.tar.gz    the checkpoint directory
SETTING.jsonl.xz     records of the Kafka topic that this setting names, one JSON object per line
"""

import json
import lzma
import tarfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, Message, Producer, TopicCollection
from confluent_kafka.admin import AdminClient

from streaming.kafka.specs import specs
from streaming.kafka.topics import TopicSpec, create_topics
from streaming.records.model import Stream
from streaming.records.routing import Routing
from tests.support.processes import eventually
from tests.support.running_job import PRODUCERS_TIME, TOPIC_SETTINGS, Streams
from tests.support.simulator import Record

_ANY_TIME = {**PRODUCERS_TIME, "message.timestamp.after.max.ms": str(2**63 - 1)}
"""Configuration that accepts recorded timestamps even if the broker's clock is behind them."""

_MOST_MARKERS = 2
"""Markers of transactions between two records: several tasks end theirs at once."""

_FOR_TEXT = [{"id": lzma.FILTER_LZMA2, "preset": 9 | lzma.PRESET_EXTREME, "lc": 4, "lp": 0, "pb": 0}]
"""Compression without alignment to four bytes: a third smaller than the default."""


class StoredRecord(NamedTuple):
    """Kafka record in a file; keys and values are UTF-8."""

    key: str | None
    value: str | None
    timestamp: int
    partition: int
    offset: int

    @classmethod
    def of(cls, message: Message) -> "StoredRecord":
        key, value = message.key(), message.value()
        kind, timestamp = message.timestamp()
        assert kind != TIMESTAMP_NOT_AVAILABLE
        return cls(
            None if key is None else key.decode(),
            None if value is None else value.decode(),
            timestamp,
            message.partition() or 0,
            message.offset() or 0,
        )


@dataclass(frozen=True)
class RecordedJob:
    """Folder of a stopped job."""

    folder: Path

    @property
    def settings(self) -> dict[str, Any]:
        values: dict[str, Any] = json.loads((self.folder / "settings.json").read_text(encoding="utf-8"))
        return values

    @property
    def options(self) -> list[str]:
        """Settings as options of `reexpand run`, without the names of Kafka topics."""
        return options({name: value for name, value in self.settings.items() if name not in (*TOPIC_SETTINGS, "ends")})

    @property
    def routing(self) -> Routing:
        return Routing(self.settings["shards"], self.settings["route_depth"])

    def records(self, setting: str) -> list[StoredRecord]:
        """Return the records of the Kafka topic that a setting names, in order of their offsets."""
        with lzma.open(self.folder / f"{setting}.jsonl.xz", "rt", encoding="utf-8") as lines:
            return [StoredRecord(**json.loads(line)) for line in lines]

    def topics(self, parent: str) -> int:
        """Return the number of lite topics of a parent that were created."""
        values = {record.value or "" for record in self.records("topic_events")}
        return sum('"CREATED"' in value and f'"{parent}"' in value for value in values)

    def streams(self, bootstrap_servers: str, checkpoint: Path) -> Streams:
        """Return the topics on a broker under the recorded names, with a checkpoint."""
        streams = Streams(bootstrap_servers, checkpoint, self.settings["updates"].removesuffix("-updates"))
        assert {name: getattr(streams.settings, name) for name in TOPIC_SETTINGS} == {
            name: self.settings[name] for name in TOPIC_SETTINGS
        }
        return streams

    def restore(self, streams: Streams) -> None:
        """Unpack the checkpoint, and create and fill the Kafka topics; each record keeps its offset."""
        with tarfile.open(self.folder / "checkpoint.tar.gz") as archive:
            archive.extractall(streams.checkpoint, filter="data")
        wanted = [TopicSpec(spec.name, 1, {**spec.config, **_ANY_TIME}) for spec in specs(streams.settings)]
        assert create_topics(streams.bootstrap_servers, wanted) == [spec.name for spec in wanted]
        for setting in TOPIC_SETTINGS:
            _write(streams, self.settings[setting], self.records(setting), self.settings["ends"][setting])
        _use_topics(streams)


def _use_topics(streams: Streams) -> None:
    """Write the ids of the Kafka topics into the checkpoint, so they are the topics of the recorded broker."""
    file = streams.checkpoint / "reexpand.json"
    identity = json.loads(file.read_bytes())
    known = {topic["name"]: topic for topic in identity.get("topics", {}).values()}
    admin = AdminClient({"bootstrap.servers": streams.bootstrap_servers})
    for name, found in admin.describe_topics(TopicCollection(list(known))).items() if known else ():
        known[name]["id"] = str(found.result(60).topic_id).translate(str.maketrans("+/", "-_"))  # as Java prints it
    file.write_text(json.dumps(identity))
    file.with_name(f".{file.name}.crc").unlink(missing_ok=True)


def _write(streams: Streams, topic: str, records: list[StoredRecord], end: int) -> None:
    """Write records at their offsets; the offsets between them are for markers of transactions.

    Of the records before N markers, the last N are in a transaction each.
    """
    options = {"bootstrap.servers": streams.bootstrap_servers, "log_level": 0, "enable.idempotence": True}
    plain = Producer(options)
    bound = [Producer({**options, "transactional.id": f"restored-{topic}-{number}"}) for number in range(_MOST_MARKERS)]
    for producer in bound:
        producer.init_transactions(60)
    run: list[StoredRecord] = []
    for record, behind in zip(records, [*(record.offset for record in records[1:]), end], strict=True):
        run.append(record)
        markers = behind - record.offset - 1
        if not markers and behind != end:
            continue
        alone = len(run) - markers
        for each in run[:alone]:
            _produce(plain, topic, each)
        assert plain.flush(60) == 0
        for producer, each in zip(bound[:markers], run[alone:], strict=True):
            producer.begin_transaction()
            _produce(producer, topic, each)
            assert producer.flush(60) == 0
        for producer in bound[:markers]:
            producer.commit_transaction(60)
        assert eventually(partial(_ends_at, streams, topic, behind)), f"{topic} does not end at {behind}"
        run.clear()


def _produce(producer: Producer, topic: str, record: StoredRecord) -> None:
    producer.produce(topic, record.value, record.key, partition=record.partition, timestamp=record.timestamp)


def _ends_at(streams: Streams, topic: str, offset: int) -> bool:
    return streams.ends(topic, committed=False) == {0: offset}


def options(settings: Mapping[str, Any]) -> list[str]:
    found = []
    for name, value in settings.items():
        texts = [f"{key}={number}" for key, number in value.items()] if isinstance(value, dict) else [str(value)]
        found += [word for text in texts for word in (f"--{name.replace('_', '-')}", text)]
    return found


def save(streams: Streams, folder: Path, settings: dict[str, Any]) -> RecordedJob:
    folder.mkdir(parents=True, exist_ok=True)
    names = {name: getattr(streams.settings, name) for name in TOPIC_SETTINGS}
    ends = {name: streams.ends(topic)[0] for name, topic in names.items()}
    values = {**names, **settings, "ends": ends}
    (folder / "settings.json").write_text(json.dumps(values, indent=2) + "\n", encoding="utf-8")
    for setting, topic in names.items():
        with lzma.open(folder / f"{setting}.jsonl.xz", "wt", encoding="utf-8", filters=_FOR_TEXT) as lines:
            for message in streams.read(topic):
                print(json.dumps(StoredRecord.of(message)._asdict()), file=lines)
    with tarfile.open(folder / "checkpoint.tar.gz", "w:gz", compresslevel=9) as archive:
        archive.add(streams.checkpoint, ".", filter=_anonymous)
    return RecordedJob(folder)


def steps_sent(streams: Streams) -> Iterator[list[Record]]:
    """Group all input records by timestamp; each group was read before the next was sent."""
    names = {streams.name(stream): stream for stream in Stream}
    found = [
        Record(stream, message.value(), message.partition() or 0, message.offset() or 0, message.timestamp()[1])
        for name, stream in names.items()
        for message in streams.read(name)
    ]
    for _, step in groupby(sorted(found, key=_timestamp), _timestamp):
        yield list(step)


def _timestamp(record: Record) -> int:
    return record.timestamp


def _anonymous(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    return entry
