"""The checkpoint is lost, old, damaged, or used with other settings."""

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.chaos.model import Struck, fault
from tests.chaos.stage import Stage, shortened

OVER = "[start over](delivery.md#starting-over)"
BACKUP = "restore the [backup](delivery.md#backup)"
REFUSED = 2


@contextmanager
def _copy_put_back_afterwards(stage: Stage) -> Iterator[None]:
    """Copy the checkpoint of a job that has ended, and put the copy back in the end."""
    copy = stage.folder / "copy"
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(stage.streams.checkpoint, copy)
    try:
        yield
    finally:
        shutil.rmtree(stage.streams.checkpoint)
        copy.rename(stage.streams.checkpoint)


@contextmanager
def _parts_put_back_afterwards(stage: Stage) -> Iterator[None]:
    """Copy the parts of the state, and put them back in the end, beside those of micro-batches that did without them.

    After such a micro-batch a copy of the whole checkpoint would be an older one.
    """
    parts, copy = stage.streams.checkpoint / "parts", stage.folder / "copy"
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(parts, copy)
    try:
        yield
    finally:
        shutil.copytree(copy, parts, dirs_exist_ok=True)


@fault("checkpoint-deleted", "the checkpoint is deleted", OVER)
def _(stage: Stage) -> Struck:
    proof = stage.strikes(stage.running.kill)
    shutil.rmtree(stage.streams.checkpoint)
    sentence = stage.is_refused(REFUSED, "contains updates of another one")
    stage.starts_anew()
    return Struck(proof, f"refused, exit 2: {shortened(sentence)}; started anew")


@fault("older-copy", "an older copy of the checkpoint is put back", f"put the latest one back, or {OVER}")
def _(stage: Stage) -> Struck:
    stage.stop()
    older = stage.folder / "older"
    shutil.copytree(stage.streams.checkpoint, older)
    stage.start()
    stage.load.go()
    stage.answers()
    proof = stage.strikes(stage.running.kill)
    latest = stage.streams.checkpoint.rename(stage.folder / "latest")
    older.rename(stage.streams.checkpoint)
    sentence = stage.is_refused(REFUSED, "older copy")
    shutil.rmtree(stage.streams.checkpoint)
    latest.rename(stage.streams.checkpoint)
    stage.start()
    return Struck(proof, f"refused, exit 2: {shortened(sentence)}; the latest one put back")


@fault(
    "settings-changed", "starts with other --shuffle-partitions, other --shards, other --route-depth", "set them back"
)
def _(stage: Stage) -> Struck:
    proof = stage.strikes(stage.running.kill)
    said = [
        stage.is_refused(REFUSED, name.strip("-").replace("-", "_"), options=(name, value))
        for name, value in (("--shuffle-partitions", "3"), ("--shards", "p=5"), ("--route-depth", "1"))
    ]
    stage.start()
    return Struck(proof, f"each is refused, exit 2: {shortened(said[0])}")


def _files(stage: Stage, pattern: str) -> list[Path]:
    """Return the files of the checkpoint to damage: all parts, as some are of no more use; else the newest file.

    In a pattern, `{version}` is that of the state.
    """
    version = stage.running.last_commit() + 1
    found = [file for file in stage.streams.checkpoint.glob(pattern.format(version=version)) if file.is_file()]
    assert found, f"the checkpoint has no {pattern}"
    return found if pattern == _PARTS else [max(found, key=lambda file: (file.stat().st_mtime_ns, file.name))]


def _flipped(file: Path) -> None:
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 0x10
    file.write_bytes(data)


def _halved(file: Path) -> None:
    data = file.read_bytes()
    file.write_bytes(data[: len(data) // 2])


def _removed(file: Path) -> None:
    file.unlink()


def _emptied(file: Path) -> None:
    file.write_bytes(b"")


def _garbled(file: Path) -> None:
    """Write something else, as an editor does, which knows of no checksum beside the file."""
    file.write_bytes(b"garbage\n" * 9)
    file.with_name(f".{file.name}.crc").unlink(missing_ok=True)


Damage = Callable[[Path], None]
_PARTS = "parts/**/*"
_CHANGES = "query/state/0/0/{version}.changelog"
_DAMAGES: dict[str, tuple[str, str, Damage]] = {
    "offsets-halved": ("the last file of offsets is cut in half", "query/offsets/[0-9]*", _halved),
    "offsets-emptied": ("the last file of offsets is empty", "query/offsets/[0-9]*", _emptied),
    "commits-garbled": ("the last commit is garbage", "query/commits/[0-9]*", _garbled),
    "metadata-removed": ("Spark's file `metadata` is removed", "query/metadata", _removed),
    "changes-flipped": ("a bit of the last change log of the state is flipped", _CHANGES, _flipped),
    "changes-removed": ("the last change log of the state is removed", _CHANGES, _removed),
    "part-flipped": ("a bit of each part of the state is flipped", _PARTS, _flipped),
    "part-removed": ("the parts of the state are removed", _PARTS, _removed),
    "identity-halved": ("`reexpand.json` is cut in half", "reexpand.json", _halved),
    "identity-removed": ("`reexpand.json` is removed", "reexpand.json", _removed),
    "signature-garbled": ("`signature.json` is garbage", "signature.json", _garbled),
}
"""Damages of files by name: how, which file, and what is done to it."""


def _damage(name: str, how: str, pattern: str, act: Damage) -> None:
    """Register a damage: the job ends with a sentence and writes nothing, and goes on with the copy put back."""

    @fault(name, how, BACKUP)
    def _(stage: Stage) -> Struck:
        proof = stage.strikes(stage.running.kill)
        put_back = _parts_put_back_afterwards if pattern == _PARTS else _copy_put_back_afterwards
        with put_back(stage):
            for file in _files(stage, pattern):
                act(file)
            stage.burst(1)  # somebody must ask for the part
            code, sentence = stage.fails_to_start(pattern.partition("/[")[0].partition("/0")[0].partition("/*")[0])
        stage.start()
        return Struck(proof, f"ends, exit {code}: {shortened(sentence)}; the copy put back")


for _name, (_how, _pattern, _act) in _DAMAGES.items():
    _damage(_name, _how, _pattern, _act)
