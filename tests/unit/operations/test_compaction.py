"""Which input records a backup allows to remove, without Kafka."""

import json
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from streaming.errors import BackupDamaged, BackupRefused
from streaming.kafka import topics
from streaming.kafka.reader import Partition, Span
from streaming.operations import compaction
from streaming.operations.backup import FOLDER, MANIFEST, Manifest, copied
from streaming.operations.compaction import InputRemoval

INPUTS = ("groups", "subscriptions", "topics", "clock")
ROLES = ("group_events", "subscription_events", "topic_events", "clock")
READ = {"groups": {"0": 3}, "subscriptions": {"0": 10, "1": 0}, "topics": {"0": 50}, "clock": {"0": 7}}
SPANS = {
    Partition("groups", 0): Span(0, 3),
    Partition("subscriptions", 0): Span(4, 12),
    Partition("subscriptions", 1): Span(0, 5),
    Partition("subscriptions", 2): Span(0, 1),  # added since then
    Partition("topics", 0): Span(60, 80),
    Partition("clock", 0): Span(0, 6),
}


def identity(checkpoint_id: str = "c") -> dict[str, Any]:
    noted = {role: {"name": name, "id": f"id of {name}"} for role, name in zip(ROLES, INPUTS, strict=True)}
    names = dict(zip(ROLES, INPUTS, strict=True))
    return {"id": checkpoint_id, "topics": noted, **names}


def write(folder: Path, found: dict[str, Any]) -> None:
    """Write a checkpoint after micro-batch 7."""
    (folder / "query/offsets").mkdir(parents=True)
    (folder / "reexpand.json").write_text(json.dumps(found))
    (folder / "query/offsets/7").write_text(f"v1\n{{}}\n{json.dumps(READ)}")


@pytest.fixture
def checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkpoint, with a backup beside it."""
    write(tmp_path / "checkpoint", identity())
    write(tmp_path / "backup" / FOLDER, identity())
    seal(tmp_path / "backup")
    reader = SimpleNamespace(spans=lambda names: {where: SPANS[where] for where in SPANS if where.topic in names})
    monkeypatch.setattr(compaction, "TopicReader", lambda *_: nullcontext(reader))
    monkeypatch.setattr(topics, "ids", lambda _, names, **__: {name: f"id of {name}" for name in names})
    return tmp_path / "checkpoint"


def seal(backup: Path) -> None:
    root = backup / FOLDER
    files = (str(file.relative_to(root)) for file in sorted(root.rglob("*")) if file.is_file())
    found = Manifest("c", "/c", 7, "today", "0", tuple(copied(root / name, None, name) for name in files))
    (backup / MANIFEST).write_bytes(found.dump())


def planned(checkpoint: Path) -> list[InputRemoval]:
    return compaction.plan("b:1", {}, str(checkpoint), checkpoint.with_name("backup"), lambda *_: None)


@pytest.mark.rule("compaction")
def test_only_what_a_backup_of_the_same_checkpoint_has_is_removed(
    checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Up to the end of a partition at most, and nothing of one that the backup does not know."""
    found = {(each.partition.topic, each.partition.number): each.records for each in planned(checkpoint)}
    assert found == {
        ("groups", 0): 3, ("subscriptions", 0): 6, ("subscriptions", 1): 0, ("subscriptions", 2): 0,
        ("topics", 0): 0, ("clock", 0): 6,
    }  # fmt: skip
    removed: list[dict[Partition, int]] = []
    monkeypatch.setattr(topics, "remove_records", lambda _, ends, **__: removed.append(ends))
    compaction.remove("b:1", {}, [each for each in planned(checkpoint) if not each.records])
    assert removed == []
    compaction.remove("b:1", {}, planned(checkpoint))
    assert removed == [{Partition("clock", 0): 6, Partition("groups", 0): 3, Partition("subscriptions", 0): 10}]


def test_a_backup_of_another_checkpoint_or_topic_and_a_damaged_one_are_refused(
    checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = {name: f"id of {name}" for name in INPUTS} | {"topics": "another"}
    monkeypatch.setattr(topics, "ids", lambda *_, **__: ids)
    with pytest.raises(BackupRefused, match="lacks topics: the topic was created again"):
        planned(checkpoint)
    (checkpoint / "reexpand.json").write_text(json.dumps(identity("restored")))
    with pytest.raises(BackupRefused, match=r"is not a backup of \S+checkpoint, but of /c"):
        planned(checkpoint)
    (checkpoint.with_name("backup") / FOLDER / "query/offsets/7").write_text("v1\n{}\n{}")
    with pytest.raises(BackupDamaged, match="its digest differs"):
        planned(checkpoint)
