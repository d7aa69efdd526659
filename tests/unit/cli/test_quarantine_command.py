"""`reexpand quarantine`: what an operator may change, and what is refused."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from streaming.cli import main
from streaming.kafka.facts import EntryPlace
from streaming.operations import checkpoint as operations
from streaming.operations.checkpoint import JobCheckpoint
from streaming.operations.quarantine import HeldCheckpoint
from streaming.worker.quarantine import NOTE, partition_of
from tests.support.events import replace
from tests.support.simulator import TOPICS

PARTITIONS = 4
IDENTITY = {
    "id": "some-id",
    "shuffle_partitions": PARTITIONS,
    **dict(zip(("group_events", "subscription_events", "topic_events", "clock"), TOPICS, strict=True)),
    "shards": {"p": 8},
    "route_depth": 1,
    "allow_inner_multi": False,
}
ENTRY = f"{TOPICS[1]}[2]@12#1"
PLACE = EntryPlace(TOPICS[1], 2, 12, 1)
KEYS = {number: partition_of("p", number, PARTITIONS) for number in range(8)}


class FakeMessage:
    """A record with two requests."""

    def timestamp(self) -> tuple[int, int]:
        """Return its time."""
        return 1, 5_000

    def value(self) -> bytes:
        """Return its requests."""
        return json.dumps({"subscriptionSet": [replace("t"), replace("t", client="d")]}).encode()


@pytest.fixture
def checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The checkpoint of a job that has committed micro-batch 4, up to offset 12, and planned the next one."""
    folder = tmp_path / "checkpoint"
    for log, number, end in (("offsets", 4, 12), ("commits", 4, 12), ("offsets", 5, 20)):
        (folder / "query" / log).mkdir(parents=True, exist_ok=True)
        (folder / "query" / log / str(number)).write_text(f'v1\n{{"{TOPICS[1]}": {{"2": {end}}}}}')
    (folder / "reexpand.json").write_text(json.dumps(IDENTITY))
    monkeypatch.setattr(HeldCheckpoint, "_record", lambda *_: FakeMessage())
    monkeypatch.setattr(HeldCheckpoint, "_written", lambda _: {})
    monkeypatch.setattr(operations, "check_ended", lambda *_: None)
    return folder


def said(checkpoint: Path, verb: str, *words: str) -> Result:
    """Run a verb."""
    options = ["--checkpoint", str(checkpoint)]
    if verb != "list":
        options += ["--bootstrap-servers", "b:1"]
    return CliRunner().invoke(main, ["quarantine", verb, *options, *words])


def shown(checkpoint: Path) -> list[dict[str, Any]]:
    """Return what `list --json` prints."""
    found = said(checkpoint, "list", "--json")
    assert found.exit_code == 0, found.output
    return [json.loads(line) for line in found.stdout.splitlines()]


def test_a_decision_is_added_once_listed_and_removed(checkpoint: Path) -> None:
    added = said(checkpoint, "add", ENTRY, "--reason", "it kills")
    assert added.exit_code == 0, added.output
    assert ENTRY in added.stdout
    assert said(checkpoint, "add", ENTRY).exit_code == 2
    (decision,) = shown(checkpoint)
    assert (decision["id"], decision["micro_batch"], decision["reason"], decision["by_hand"]) == (
        ENTRY,
        5,
        "it kills",
        True,
    )
    assert decision["timestamp"] == 5_000
    assert said(checkpoint, "remove", ENTRY).exit_code == 0
    assert shown(checkpoint) == []
    assert [path.name for path in checkpoint.iterdir() if "unfinished" in path.name] == []


def test_partitions_that_have_written_the_micro_batch_are_exempt(
    checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The key that reports the entry is in another one. An entry that all have written is refused."""
    monkeypatch.setattr(HeldCheckpoint, "_written", lambda _: dict.fromkeys(range(PARTITIONS), 6))
    assert said(checkpoint, "add", ENTRY).exit_code == 2
    assert shown(checkpoint) == []
    written = {KEYS[0]: 6, **{number: 5 for number in range(PARTITIONS) if number != KEYS[0]}}
    monkeypatch.setattr(HeldCheckpoint, "_written", lambda _: written)
    assert said(checkpoint, "add", ENTRY).exit_code == 0
    (decision,) = shown(checkpoint)
    assert decision["exempt"] == [KEYS[0]]
    assert partition_of(decision["parent"], decision["number"], PARTITIONS) != KEYS[0]


def test_a_removal_is_refused_when_partitions_have_written_without_the_entry(
    checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert said(checkpoint, "add", ENTRY).exit_code == 0
    monkeypatch.setattr(HeldCheckpoint, "_written", lambda _: {0: 5, 2: 6})
    refused = said(checkpoint, "remove", ENTRY)
    assert refused.exit_code == 2
    assert "state partitions 2 have written micro-batch 5 without" in refused.output
    assert len(shown(checkpoint)) == 1


@pytest.mark.parametrize(
    ("verb", "entry", "sentence"),
    [
        ("add", f"{TOPICS[1]}[2]@11", "is committed"),
        ("add", "other-topic[0]@11", "not an input of this checkpoint"),
        ("add", f"{TOPICS[1]}[2]@12#7", "no entry 7"),
        ("add", "nonsense", "not the id"),
        ("remove", ENTRY, "quarantine list"),
    ],
)
def test_what_cannot_be_done_is_refused_with_the_reason(checkpoint: Path, verb: str, entry: str, sentence: str) -> None:
    refused = said(checkpoint, verb, entry)
    assert refused.exit_code == 2
    assert sentence in refused.output
    assert not (checkpoint / "quarantine.json").exists()
    refused = said(checkpoint.parent, "list")
    assert refused.exit_code == 2
    assert "is not a checkpoint of a job" in refused.output


def test_a_living_driver_is_in_the_way(checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    monkeypatch.setattr(operations, "check_ended", lambda checkpoint, *_: asked.append(checkpoint.id))
    assert said(checkpoint, "add", ENTRY, "--driver-has-ended").exit_code == 0
    assert asked == []
    assert said(checkpoint, "remove", ENTRY).exit_code == 0
    assert asked == ["some-id"]


def test_a_note_without_its_checksum_file_is_read_by_hadoop_as_well(checkpoint: Path) -> None:
    """Hadoop compares a file with its checksum, if there is one."""
    (checkpoint / ".quarantine.json.crc").write_bytes(b"of the former content")
    HeldCheckpoint(JobCheckpoint(str(checkpoint)), "b:1", {}).add(PLACE, "why")
    assert not (checkpoint / ".quarantine.json.crc").exists()
    assert (checkpoint / NOTE).exists()
