"""What the shell, a notebook and the current folder have in the environment of a job's Spark."""

import os
import sys
from pathlib import Path

import pyspark
import pytest

from streaming.config import load
from streaming.errors import SparkUnavailable
from streaming.spark import session
from streaming.spark.checkpoint import for_java
from streaming.spark.session import options

NAMES = ("PYTHONSAFEPATH", "PYSPARK_PYTHON", "PYSPARK_SUBMIT_ARGS", "SPARK_HOME")


def prepared(*, local: bool = True) -> dict[str, str]:
    session.prepare(local=local)
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


def spark_home(folder: Path, release: str) -> str:
    (folder / "bin").mkdir()
    (folder / "bin" / "spark-submit").touch()
    (folder / "jars").mkdir()
    (folder / "jars" / f"spark-core_2.13-{release}.jar").touch()
    return str(folder)


def test_a_spark_of_another_release_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SPARK_HOME", spark_home(tmp_path, "3.5.1"))
    with pytest.raises(SparkUnavailable, match=f"SPARK_HOME is {tmp_path}, a Spark 3.5.1. Unset it to use the Spark"):
        prepared()


@pytest.mark.parametrize("home", ["", "/nowhere"])
def test_a_folder_without_spark_is_refused(monkeypatch: pytest.MonkeyPatch, home: str) -> None:
    monkeypatch.setenv("SPARK_HOME", home)
    with pytest.raises(SparkUnavailable, match=f"SPARK_HOME is {home or 'empty'}, where no Spark is"):
        prepared()


def test_a_spark_of_this_release_is_taken(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SPARK_HOME", spark_home(tmp_path, pyspark.__version__))
    assert prepared()["SPARK_HOME"] == str(tmp_path)


@pytest.mark.parametrize(
    ("checkpoint", "master", "is_set"),
    [
        ("/c", None, True),
        ("file:/c", "local[2]", True),
        ("hdfs:///c", None, False),
        ("s3a://bucket/c", None, False),
        ("/c", "spark://master:7077", False),
    ],
)
def test_a_local_checkpoint_of_a_local_job_is_local(checkpoint: str, master: str | None, is_set: bool) -> None:  # noqa: FBT001 - a case
    """Other jobs need the file system of their cluster, for themselves or for their checkpoint."""
    found = options(load({"bootstrap_servers": "b:1", "checkpoint": checkpoint, "master": master}), 1)
    assert found.get("spark.hadoop.fs.defaultFS") == ("file:///" if is_set else None)


@pytest.mark.parametrize(
    ("checkpoint", "uri"),
    [
        ("/a b/%c", "file:///a b/%c"),
        ("file:/c", "file:/c"),
        ("s3a://bucket/c", "s3a://bucket/c"),
        ("hdfs:///c", "hdfs:///c"),
    ],
)
def test_hadoop_gets_a_local_path_as_a_uri(checkpoint: str, uri: str) -> None:
    assert for_java(checkpoint) == uri
