"""The operator in PyFlink; runs until SIGTERM, with the job's own settings from the environment.

It needs a Python with `requirements-flink.txt`, a Java, and the jars that `REEXPAND_JARS` names. The cluster is the one
that PyFlink starts in a Java process of its own.
"""

import json
import logging
import os
import signal
import sys
import sysconfig
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from urllib.request import urlopen

import orjson
from py4j.protocol import Py4JJavaError
from pyflink.common import Configuration, JobClient, Row, Types
from pyflink.datastream import KeyedProcessFunction, RuntimeContext, StreamExecutionEnvironment
from pyflink.datastream.state import MapState, MapStateDescriptor, ValueState, ValueStateDescriptor
from pyflink.java_gateway import get_gateway
from pyflink.table import StreamTableEnvironment
from pyflink.table.expressions import col

from streaming.records.model import Source
from tests.bench.peers.decisions import Entry, Event, Operator, placed, say_ready, setting

READY_SECONDS = 120
BYTES = Types.PRIMITIVE_ARRAY(Types.BYTE())
Placed = tuple[str, tuple[str, int, int, int, int], bytes]
"""A parent, the fields of where a value comes from, and the value as JSON."""

KAFKA = """
        'connector' = 'kafka',
        'properties.bootstrap.servers' = '{servers}',
        'key.format' = 'raw',
        'key.fields' = 'key',
        'value.format' = 'raw',
        'value.fields-include' = 'EXCEPT_KEY'
"""
EVENTS = """
    CREATE TABLE events (
        `key` STRING,
        `value` BYTES,
        `topic` STRING NOT NULL METADATA VIRTUAL,
        `partition` INT NOT NULL METADATA VIRTUAL,
        `offset` BIGINT NOT NULL METADATA VIRTUAL,
        `time` TIMESTAMP_LTZ(3) NOT NULL METADATA FROM 'timestamp' VIRTUAL,
        `timestamp` AS EXTRACT(EPOCH FROM `time`) * 1000 + EXTRACT(MILLISECOND FROM `time`)
    ) WITH (
        {kafka},
        'topic' = '{topics}',
        'properties.group.id' = '{group}',
        'scan.startup.mode' = 'earliest-offset'
    )
"""
# Its keys are unique to Kafka only: to Flink each record is one more, and a null value a tombstone.
UPDATES = """
    CREATE TABLE updates (`key` BYTES, `value` BYTES) WITH ({kafka}, 'topic' = '{topic}')
"""


class KeyedState:
    """The state of one parent: that of the key which is worked on."""

    def __init__(self, parent: str, topics: MapState, kept: ValueState, changed: Counter[str]) -> None:
        self._parent = parent
        self._topics = topics
        self._kept = kept
        self._changed = changed

    def add(self, topic: str) -> bool:
        if self._topics.contains(topic):
            return False
        self._topics.put(topic, True)
        return True

    def remove(self, topic: str) -> bool:
        if not self._topics.contains(topic):
            return False
        self._topics.remove(topic)
        return True

    def topics(self) -> Iterator[str]:
        yield from self._topics.keys()

    def subscriptions(self) -> Entry | None:
        kept: Entry | None = self._kept.value()
        return kept

    def subscribe(self, subscriptions: Entry) -> None:
        self._kept.update(subscriptions)
        self._changed[self._parent] += 1

    def changes(self) -> int:
        """How often the subscriptions have changed since this function was opened: no other works on its parents."""
        return self._changed[self._parent]


class Decide(KeyedProcessFunction):  # type: ignore[misc]  # checked without PyFlink
    """The operator as a keyed stream calls it."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self._topics = runtime_context.get_map_state(MapStateDescriptor("topics", Types.STRING(), Types.BOOLEAN()))
        kept = ValueStateDescriptor("subscriptions", Types.PICKLED_BYTE_ARRAY())
        self._kept = runtime_context.get_state(kept)
        self._changed: Counter[str] = Counter()
        self._operator = Operator()

    def process_element(self, value: Placed, _context: object) -> Iterator[Row]:
        parent, source, text = value
        state = KeyedState(parent, self._topics, self._kept, self._changed)
        for record in self._operator(Event(orjson.loads(text), parent, Source(*source), state)):
            yield Row(*record)


def place(record: Row) -> Iterator[Placed]:
    """A topic event, or the entries of a group event or a request, each with its parent and where it comes from."""
    key, value, topic, partition, offset, timestamp = record
    if topic == setting("TOPIC_EVENTS"):
        yield key, (topic, partition, offset, 0, timestamp), value
        return
    for parent, number, entry in placed(orjson.loads(value)):
        yield parent, (topic, partition, offset, number, timestamp), orjson.dumps(entry)


def parent_of(value: Placed) -> str:
    return value[0]


def configuration(folder: Path, port: int) -> Configuration:
    """The settings that are not Flink's defaults, and the last checkpoint of a process before this one."""
    checkpoints = folder / "checkpoints"
    complete = sorted(checkpoints.glob("*/chk-*/_metadata"), key=lambda file: file.stat().st_mtime)
    found = {
        "execution.buffer-timeout.interval": "5 ms",
        "execution.checkpointing.dir": checkpoints.as_uri(),
        "execution.checkpointing.incremental": "true",
        "execution.checkpointing.interval": "10 s",
        "io.tmp.dirs": str(folder),
        "parallelism.default": setting("PARALLELISM"),
        "pipeline.jars": ";".join(Path(jar).as_uri() for jar in setting("JARS").split(os.pathsep)),
        "python.executable": sys.executable,
        "python.execution-mode": "thread",
        "python.pythonpath": sysconfig.get_path("purelib"),  # Python within Java looks in no environment
        "rest.bind-port": str(port),
        "restart-strategy.type": "none",  # a failure is to be seen; what is started again goes on
        "state.backend.type": "rocksdb",
        "web.tmpdir": str(folder),
    }
    if complete:
        found["execution.state-recovery.path"] = complete[-1].parent.as_uri()
    settings = Configuration()
    for name, value in found.items():
        settings.set_string(name, value)
    return settings


def start(folder: Path, port: int) -> JobClient:
    environment = StreamExecutionEnvironment.get_execution_environment(configuration(folder, port))
    tables = StreamTableEnvironment.create(environment)
    kafka = KAFKA.format(servers=setting("BOOTSTRAP_SERVERS")).strip()
    topics = ";".join(map(setting, ("TOPIC_EVENTS", "GROUP_EVENTS", "SUBSCRIPTION_EVENTS")))
    tables.execute_sql(EVENTS.format(kafka=kafka, topics=topics, group=folder.name))
    tables.execute_sql(UPDATES.format(kafka=kafka, topic=setting("UPDATES")))
    updates = (
        tables.to_data_stream(tables.from_path("events").drop_columns(col("time")))
        .flat_map(place)
        .key_by(parent_of, key_type=Types.STRING())
        .process(Decide(), Types.ROW_NAMED(["key", "value"], [BYTES, BYTES]))
    )
    statements = tables.create_statement_set()
    statements.add_insert("updates", tables.from_data_stream(updates))
    statements.attach_as_datastream()
    return environment.execute_async("reexpand")


def wait_for_tasks(job: JobClient, port: int, ended: threading.Event) -> None:
    """Wait until all tasks run, or the event is set."""
    address = f"http://127.0.0.1:{port}/jobs/{job.get_job_id()}"
    deadline = time.monotonic() + READY_SECONDS
    while not ended.wait(0.2):
        raise_failure(job)
        with suppress(OSError), urlopen(address, timeout=10) as answer:
            tasks = [Counter(vertex["tasks"]) for vertex in json.load(answer)["vertices"]]
            if all(states.total() == states["RUNNING"] for states in tasks):
                return
        if time.monotonic() > deadline:
            raise SystemExit(f"not all tasks run within {READY_SECONDS} s")


def raise_failure(job: JobClient) -> None:
    result = job.get_job_execution_result()
    if result.done():
        result.result()


def main() -> None:
    """Run the operator until SIGTERM."""
    ended = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: ended.set())
    folder = Path(setting("CHECKPOINT"))
    folder.mkdir(parents=True, exist_ok=True)
    os.environ["FLINK_LOG_DIR"] = str(folder)
    java = get_gateway().jvm.java.lang.ProcessHandle.current().pid()
    try:
        port = int(setting("PORT"))
        job = start(folder, port)
        wait_for_tasks(job, port, ended)
        say_ready()
        while not ended.wait(1):
            raise_failure(job)
    except Py4JJavaError as error:
        raise SystemExit(f"the job has failed: {error}") from None  # to be read while Java is there
    finally:
        logging.disable()  # of PyFlink's own calls that nobody answers any more
        os.kill(java, signal.SIGTERM)  # by itself it would notice only after a while that it is alone
        os.waitpid(java, 0)


if __name__ == "__main__":
    main()
