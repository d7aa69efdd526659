"""Dry runs of keys in child processes: real forks, which are killed, hang, and take memory."""

import dataclasses
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from streaming.errors import EntriesLethal
from streaming.state import policy
from streaming.tuning import Tuning
from streaming.worker.rehearsal import Fate, KeyWork, Rehearsal, lethal_entries
from streaming.worker.rows import InputRow, InputRows
from streaming.worker.worker import Worker, WorkerConfig
from tests.support.events import WILD, created, replace
from tests.support.lethal import KIND, Lethal
from tests.support.selector_kinds import offered
from tests.support.simulator import TOPICS as NAMES
from tests.support.simulator import Memories
from tests.support.states import GROUPS, SUBSCRIPTIONS, TOPICS, row, work

SELECTOR = {"type": KIND, "expression": "all"}
STALL_SECONDS = 60
CONFIG = WorkerConfig(NAMES)


@pytest.fixture(autouse=True)
def _installed() -> Iterator[None]:
    with offered(KIND, Lethal):
        yield
    policy._COMPILED.clear()


SUBSCRIBED = [row(GROUPS, WILD), row(SUBSCRIPTIONS, replace("*", selector=SELECTOR))]


def topics(*deeds: str) -> list[InputRow]:
    """Return the topics with these deeds; an empty one is harmless."""
    return [
        row(TOPICS, created(f"t{number}", properties={"deed": deed} if deed else {}), number)
        for number, deed in enumerate(deeds)
    ]


def found(rows: list[InputRow], data: bytes | None = None, config: WorkerConfig = CONFIG, **options: Any) -> list[Any]:
    """Return the entries at which dry runs end, as stream topic, offset and reason."""
    worker = Worker(config, options.pop("tuning", Tuning()))
    rehearsal = Rehearsal(worker, options.pop("stall_seconds", STALL_SECONDS), **options)
    try:
        rehearsal.check(KeyWork("p", 0, InputRows.of(rows), data, 3, 1))
    except EntriesLethal as error:
        named = lethal_entries(f"pyspark.errors: {type(error).__name__}: {error}\n\nat org.apache.spark")
        assert named is not None
        assert all((each["parent"], each["number"], each["micro_batch"]) == ("p", 0, 3) for each in named)
        return [(each["topic"], each["offset"], each["reason"]) for each in named]
    finally:
        rehearsal.close()
    return []


def deeds(count: int, **named: int) -> list[str]:
    """Return harmless deeds, except for those named with their places."""
    return [next((deed for deed, place in named.items() if place == number), "") for number in range(count)]


@pytest.mark.parametrize(
    ("done", "options", "blamed"),
    [
        (deeds(3), {}, {}),
        *((deeds(9, kill=place), {}, {place: Fate.KILLED}) for place in (0, 4, 8)),
        (deeds(40, kill=23), {}, {23: Fate.KILLED}),  # of those read by column
        (["", "kill", "", "kill"], {}, {1: Fate.KILLED, 3: Fate.KILLED}),
        # The harmless ones get the same time, so it must be long enough for a busy machine.
        (deeds(3, sleep=1), {"stall_seconds": 5}, {1: Fate.HUNG}),
        (deeds(3, grow=1), {"memory_bytes": 100_000_000}, {1: Fate.GREW}),
        # An entry that is slow in the search only, where each dry run gets a part of the time, is not to blame.
        (deeds(5, pause=1, kill=3), {"stall_seconds": 15}, {3: Fate.KILLED}),
    ],
)
def test_the_entries_that_end_or_hang_a_worker_are_found(
    done: list[str], options: dict[str, Any], blamed: dict[int, Fate]
) -> None:
    entries = [(NAMES[TOPICS], offset, fate) for offset, fate in blamed.items()]
    assert found([*SUBSCRIBED, *topics(*done)], **options) == entries


def test_a_failure_that_does_not_come_again_blames_none(tmp_path: Path) -> None:
    """As where the kernel has killed the wrong process."""
    properties = {"deed": "kill once", "flag": str(tmp_path / "flag")}
    once = row(TOPICS, created("once", properties=properties), 7)
    assert found([*SUBSCRIBED, *topics(""), once]) == []
    assert (tmp_path / "flag").exists()


def test_a_stored_selector_blames_the_topic() -> None:
    """The subscription was applied before."""
    data, _ = work("p", 0, SUBSCRIBED, None, CONFIG)
    assert found(topics("", "kill"), data) == [(NAMES[TOPICS], 1, Fate.KILLED)]


def test_parts_of_states_are_read_for_the_child_and_nothing_is_written() -> None:
    archives = Memories()
    worker = Worker(dataclasses.replace(CONFIG, archives=archives), Tuning(inline_bytes=10))
    data, _ = work("p", 0, SUBSCRIBED, None, worker, batch=1)
    parts = dict(archives["p", 0])
    assert parts
    assert found(topics("", "kill"), data, worker.config, tuning=worker.tuning) == [(NAMES[TOPICS], 1, Fate.KILLED)]
    assert archives["p", 0] == parts


def test_more_entries_than_can_be_to_blame_blame_none() -> None:
    rows = [*SUBSCRIBED, *topics(*["kill"] * 12)]
    with pytest.raises(EntriesLethal) as raised:
        Rehearsal(Worker(CONFIG), STALL_SECONDS).check(KeyWork("p", 0, InputRows.of(rows), None, 3, 1))
    assert json.loads(str(raised.value)) == []


def test_an_error_of_python_is_left_to_the_work_itself() -> None:
    assert found([row(TOPICS, created())], data=b"damaged") == []


def test_a_child_that_ends_at_once_is_started_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Linux ends it before other processes when memory is short."""
    forks: list[int] = []
    fork = os.fork

    def short_lived() -> int:
        forks.append(fork())
        if not forks[-1] and len(forks) == 1:
            os._exit(1)
        return forks[-1]

    monkeypatch.setattr(os, "fork", short_lived)
    rehearsal = Rehearsal(Worker(CONFIG), STALL_SECONDS)
    rehearsal.check(KeyWork("p", 0, InputRows.of([*SUBSCRIBED, *topics("")]), None, 3, 1))
    rehearsal.close()
    assert len(forks) == 2


def test_a_child_serves_many_keys_and_ends_with_its_rehearsal(monkeypatch: pytest.MonkeyPatch) -> None:
    forks: list[int] = []
    fork = os.fork

    def counted() -> int:
        forks.append(fork())
        return forks[-1]

    monkeypatch.setattr(os, "fork", counted)
    rehearsal = Rehearsal(Worker(CONFIG), STALL_SECONDS)
    for number in range(20):
        rehearsal.check(KeyWork("p", number, InputRows.of([*SUBSCRIBED, *topics("")]), None, 3, 1))
    assert len(forks) == 1
    rehearsal.close()
    with pytest.raises(ProcessLookupError):
        os.kill(forks[0], 0)


@pytest.mark.parametrize("text", ["StreamingQueryException: no", "EntriesLethal: broken", 'EntriesLethal: {"a": 1}'])
def test_other_errors_name_no_entries(text: str) -> None:
    assert lethal_entries(text) is None
