"""The programs of docs/dispatcher.md that read updates with other clients, on a topic with an aborted transaction."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

import pytest
from confluent_kafka import Producer

from streaming.kafka.specs import COMPACTION
from streaming.kafka.topics import TopicSpec, create_topics
from streaming.local import jars
from tests.support.brokers import SharedBroker
from tests.support.processes import child, eventually
from tests.support.terminals import blocks
from tests.support.update_records import Record, add, gone, key, remove

PAGE = (Path(__file__).parents[2] / "docs/dispatcher.md").read_text(encoding="utf-8")
WAIT_SECONDS = 180
COMMITTED = [("ADD", "left"), ("ADD", "kept"), ("REMOVE", "left"), ("REMOVE", "left")]
"""The updates that readers get, as operation and lite topic. The last one is a tombstone."""


def program(language: str) -> str:
    """Return the last program of the page in a language."""
    return blocks(PAGE, language)[-1]


@pytest.fixture(scope="module")
def topic(broker: SharedBroker) -> str:
    """An updates topic `NAME` of the parent `NAME-p`: a committed, an aborted and a second committed transaction."""
    name = f"u-{uuid4().hex[:12]}"
    create_topics(broker.bootstrap_servers, [TopicSpec(name, 1, COMPACTION)])
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "transactional.id": name})
    producer.init_transactions(30)

    def write(records: list[Record], *, commit: bool = True) -> None:
        producer.begin_transaction()
        for record_key, value in records:
            producer.produce(name, key=record_key, value=value)
        producer.flush(60)
        (producer.commit_transaction if commit else producer.abort_transaction)(30)

    parent = f"{name}-p"
    write([add("left", parent=parent), add("kept", parent=parent)])
    write([add("dropped", parent=parent)], commit=False)
    write([remove("left", parent=parent), gone("left", parent=parent)])
    return name


@contextmanager
def running(command: list[str], folder: Path, broker: SharedBroker) -> Iterator[tuple[subprocess.Popen[bytes], Path]]:
    """Run a program in a folder, and yield it with the file of its output."""
    output = folder / "output"
    environment = {**os.environ, "KAFKA": broker.bootstrap_servers}
    with (
        output.open("wb") as file,
        (folder / "errors").open("wb") as errors,
        child(command, cwd=folder, env=environment, stdout=file, stderr=errors) as process,
    ):
        yield process, output


def lines(command: list[str], count: int, folder: Path, broker: SharedBroker) -> list[str]:
    """Run a program until it has printed a number of lines, and return them."""
    with running(command, folder, broker) as (process, output):
        eventually(lambda: output.read_text().count("\n") >= count or process.poll() is not None, WAIT_SECONDS)
    found = output.read_text().splitlines()
    assert found, (folder / "errors").read_text()
    return found


def python(folder: Path, source: str) -> list[str]:
    (folder / "updates.py").write_text(source, encoding="utf-8")
    return [sys.executable, "updates.py"]


def java(folder: Path, source: str) -> list[str]:
    (folder / "Updates.java").write_text(source, encoding="utf-8")
    return [_found("java"), "-cp", ":".join(map(str, jars.kafka())), "Updates.java"]


def go(folder: Path, source: str) -> list[str]:
    (folder / "main.go").write_text(source, encoding="utf-8")
    (module,) = re.findall(r"`go get (\S+)`", PAGE)
    for arguments in (["mod", "init", "updates"], ["get", module], ["build", "-o", "program"]):
        done = subprocess.run([_found("go"), *arguments], cwd=folder, capture_output=True, text=True, check=False)
        if arguments[0] == "get" and done.returncode:
            pytest.skip(f"the Go module is not available: {done.stderr}")
        assert done.returncode == 0, done.stderr
    return [str(folder / "program")]


def _found(tool: str) -> str:
    path = shutil.which(tool)
    if path is None or (tool == "java" and shutil.which("javac") is None):
        pytest.skip(f"needs {tool}" + (" with its compiler" if tool == "java" else ""))
    return path


@pytest.mark.parametrize("prepare", [python, java, go], ids=lambda prepare: prepare.__name__)
def test_the_programs_of_the_page_read_committed_updates_only(
    prepare: Callable[[Path, str], list[str]], broker: SharedBroker, topic: str, tmp_path: Path
) -> None:
    source = program(prepare.__name__).replace("lite-subscription-updates", topic)
    expected = [f"{op} {key(name, parent=f'{topic}-p').decode()}" for op, name in COMMITTED]
    assert lines(prepare(tmp_path, source), len(expected), tmp_path, broker) == expected


def test_the_dispatcher_of_the_page_delivers_by_committed_updates_only(
    broker: SharedBroker, topic: str, tmp_path: Path
) -> None:
    parent = f"{topic}-p"
    create_topics(broker.bootstrap_servers, [TopicSpec(parent, 1)])
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    for number, name in enumerate(("kept", "dropped", "left", "unknown", "kept")):
        producer.produce(parent, str(number), name)
    assert producer.flush(60) == 0
    source = blocks(PAGE, "python")[0].replace("lite-subscription-updates", topic).replace('"orders"', f'"{parent}"')
    assert lines(python(tmp_path, source), 3, tmp_path, broker) == ["ready", "c 0", "c 4"]


def test_the_command_of_kcat_reads_committed_updates_only(broker: SharedBroker, topic: str, tmp_path: Path) -> None:
    if shutil.which("kcat") is None:
        pytest.skip("needs kcat")
    command = program("sh").replace("lite-subscription-updates", topic)
    with running(["bash", "-c", command], tmp_path, broker) as (process, output):
        assert process.wait(WAIT_SECONDS) == 0, (tmp_path / "errors").read_text()
    assert [line.partition(" ")[0] for line in output.read_text().splitlines()] == [
        key(name, parent=f"{topic}-p").decode() for _, name in COMMITTED
    ]
