"""Which Java is taken, and what is said about one that cannot be."""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING

import pytest

from streaming.errors import JavaUnusable
from streaming.local.java import environment, find_java, parse_version

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    FakeJava = Callable[..., Path]


@pytest.fixture(autouse=True)
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A machine without any Java of its own, and with an empty cache."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def fake_java(tmp_path: Path) -> FakeJava:
    """Makes a Java that answers with this version, or that fails."""

    def make(version: str, *, exit_code: int = 0) -> Path:
        home = tmp_path / f"java-{version}"
        (home / "bin").mkdir(parents=True)
        script = home / "bin" / "java"
        says = f'    java.home = {home}\nopenjdk version "{version}"'
        script.write_text(f"#!/bin/sh\necho '{says}' >&2\nexit {exit_code}\n")
        script.chmod(0o755)
        return home

    return make


@pytest.mark.parametrize(
    ("text", "major"),
    [
        ('java version "1.8.0_452"', 8),
        ('openjdk version "11.0.2" 2019-01-15', 11),
        ('openjdk version "17.0.19" 2026-04-21', 17),
        ('openjdk version "21" 2023-09-19', 21),
        ('openjdk version "25-ea" 2025-09-16', 25),
        ('IMPLEMENTOR="Any"\nJAVA_VERSION="21.0.8"\n', 21),
        ("    java.specification.version = 17\n", 17),
        ("no version here", None),
        ("", None),
    ],
)
def test_the_major_version_is_read_from_any_answer(text: str, major: int | None) -> None:
    assert parse_version(text) == major


@pytest.mark.parametrize(
    ("version", "exit_code", "complaint"),
    [
        ("11.0.2", 0, "a Java 11, which Spark does not support"),
        ("26", 0, "a Java 26, which Spark does not support"),
        ("17.0.19", 1, "does not run"),
        ("unknown", 0, "does not run"),
        ("gone", None, "but there is no "),
    ],
)
def test_a_java_home_that_cannot_be_used_gets_one_sentence_about_it(
    fake_java: FakeJava,
    *,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    version: str,
    exit_code: int | None,
    complaint: str,
) -> None:
    """The sentence says what JAVA_HOME is, what is wrong with it and what to do; nothing else is tried silently."""
    home = tmp_path / version if exit_code is None else fake_java(version, exit_code=exit_code)
    monkeypatch.setenv("JAVA_HOME", str(home))
    with pytest.raises(JavaUnusable) as caught:
        find_java()
    text = str(caught.value)
    assert text.startswith(f"JAVA_HOME is {home}, ")
    assert complaint in text
    assert "Unset JAVA_HOME" in text
    assert "\n" not in text


@pytest.mark.parametrize("variable", ["JAVA_HOME", "PATH"])
@pytest.mark.parametrize("version", ["17.0.19", "21.0.8", "25.0.3"])
def test_a_supported_java_is_taken(
    fake_java: FakeJava, monkeypatch: pytest.MonkeyPatch, variable: str, version: str
) -> None:
    """What the user chose wins over everything else.

    A home is what the program on the PATH says itself, since it may be a link or a script.
    """
    home = fake_java(version)
    monkeypatch.setenv(variable, str(home if variable == "JAVA_HOME" else home / "bin"))
    java = find_java()
    assert (java.home, java.major, java.bundled) == (home, int(version[:2]), False)


@pytest.mark.parametrize(("version", "exit_code"), [("11.0.2", 0), ("26.0.1", 0), ("17.0.19", 1)])
def test_another_java_on_the_path_is_passed_over(
    fake_java: FakeJava, monkeypatch: pytest.MonkeyPatch, version: str, exit_code: int
) -> None:
    """A Java that happens to be there, and is of no use, is no reason to stop."""
    monkeypatch.setenv("PATH", str(fake_java(version, exit_code=exit_code) / "bin"))
    assert find_java().bundled


def test_the_bundled_java_starts_with_what_spark_asks_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It starts although it lacks the module, and gets every other argument as it was."""
    java = find_java()
    assert java.bundled
    assert java.home.is_relative_to(tmp_path / "cache" / "reexpand")
    answer = subprocess.run(
        [
            java.executable,
            "--add-modules=jdk.incubator.vector",
            "-Da.property=two  words 'quoted' $HOME",
            "-XshowSettings:properties",
            "-version",
        ],
        capture_output=True,
        text=True,
        check=True,
        env={"PATH": os.defpath},
    ).stderr
    assert "a.property = two  words 'quoted' $HOME" in answer
    assert parse_version(answer) == java.major == 21
    for name, value in environment(java).items():  # a child does not take our JAVA_HOME for one that the user chose
        monkeypatch.setenv(name, value)
    assert find_java() == java


@pytest.mark.parametrize("modules", ["java.base jdk.net", "java.base jdk.incubator.vector"])
def test_a_java_of_the_users_is_wrapped_too(
    fake_java: FakeJava, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, modules: str
) -> None:
    """It stays the one that is run, and is wrapped once however often it is found.

    Without the module it would not start, and with it warn at each start.
    """
    home = fake_java("21.0.8")
    (home / "release").write_text(f'JAVA_VERSION="21.0.8"\nMODULES="{modules}"\n')
    monkeypatch.setenv("JAVA_HOME", str(home))
    java = find_java()
    assert java.home.is_relative_to(tmp_path / "cache")
    assert f"exec {home}/bin/java" in java.executable.read_text()
    monkeypatch.setenv("JAVA_HOME", str(java.home))
    assert find_java() == java


def test_a_cache_that_cannot_be_written_gets_one_sentence_about_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.raises(JavaUnusable, match=r"cannot be set up in .*: Not a directory\. Set XDG_CACHE_HOME"):
        find_java()
