"""The launch of Spark's JVM: what shell, notebook and current folder change in it, and the priority of its compiler."""

import os
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path

import pyspark
import pytest

from streaming.config import load
from streaming.errors import SparkUnavailable
from streaming.local import jars
from streaming.local.java import find_java
from streaming.spark import launch
from streaming.spark.session import options

NAMES = ("PYTHONSAFEPATH", "PYSPARK_PYTHON", "PYSPARK_SUBMIT_ARGS", "SPARK_HOME")


def prepared(*, local: bool = True) -> dict[str, str]:
    launch.prepare(local=local)
    return {name: os.environ[name] for name in NAMES if name in os.environ}


def test_workers_import_nothing_from_the_current_folder() -> None:
    assert prepared() == {"PYTHONSAFEPATH": "1", "PYSPARK_PYTHON": sys.executable}
    settings = load({"bootstrap_servers": "b:1", "checkpoint": "/c"})
    assert options(settings, 1)["spark.executorEnv.PYTHONSAFEPATH"] == "1"


@pytest.mark.parametrize(("local", "python"), [(True, sys.executable), (False, "/opt/other")])
def test_a_local_job_works_in_its_own_python(
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    local: bool,  # noqa: FBT001 - a case
    python: str,
) -> None:
    """On a cluster the variable names the Python of the machines there."""
    monkeypatch.setenv("PYSPARK_PYTHON", "/opt/other")
    assert prepared(local=local)["PYSPARK_PYTHON"] == python
    assert ("/opt/other" in caplog.text) == local


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("--master yarn --packages a:b:1 pyspark-shell", "pyspark-shell"),
        ("--packages a:b:1 --conf spark.password=hunter2", "--conf spark.password=hunter2 pyspark-shell"),
        ("", "pyspark-shell"),
        ("pyspark-shell", "pyspark-shell"),
        ("--conf spark.x=1 --conf 'spark.y=a b' pyspark-shell", "--conf spark.x=1 --conf 'spark.y=a b' pyspark-shell"),
        ("--conf 'spark.x", "pyspark-shell"),
        ("--conf spark.x=1", "--conf spark.x=1 pyspark-shell"),
    ],
)
def test_arguments_of_a_notebook_are_not_followed(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, given: str, kept: str
) -> None:
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", given)
    assert prepared()["PYSPARK_SUBMIT_ARGS"] == kept
    assert ("PYSPARK_SUBMIT_ARGS" in caplog.text) == (given != kept)
    assert "hunter2" not in caplog.text


def spark_home(folder: Path, release: str) -> str:
    (folder / "bin").mkdir()
    (folder / "bin" / "spark-submit").touch()
    (folder / "jars").mkdir()
    (folder / "jars" / f"spark-core_2.13-{release}.jar").touch()
    return str(folder)


@pytest.mark.parametrize(
    ("release", "refusal"),
    [
        ("3.5.1", "SPARK_HOME is {home}, a Spark 3.5.1. Unset it to use the Spark"),
        (None, "SPARK_HOME is {home}, where no Spark is"),
        ("", "SPARK_HOME is empty, where no Spark is"),
        (pyspark.__version__, None),
    ],
)
def test_only_a_spark_of_this_release_is_taken(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, release: str | None, refusal: str | None
) -> None:
    home = "" if release == "" else spark_home(tmp_path, release) if release else "/nowhere"
    monkeypatch.setenv("SPARK_HOME", home)
    with pytest.raises(SparkUnavailable, match=refusal.format(home=home)) if refusal else nullcontext():
        assert prepared()["SPARK_HOME"] == home


def test_the_launcher_finds_its_classes_first(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Options of the user stay, and a path that the shell would not read as one word is not used."""
    monkeypatch.delenv("SPARK_LAUNCHER_OPTS", raising=False)
    prepared()
    options = os.environ["SPARK_LAUNCHER_OPTS"].split()
    assert Path(options[-1].removeprefix("-Xbootclasspath/a:")).is_file()
    for folder in ("with space", "a[b]"):
        monkeypatch.delenv("SPARK_LAUNCHER_OPTS")
        (tmp_path / folder).mkdir()
        home = spark_home(tmp_path / folder, pyspark.__version__)
        Path(home, "jars", "spark-launcher_2.13-4.jar").touch()
        monkeypatch.setenv("SPARK_HOME", home)
        prepared()
        assert "SPARK_LAUNCHER_OPTS" not in os.environ
        monkeypatch.setenv("SPARK_LAUNCHER_OPTS", "-Xmx64m")
        prepared()
        assert os.environ["SPARK_LAUNCHER_OPTS"] == "-Xmx64m"


def test_javas_optimizing_compiler_yields_to_its_other_threads() -> None:
    """It takes a third of the CPU time of a start."""
    server = next(jar for jar in jars.pyspark() if jar.name.startswith("py4j-"))
    command = [str(find_java().executable), "-cp", str(server), "py4j.GatewayServer", "--die-on-broken-pipe", "0"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as java:
        assert java.stdout
        assert java.stdin
        java.stdout.readline()  # its threads run
        launch._let_compiler_yield(java.pid)
        niceness: dict[str, set[int]] = {}
        for thread in Path(f"/proc/{java.pid}/task").iterdir():
            name = (thread / "comm").read_text()[:2]
            niceness.setdefault(name, set()).add(os.getpriority(os.PRIO_PROCESS, int(thread.name)))
        java.stdin.close()
    own = os.getpriority(os.PRIO_PROCESS, 0)
    assert niceness.pop("C2") == {own + launch._COMPILER_NICENESS}
    assert set.union(*niceness.values()) == {own}


def test_a_running_jvm_has_the_options_of_its_start_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """A session with others, such as that of another checkpoint, has to set them."""
    monkeypatch.setattr(launch, "_gateway", lambda: "running")
    monkeypatch.setattr(launch, "_confs", [{"spark.x": "1"}])
    assert launch.start({"spark.x": "1"})
    assert not launch.start({"spark.x": "2"})
