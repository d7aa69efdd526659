"""A checkpoint that is no usable folder is one sentence, before anything is started."""

import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner

from streaming.cli import main
from streaming.errors import CheckpointUnusable
from streaming.storage import folder


def file(path: Path) -> Path:
    path.write_bytes(b"")
    return path


def below_a_file(path: Path) -> Path:
    return file(path) / "checkpoint"


def link(path: Path) -> Path:
    path.symlink_to(path.with_name("nowhere"))
    return path


def too_long(path: Path) -> Path:
    path.mkdir()
    return path / ("x" * 300)


@pytest.mark.parametrize("writes", [False, True])
@pytest.mark.parametrize("form", ["{}", "file:{}", "file://{}"])
@pytest.mark.parametrize("make", [file, below_a_file, link, too_long])
def test_only_folders_are_accepted(tmp_path: Path, make: Callable[[Path], Path], form: str, writes: bool) -> None:  # noqa: FBT001 - a case
    location = form.format(make(tmp_path / "place"))
    with pytest.raises(CheckpointUnusable, match=f"the checkpoint {location} cannot be used: .*Give --checkpoint"):
        folder.check(location, writes=writes)


def test_a_new_folder_and_one_that_is_there_can_be_used(tmp_path: Path) -> None:
    """Other file systems are left to their clients."""
    folder.check(str(tmp_path / "a" / "b"), writes=True)
    folder.check(str(tmp_path), writes=True)
    assert list(tmp_path.iterdir()) == []
    folder.check("s3a://bucket/x", writes=True)
    folder.check("hdfs://host/x", writes=True)


def deny(monkeypatch: pytest.MonkeyPatch, allowed: Callable[[Path, int], bool], *, read_only: bool) -> None:
    """Set the permissions of a user who is not root."""
    monkeypatch.setattr(os, "access", lambda path, mode: allowed(Path(path), mode))
    monkeypatch.setattr(os, "statvfs", lambda _: SimpleNamespace(f_flag=os.ST_RDONLY if read_only else 0))


@pytest.mark.parametrize(("read_only", "why"), [(True, "Read-only file system"), (False, "Permission denied")])
@pytest.mark.parametrize("which", ["", "new", "query"])
def test_a_folder_that_cannot_be_written_can_be_read_at_most(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    which: str,
    read_only: bool,  # noqa: FBT001 - a case
    why: str,
) -> None:
    (tmp_path / "query").mkdir()
    closed = tmp_path / "query" if which == "query" else tmp_path
    deny(monkeypatch, lambda path, mode: not (path == closed and mode & os.W_OK), read_only=read_only)
    place = tmp_path / "new" if which == "new" else tmp_path
    with pytest.raises(CheckpointUnusable, match=why):
        folder.check(str(place), writes=True)
    folder.check(str(place), writes=False)
    deny(monkeypatch, lambda *_: False, read_only=False)
    with pytest.raises(CheckpointUnusable, match="Permission denied"):
        folder.check(str(tmp_path), writes=False)


KAFKA = ("--bootstrap-servers", "127.0.0.1:1")
VERBS: list[Callable[[str, str], tuple[str, ...]]] = [
    lambda place, _: ("run", *KAFKA, "--checkpoint", place),
    lambda place, _: ("verify", *KAFKA, "--checkpoint", place),
    lambda place, _: ("rebuild", *KAFKA, "--without-former", "--checkpoint", place),
    lambda place, other: ("rebuild", *KAFKA, "--former", place, "--checkpoint", other),
    lambda place, other: ("backup", "--checkpoint", place, other),
    lambda place, other: ("restore", "--checkpoint", f"{place}/below", other),
    lambda place, other: ("compact-inputs", *KAFKA, "--checkpoint", place, "--backup", other, "--yes"),
]


@pytest.mark.parametrize("verb", VERBS, ids=lambda verb: " ".join(verb("", "")[:1]))
def test_each_verb_reports_an_unusable_checkpoint_in_one_sentence(
    tmp_path: Path, verb: Callable[[str, str], tuple[str, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "other").mkdir()
    place = str(file(tmp_path / "place"))
    started: list[Any] = []
    for start in ("build", "start_java"):
        monkeypatch.setattr(f"streaming.spark.session.{start}", lambda *_: started.append(1))
    done = CliRunner().invoke(main, verb(place, str(tmp_path / "other")))
    assert done.exit_code == 2, done.output
    (line,) = done.stderr.strip().splitlines()
    assert f"{place}" in line
    assert "cannot be used" in line
    assert started == []
