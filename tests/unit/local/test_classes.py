"""The jar of the package's own Java classes: compiled once for each of its contents, by the real compiler."""

from __future__ import annotations

import shutil
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from streaming.errors import JarsUnavailable
from streaming.local import classes, jars

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.fixture
def sources(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A copy of the sources, and a cache that has no compiled classes; the libraries come from the real one."""
    libraries = jars.spark()
    monkeypatch.setattr(jars, "spark", lambda: libraries)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    copy = tmp_path / "jvm"
    shutil.copytree(classes.SOURCES, copy)
    monkeypatch.setattr(classes, "SOURCES", copy)
    return copy


def test_every_source_is_in_the_jar(sources: Path) -> None:
    with zipfile.ZipFile(classes.sink()) as jar:
        compiled = {Path(name).stem for name in jar.namelist()}
    assert {source.stem for source in sources.rglob("*.java")} <= compiled


def test_it_is_compiled_once_for_each_content(sources: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = classes.sink()
    content = first.read_bytes()
    with monkeypatch.context() as patch:
        patch.setattr(classes, "run_tool", None)
        assert classes.sink() == first
    source = sources / "reexpand" / "Done.java"
    source.write_text(source.read_text() + "\n// another release\n")
    second = classes.sink()
    assert second != first
    assert first.read_bytes() == content


def test_an_interrupted_compilation_leaves_nothing_in_place(sources: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(target: Path, content: bytes) -> None:
        assert target.name == "reexpand-sink.jar"
        assert b".class" in content
        raise KeyboardInterrupt

    assert sources.exists()
    with monkeypatch.context() as patch:
        patch.setattr(classes, "write_whole", interrupt)
        with pytest.raises(KeyboardInterrupt):
            classes.sink()
    assert not list((sources.parent / "cache").rglob("*.jar"))
    assert classes.sink().exists()


def _break(sources: Path) -> None:
    source = sources / "reexpand" / "Done.java"
    source.write_text(source.read_text().replace("WriterCommitMessage {", "NoSuchMessage {"))


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (_break, r"(?s)cannot be compiled.*Done\.java.*NoSuchMessage"),
        (lambda sources: (sources.parent / "cache").write_text("a file"), "cannot be stored in .*: Not a directory"),
    ],
    ids=["a wrong source", "no folder"],
)
def test_what_goes_wrong_is_told(sources: Path, spoil: Callable[[Path], object], said: str) -> None:
    spoil(sources)
    with pytest.raises(JarsUnavailable, match=said):
        classes.sink()
