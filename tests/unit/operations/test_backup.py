"""Copies of a checkpoint that is only files: what is copied, in which order, and what is refused."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from zipfile import ZipFile

import pytest

from streaming.errors import BackupDamaged, BackupFailed, BackupRefused
from streaming.operations import backup as copying
from streaming.operations.backup import FOLDER, MANIFEST, CopiedFile, Manifest
from streaming.storage.journal import Journal
from tests.support.states import Memory

LAST = 7
"""Last committed micro-batch of the checkpoint of a test."""

Change = Callable[[], None]


def write(file: Path, content: bytes = b"x") -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(content)


def part(seed: int = 0) -> tuple[str, bytes]:
    """Name and content of a part of two segments, each some 20,000 bytes long."""
    memory = Memory()
    change = [f"{seed}" + "y" * 20_000]
    journal = Journal(memory).append(change, lambda: change)
    journal.append(change, list, 20_000)
    return max(memory.items(), key=lambda each: len(each[1]))


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """A checkpoint of a job that is in micro-batch 8."""
    root = tmp_path / "checkpoint"
    for log, last in (("offsets", LAST + 1), ("commits", LAST)):
        for number in range(last + 1):
            write(root / "query" / log / str(number), f"{log} {number}".encode())
            write(root / "query" / log / f".{number}.crc")
    write(root / "query/metadata")
    write(root / "query/sources/0/0")
    write(root / "query/state/0/_metadata/metadata")
    for partition in range(2):
        folder = root / "query/state/0" / str(partition)
        write(folder / "_metadata/schema")
        for number in range(1, LAST + 3):
            write(folder / f"{number}.changelog", f"{partition} {number}".encode())
        write(folder / "SSTs/1-a.sst", b"12345")
        write(folder / "SSTs/2-b.sst", b"later")
        for number, name in ((4, "1-a.sst"), (LAST + 2, "2-b.sst")):
            with ZipFile(folder / f"{number}.zip", "w") as archive:
                files = [{"localFileName": "1.sst", "dfsSstFileName": name, "sizeBytes": 5}]
                archive.writestr("metadata", "v1\n" + json.dumps({"sstFiles": files}))
    name, data = part()
    write(root / "parts/abc-0" / name, data)
    write(root / "parts/abc-0" / f"{name}.123", b"half")
    write(root / "signature.json", b"{}")
    write(root / "reexpand.json", json.dumps({"shuffle_partitions": 2, "id": "former", "clock": "c"}).encode())
    return root


def silent(_what: str, _done: int, _total: int | None) -> None:
    """Progress that nobody sees."""


def make(checkpoint: Path) -> Path:
    destination = checkpoint.with_name("backup")
    copying.backup(checkpoint, destination, silent)
    return destination


def names(folder: Path) -> set[str]:
    return {file.relative_to(folder).as_posix() for file in folder.rglob("*") if file.is_file()}


def test_what_the_last_committed_micro_batch_needs_is_copied_and_nothing_else(checkpoint: Path) -> None:
    backup = make(checkpoint)
    state = {
        f"query/state/0/{partition}/{name}"
        for partition in range(2)
        for name in ("_metadata/schema", "4.zip", "SSTs/1-a.sst", *(f"{n}.changelog" for n in range(5, LAST + 2)))
    }
    logs = {f"query/{log}/{number}" for log in ("offsets", "commits") for number in (LAST - 1, LAST)}
    rest = {"query/metadata", "query/sources/0/0", "query/state/0/_metadata/metadata", f"parts/abc-0/{part()[0]}"}
    copied = state | logs | rest | {"signature.json", "reexpand.json"}
    assert names(backup) == {MANIFEST, *(f"{FOLDER}/{name}" for name in copied)}
    found = Manifest.read(backup)
    assert {file.path for file in found.files} == copied
    assert (found.micro_batch, found.checkpoint_id) == (LAST, "former")
    assert not checkpoint.with_name("backup.unfinished").exists()


def interrupted(monkeypatch: pytest.MonkeyPatch, at: str, change: Change) -> None:
    """Let something happen right before a file is copied for the first time."""
    former, due = copying.copied, [change]

    def copied(source: Path, target: Path | None, name: str) -> CopiedFile:
        if name.startswith(at) and due:
            due.pop()()
        return former(source, target, name)

    monkeypatch.setattr(copying, "copied", copied)
    monkeypatch.setattr(copying, "_PAUSE_SECONDS", 0)


def goes_on(checkpoint: Path, last: int) -> Change:
    """The job goes on to another micro-batch, and its query forgets the former ones."""

    def change() -> None:
        shutil.rmtree(checkpoint / "query/state/0/0")
        write(checkpoint / "query/state/0/0/_metadata/schema")
        for number in range(1, last + 2):
            for log in ("offsets", "commits") if number <= last else ():
                write(checkpoint / "query" / log / str(number), b"new")
            for partition in range(2):
                write(checkpoint / f"query/state/0/{partition}" / f"{number}.changelog", b"new")

    return change


@pytest.mark.rule("backup")
@pytest.mark.parametrize(("at", "last"), [("query/state/0/0/4.zip", 9), ("parts/", LAST + 101)])
def test_a_job_that_goes_on_too_far_meanwhile_leads_to_a_later_micro_batch(
    checkpoint: Path, monkeypatch: pytest.MonkeyPatch, at: str, last: int
) -> None:
    """Since files are gone, or 100 micro-batches later the job may have removed a part that the copied states need."""
    interrupted(monkeypatch, at, goes_on(checkpoint, last))
    backup = make(checkpoint)
    assert Manifest.read(backup).micro_batch == last
    assert "checkpoint/query/commits/7" not in names(backup)


def test_parts_that_the_job_removes_within_that_time_are_not_needed(
    checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    needless = checkpoint / "parts/abc-0" / part()[0]
    name, data = part(1)
    write(checkpoint / "parts/abc-0" / name, data)
    interrupted(monkeypatch, "parts/", needless.unlink)
    monkeypatch.setattr(copying, "_ATTEMPTS", 1)
    assert [name for name in names(make(checkpoint)) if "parts" in name] == [f"checkpoint/parts/abc-0/{name}"]


def test_a_copy_that_cannot_be_completed_leaves_nothing(checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copying, "_PAUSE_SECONDS", 0)
    (checkpoint / "query/state/0/1/6.changelog").unlink()
    with pytest.raises(BackupFailed, match="lacks the changes of version 6, 5 times in a row"):
        make(checkpoint)
    assert {each.name for each in checkpoint.parent.iterdir()} == {"checkpoint"}


@pytest.mark.parametrize("place", [-1, -30, 20_050, 100], ids=["end", "second digest", "second", "length"])
def test_a_damaged_part_is_named(checkpoint: Path, place: int) -> None:
    (file,) = (checkpoint / "parts/abc-0").glob(part()[0])
    content = bytearray(part()[1])
    if place == 100:
        del content[place]
    else:
        content[place] ^= 1
    file.write_bytes(content)
    with pytest.raises(BackupDamaged, match=f"{file.name} is damaged"):
        make(checkpoint)


def test_what_cannot_be_copied_is_refused(checkpoint: Path, tmp_path: Path) -> None:
    write(checkpoint / "query/state/0/1/SSTs/1-a.sst", b"1234")
    with pytest.raises(BackupDamaged, match=r"1-a\.sst is damaged"):
        make(checkpoint)
    for place, target, said in ((tmp_path, tmp_path / "b", "is not a checkpoint"), (checkpoint, tmp_path, "exists")):
        with pytest.raises(BackupRefused, match=said):
            copying.backup(place, target, silent)
    with pytest.raises(BackupRefused, match="URI"):
        copying.local("s3://bucket/checkpoint")
    shutil.rmtree(checkpoint / "query/commits")
    with pytest.raises(BackupRefused, match="not committed a micro-batch"):
        make(checkpoint)


def test_a_restored_checkpoint_has_the_same_files_and_another_name_in_kafka(checkpoint: Path) -> None:
    """By its name the broker knows what is written, also by micro-batches behind the copy."""
    backup = make(checkpoint)
    folder = checkpoint.with_name("restored")
    manifest, replaced = copying.restore(backup, folder, silent)
    assert replaced is None
    assert names(folder) == {file.path for file in manifest.files}
    for name in names(folder) - {"reexpand.json"}:
        assert (folder / name).read_bytes() == (checkpoint / name).read_bytes()
    found, former = (json.loads((each / "reexpand.json").read_bytes()) for each in (folder, checkpoint))
    assert {**found, "id": "former"} == former
    assert found["id"] != "former"


def test_a_checkpoint_that_is_there_is_kept(checkpoint: Path) -> None:
    backup = make(checkpoint)
    before = names(checkpoint)
    with pytest.raises(BackupRefused, match="--replace"):
        copying.restore(backup, checkpoint, silent)
    assert names(checkpoint) == before
    _, former = copying.restore(backup, checkpoint, silent, replace=True)
    assert former is not None
    assert names(former) == before
    assert "query/offsets/8" not in names(checkpoint)


@pytest.mark.parametrize("name", ["reexpand.json", "query/state/0/1/4.zip", "query/commits/7"])
@pytest.mark.parametrize("damage", [lambda file: file.unlink(), lambda file: file.write_bytes(b"other")])
def test_a_damaged_backup_touches_nothing(checkpoint: Path, name: str, damage: Callable[[Path], None]) -> None:
    backup = make(checkpoint)
    damage(backup / FOLDER / name)
    before = names(checkpoint)
    with pytest.raises(BackupDamaged, match=f"{name} (cannot be read|is damaged)"):
        copying.restore(backup, checkpoint, silent, replace=True)
    assert names(checkpoint) == before


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"format": 9}, "another release"),
        ({"files": [{"path": "../x", "size": 1, "sha256": ""}]}, "outside"),
        ({"files": 3}, "cannot be read"),
    ],
)
def test_a_manifest_that_cannot_be_trusted(checkpoint: Path, change: dict[str, object], said: str) -> None:
    file = make(checkpoint) / MANIFEST
    file.write_text(json.dumps({**json.loads(file.read_text()), **change}))
    with pytest.raises(BackupDamaged, match=said):
        Manifest.read(file.parent)
    file.unlink()
    with pytest.raises(BackupDamaged, match="not a backup"):
        Manifest.read(file.parent)


def test_the_root_of_a_file_system_is_not_restored(checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It cannot be renamed; this is told before anything is copied."""
    backup = make(checkpoint)
    monkeypatch.setattr(Path, "is_mount", lambda path: path == checkpoint)
    with pytest.raises(BackupRefused, match="is the root of a mounted file system"):
        copying.restore(backup, checkpoint, silent, replace=True)
    assert {each.name for each in checkpoint.parent.iterdir()} == {"backup", "checkpoint"}
