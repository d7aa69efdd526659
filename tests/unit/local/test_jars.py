"""The cache of jars: whole or not there, however a download ends; and free once it is there."""

from __future__ import annotations

import hashlib
import re
import threading
import time
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from streaming.errors import JarsUnavailable
from streaming.local import jars

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

FILES = {"spark": ["a-1.jar", "b-2.jar"], "kafka": ["c-3.jar"]}


class FakeIvy:
    """Puts small files where Ivy would put jars, and counts its runs."""

    def __init__(self) -> None:
        self.runs: list[list[str]] = []
        self.before_the_last_file: Callable[[Path], object] = lambda _: None

    def __call__(self, sets: Sequence[str], target: Path, *_: object) -> None:
        self.runs.append(list(sets))
        for name in sets:
            (target / name).mkdir()
            *most, last = FILES[name]
            for file in most:
                (target / name / file).write_text(file)
            self.before_the_last_file(target)
            (target / name / last).write_text(last)


@pytest.fixture
def ivy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FakeIvy:
    """A fake Ivy, an empty cache, and the checksums of what the fake brings."""
    checksums = tmp_path / "jars.sha256"
    paths = [(name, file) for name, files in FILES.items() for file in files]
    lines = [f"{hashlib.sha256(file.encode()).hexdigest()}  {name}/{file}\n" for name, file in paths]
    checksums.write_text("".join(lines))
    fake = FakeIvy()
    monkeypatch.setattr(jars, "LOCAL", jars.JarSets(jars.LOCAL.ivy_file, checksums, tuple(FILES)))
    monkeypatch.setattr(jars.JarSets, "_run_ivy", fake)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return fake


def names(paths: list[Path]) -> list[str]:
    return [path.name for path in paths if path.exists()]


def test_missing_sets_are_fetched_once(ivy: FakeIvy) -> None:
    """What is in the cache costs neither a Java nor a request. One run of Ivy serves all missing sets.

    Someone who tidied up the cache does not meet a missing class at run time.
    """
    for _ in range(2):
        assert names(jars.spark()) == FILES["spark"]
    for _ in range(2):
        jars.fetch()
    assert ivy.runs == [["spark"], ["kafka"]]
    jars.spark()[0].unlink()
    assert names(jars.spark()) == FILES["spark"]
    assert ivy.runs[2:] == [["spark"]]


def test_a_set_is_there_as_a_whole_or_not_at_all(ivy: FakeIvy, tmp_path: Path) -> None:
    """An interrupt between two files is as if nothing had been tried, and a killed download leaves nothing for long."""
    leftover = tmp_path / "cache" / "reexpand" / "jars" / ".partial-killed" / "spark"
    seen: list[bool] = []

    def interrupt(_: Path) -> None:
        seen.append((jars.LOCAL.folder / "spark").exists())
        raise KeyboardInterrupt

    ivy.before_the_last_file = interrupt
    with pytest.raises(KeyboardInterrupt):
        jars.spark()
    assert seen == [False]
    assert not list((tmp_path / "cache").rglob("*.jar"))
    leftover.mkdir(parents=True)
    (leftover / "a-1.jar").write_text("half of")
    ivy.before_the_last_file = lambda _: None
    assert names(jars.spark()) == FILES["spark"]
    assert not leftover.exists()


def test_concurrent_downloads_become_one(ivy: FakeIvy) -> None:
    """Whoever comes second waits, and finds everything there."""
    ivy.before_the_last_file = lambda _: time.sleep(0.2)
    results: list[list[str]] = []
    threads = [threading.Thread(target=lambda: results.append(names(jars.kafka()))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [FILES["kafka"]] * 8
    assert ivy.runs == [["kafka"]]


@pytest.mark.parametrize(
    ("meddle", "named"),
    [
        (lambda target: (target / "spark" / "a-1.jar").write_text("other"), "a-1.jar"),
        (lambda target: (target / "spark" / "a-1.jar").unlink(), "a-1.jar"),
        (lambda target: (target / "spark" / "z-9.jar").touch(), "z-9.jar"),
    ],
    ids=["another content", "a file less", "a file more"],
)
def test_what_is_not_expected_is_refused(
    ivy: FakeIvy, tmp_path: Path, meddle: Callable[[Path], object], named: str
) -> None:
    """Only the very files that this release was tested with get into the cache."""
    ivy.before_the_last_file = meddle
    with pytest.raises(JarsUnavailable, match=re.escape(f"tested with: {named}. Remove ")):
        jars.spark()
    assert not list((tmp_path / "cache").rglob("*.jar"))


@pytest.mark.usefixtures("ivy")
def test_a_cache_that_cannot_be_written_gets_one_sentence_about_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.raises(
        JarsUnavailable, match=r"cannot be stored in .*: Not a directory\. Free some space there, or set XDG"
    ):
        jars.spark()


def test_without_a_network_the_end_of_the_log_says_why(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The real Ivy, with a proxy that is not there."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:9")
    monkeypatch.setenv("no_proxy", "")
    with pytest.raises(JarsUnavailable, match=r"(?s)jars of spark cannot be downloaded; .*ConnectException"):
        jars.spark()


@pytest.mark.parametrize("sets", [jars.LOCAL, jars.ROCKETMQ, jars.S3], ids=["local", "rocketmq", "s3"])
def test_the_checksums_belong_to_the_versions(sets: jars.JarSets) -> None:
    """They were written after the last change of the Ivy file. The connector belongs to the PySpark here."""
    listed = [Path(line.split()[1]).name for line in sets.checksums.read_text().splitlines()]
    wanted = re.findall(r'name="([^"]+)" rev="([^"]+)"', sets.ivy_file.read_text())
    assert len(wanted) >= 3
    assert [f"{name}-{rev}.jar" for name, rev in wanted if f"{name}-{rev}.jar" not in listed] == []
    assert sets is not jars.LOCAL or ("spark-sql-kafka-0-10_2.13", version("pyspark")) in wanted
