"""The commands of the main page and of all tutorials, run literally and timed in an empty folder."""

import re
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from streaming.errors import JarsUnavailable
from streaming.local import jars
from tests.support.terminals import Step, Terminals, blocks, section, table

pytestmark = pytest.mark.long

Open = Callable[[str], Terminals]
"""Opens terminals for a page."""


@pytest.fixture(scope="module")
def steps() -> Iterator[list[Step]]:
    """Durations of all steps, as a table that `make test-tutorials` shows."""
    found: list[Step] = []
    yield found
    sys.stdout.write(table(found))


@pytest.fixture
def opened(tmp_path: Path, steps: list[Step]) -> Iterator[Open]:
    found: list[Terminals] = []

    def start(page: str) -> Terminals:
        found.append(Terminals(page, tmp_path, steps))
        return found[-1]

    yield start
    for each in found:
        each.kill()


def quoted(text: str, before: str) -> str:
    """Return the code behind a phrase, which the page shows as output."""
    (found,) = re.findall(rf"{before}:? `([^`]+)`", text)
    return str(found)


def test_the_main_page(opened: Open) -> None:
    terminals = opened("README.md")
    text = section(terminals.text, "A first event")
    servers, events = blocks(text)
    terminals.open(servers)
    shown = quoted(text, "prints the update").removesuffix("...").strip()
    assert shown in terminals.run(events)
    terminals.stop()


def test_a_dispatcher(opened: Open) -> None:
    """The other programs of the page are run by `test_reading_updates.py`."""
    terminals = opened("docs/dispatcher.md")
    servers, topic, dispatcher, events, production, _ = blocks(terminals.text)
    (terminals.folder / "dispatcher.py").write_text(blocks(terminals.text, "python")[0], encoding="utf-8")
    terminals.open(servers)
    terminals.run(topic)
    terminals.start(dispatcher, "ready")
    terminals.run(events)
    terminals.prints(quoted(terminals.text, "The dispatcher prints"))
    terminals.stop()
    assert production.startswith("python -m streaming.examples.dispatcher ")


def test_a_kafka_of_ones_own(opened: Open) -> None:
    """With the address of `reexpand local`, and another folder than on the page."""
    terminals = opened("docs/own-kafka.md")
    text = terminals.text.replace("/var/lib/reexpand", "checkpoint")
    address, topics, job, events, result, checks = blocks(text)
    tail, console = result.splitlines()
    explain, verify, letters = checks.splitlines()
    terminals.start("reexpand local")
    terminals.open(address)
    assert "exists" in terminals.run(topics)
    terminals.start(job)
    assert terminals.run(events).count("sent: ") == 3
    assert "orders" in terminals.run(quoted(text, "and run"))
    assert "billing/c1 eu__1" in terminals.run(tail)
    terminals.environment["BROWSER"] = "true"  # the program, which opens nothing
    terminals.start(console)
    assert terminals.run(explain).startswith("yes: client 'c1'")
    assert "the relation is right" in terminals.run(verify)
    assert terminals.run(letters) == ""
    terminals.stop()


def test_kafka_topics_by_pattern(opened: Open) -> None:
    terminals = opened("docs/kafka-consumer.md")
    text = section(terminals.text, "Tutorial")
    servers, consumer, topic = blocks(text)
    terminals.save("consumer.py")
    terminals.open(servers)
    terminals.start(consumer)
    terminals.run(topic)
    terminals.prints(quoted(text, "The consumer prints"))
    terminals.stop()


def test_patterns_on_rocketmq(opened: Open) -> None:
    pytest.importorskip("rocketmq", reason="needs the extra rocketmq")
    terminals = opened("docs/rocketmq.md")
    text = section(terminals.text, "Tutorial")
    begun = time.monotonic()
    try:
        jars.rocketmq()
    except JarsUnavailable as error:
        pytest.skip(str(error))
    terminals.note("download of RocketMQ's jars, if they are missing", time.monotonic() - begun)
    (shown,) = blocks(text, "text")
    assert sorted(terminals.run(*blocks(text)).splitlines()) == sorted(shown.splitlines())
    terminals.stop()
