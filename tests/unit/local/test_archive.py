"""The archive of Java classes: its name, and when a JVM starts with it."""

import os
import subprocess
from pathlib import Path

import pytest

from streaming.errors import JarsUnavailable
from streaming.local import classes
from streaming.local.java import environment, find_java

JARS = [Path("/jars/a.jar"), Path("/jars/b.jar")]
LAUNCH = 'Spark Command: {java} -cp /no/such.jar:/none/* -Dx="a b" org.apache.spark.deploy.SparkSubmit\n'


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    for name, value in environment(find_java()).items():
        monkeypatch.setenv(name, value)
    return tmp_path


def test_a_jvm_starts_with_an_archive_that_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    assert classes.archive_options(JARS) == []
    file = classes.archive_file(find_java().home, JARS)
    file.parent.mkdir(parents=True)
    file.touch()
    assert classes.archive_options(JARS)[:2] == [f"-XX:SharedArchiveFile={file}", "-Xshare:auto"]
    monkeypatch.delenv("JAVA_HOME")
    assert classes.archive_options(JARS) == []


def test_each_java_has_an_archive_of_its_own(tmp_path: Path) -> None:
    """Also a later release of the same Java in the same folder."""
    names = {classes.archive_file(tmp_path, JARS)}
    for text in ('JAVA_VERSION="21.0.8"', 'JAVA_VERSION="21.0.9"'):
        (tmp_path / "release").write_text(text)
        names.add(classes.archive_file(tmp_path, JARS))
    names.add(classes.archive_file(tmp_path / "other", JARS))
    names.add(classes.archive_file(tmp_path, JARS[:1]))
    assert len(names) == 5


def test_what_java_says_is_shown_and_nothing_is_left(cache: Path, tmp_path: Path) -> None:
    """An archive appears whole or not at all. A cache that cannot be written is named."""
    log = LAUNCH.format(java=find_java().executable)
    file = classes.archive_file(find_java().home, JARS)
    with pytest.raises(JarsUnavailable, match=r"cannot create an archive .*\n    .+"):
        classes.make_archive(file, tmp_path / "no-list", log)
    (lock,) = (cache / "reexpand" / "classes").iterdir()
    lock.unlink()
    lock.parent.rmdir()
    lock.parent.touch()
    with pytest.raises(JarsUnavailable, match=f"cannot be stored in {cache}/reexpand/classes: "):
        classes.make_archive(file, tmp_path / "list", log)


def make_small(folder: Path) -> Path:
    """Make an archive of one class, and return its path."""
    loaded = folder / "list"
    loaded.write_text("java/lang/Object id: 0\n")
    log = f"Spark Command: {find_java().executable} -cp {folder} Main\n"
    file = classes.archive_file(find_java().home, JARS)
    classes.make_archive(file, loaded, log)
    assert file.stat().st_size > 0
    return file


def test_archives_that_no_job_has_used_for_months_are_removed(tmp_path: Path) -> None:
    file = make_small(tmp_path)
    unused, used, other = (file.with_name(name) for name in ("unused.jsa", "used.jsa", "other"))
    for each in (file, unused, used, other):
        each.touch()
        os.utime(each, (0, 0))
    used.touch()
    make_small(tmp_path)
    assert file.exists()
    assert used.exists()
    assert other.exists()
    assert not unused.exists()


def test_a_start_counts_as_a_use_of_its_archive(tmp_path: Path) -> None:
    file = make_small(tmp_path)
    os.utime(file, (0, 0))
    assert classes.archive_options(JARS)
    assert file.stat().st_mtime > 0


def test_an_archive_of_other_classes_stops_no_java(tmp_path: Path) -> None:
    """It says nothing about it either."""
    java = str(find_java().executable)
    make_small(tmp_path)
    command = [java, *classes.archive_options(JARS), "-cp", "/elsewhere", "-version"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "archive" not in done.stderr + done.stdout
