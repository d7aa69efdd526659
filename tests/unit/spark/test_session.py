"""Options of the Spark session, by where job and checkpoint are."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import pytest
from py4j.protocol import Py4JJavaError
from pyspark import SparkContext

from streaming.config import load
from streaming.errors import SparkUnavailable
from streaming.spark import kafka_clients, launch
from streaming.spark.session import _configured, _scratch, build, options
from streaming.tuning import DEFAULT_TUNING

MANAGER = "spark.sql.streaming.checkpointFileManagerClass"
LOCAL_MANAGER = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"


def options_for(checkpoint: str = "/c", master: str | None = None, jars: tuple[Path, ...] = ()) -> dict[str, str]:
    settings = load({"bootstrap_servers": "b:1", "checkpoint": checkpoint, "master": master})
    return options(settings, 3, jars)


CLUSTER, SUBMITTED = "spark://master:7077", "submitted"
ROCKSDB = "spark.sql.streaming.stateStore.rocksdb"
STATE = {
    "spark.sql.shuffle.partitions": "3",
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    f"{ROCKSDB}.changelogCheckpointing.enabled": "true",
    f"{ROCKSDB}.boundedMemoryUsage": "true",
    f"{ROCKSDB}.maxMemoryUsageMB": "256",
    "spark.sql.streaming.checkpoint.fileChecksum.enabled": "false",
}
HERE = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
LOCAL = {**HERE, "spark.ui.enabled": "false"}
ANYWHERE = dict.fromkeys([*HERE, MANAGER, "spark.driver.memory", "spark.executor.memory", "spark.jars"])
LOCAL_FS = "spark.hadoop.fs.defaultFS"


@pytest.mark.parametrize(
    ("checkpoint", "master", "wanted"),
    [
        ("/var/lib/reexpand", None, {**LOCAL, LOCAL_FS: "file:///", "spark.master": "local[*,4]"}),
        ("relative/folder", "local", {**LOCAL, LOCAL_FS: "file:///", "spark.master": "local"}),
        ("file:///var/lib/reexpand", "local[2]", {**LOCAL, LOCAL_FS: "file:///", "spark.master": "local[2]"}),
        ("hdfs://namenode:8020/reexpand", None, {**LOCAL, MANAGER: None, LOCAL_FS: None}),
        ("s3a://bucket/reexpand", None, {**LOCAL, MANAGER: None, LOCAL_FS: None}),
        ("abfss://container@account/reexpand", CLUSTER, ANYWHERE),
        ("gs://bucket/reexpand", "k8s://https://api:6443", {**ANYWHERE, "spark.master": "k8s://https://api:6443"}),
        ("s3a://bucket/c", "yarn", {**ANYWHERE, "spark.master": "yarn"}),
        ("file:/c", CLUSTER, {**dict.fromkeys(HERE), LOCAL_FS: None}),
        ("/c", "spark://127.0.0.1:7077", HERE),
        ("/c", "spark://localhost:7077", HERE),
    ],
)
def test_options_follow_the_places_of_job_and_checkpoint(
    checkpoint: str, master: str | None, wanted: dict[str, str | None]
) -> None:
    """State is the same everywhere. A job on a cluster can be reached by its executors, and by no one else.

    Object stores and HDFS need the file manager that Spark chooses for them.
    """
    found = options_for(checkpoint, master)
    wanted = {MANAGER: LOCAL_MANAGER, **STATE, **wanted}
    assert {name: found.get(name) for name in wanted} == wanted
    assert any("127.0.0.1" in value for value in found.values()) == (wanted["spark.driver.host"] is not None)
    assert "log4j2" in found["spark.driver.extraJavaOptions"]


def test_a_local_job_writes_local_files_without_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the driver has the class: executors elsewhere get it too late, and spark-submit has read files by then."""
    jars = (Path("/jars/kafka.jar"), Path("/jars/hadoop-bare-naked-local-fs-1.jar"))
    name = "spark.hadoop.fs.file.impl"
    assert name in options_for(jars=jars)
    assert name not in options_for(jars=jars[:1])
    assert name not in options_for("s3a://bucket/c", jars=jars)
    assert name not in options_for(master="spark://master:7077", jars=jars)
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")
    assert name not in options_for(jars=jars)


GUARD = {"spark.ui.enabled": "false", "spark.authenticate": "true", "spark.network.crypto.enabled": "true"}


@pytest.mark.parametrize(
    ("master", "configured", "wanted"),
    [
        ("yarn", {}, GUARD),
        ("k8s://https://api:6443", {}, GUARD),
        ("yarn", {"ui_enabled": "true", "authenticate": "false"}, {"spark.network.crypto.enabled": "true"}),
        ("yarn", {"shuffle_service_enabled": "true"}, {"spark.ui.enabled": "false"}),
        (CLUSTER, {}, {"spark.ui.enabled": "false"}),
        (CLUSTER, {"ui_enabled": "true"}, {}),
        (None, {}, {"spark.ui.enabled": "false"}),
        ("local[2]", {}, {"spark.ui.enabled": "false"}),
        (SUBMITTED, {"master": "yarn"}, {"spark.ui.enabled": "false"}),
        (SUBMITTED, {"master": "yarn", "ui_enabled": "true", "authenticate": "true"}, {}),
        (SUBMITTED, {"master": "local[2]"}, {}),
    ],
)
def test_executors_prove_who_they_are_where_spark_spreads_the_secret(
    monkeypatch: pytest.MonkeyPatch, master: str | None, configured: dict[str, str], wanted: dict[str, str]
) -> None:
    """And their connections are encrypted; Spark's own configuration goes before.

    Master and workers of a standalone cluster would have to know the secret. spark-submit may have begun without one,
    as the master of an application on YARN does.
    """
    if master == SUBMITTED:
        monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")
        master = None
    settings = load({"bootstrap_servers": "b:1", "checkpoint": "s3a://bucket/c", "master": master})
    given = {f"spark.{name.replace('_', '.')}": value for name, value in configured.items()}
    found = options(settings, 3, configured=given)
    assert {name: value for name, value in found.items() if name in GUARD} == wanted


def test_sparks_own_configuration_is_read(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    assert _configured() == {}
    lines = ["# spark.a 1", "", "spark.ui.enabled true ", "spark.b=2", "spark.c : x y", "  spark.d\t3", "spark.e"]
    (tmp_path / "spark-defaults.conf").write_text("\n".join(lines))
    assert _configured() == {"spark.ui.enabled": "true", "spark.b": "2", "spark.c": "x y", "spark.d": "3"}
    monkeypatch.delenv("SPARK_CONF_DIR")
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "spark-defaults.conf").write_bytes(b"spark.f 4\n")
    assert _configured() == {"spark.f": "4"}


def test_executors_have_the_drivers_java_options(monkeypatch: pytest.MonkeyPatch) -> None:
    """Unless spark-submit chose them."""
    names = ["spark.driver.extraJavaOptions", "spark.executor.extraJavaOptions"]
    found = options_for(master="spark://master:7077")
    assert "log4j2" in found[names[0]]
    assert found[names[1]] == found[names[0]]
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")
    assert [name for name in names if name in options_for(master="spark://master:7077")] == []


@dataclass
class Thrown:
    """What Spark's JVM throws."""

    message: str
    cause: Thrown | None = None

    def getMessage(self) -> str:  # noqa: N802 - Java's name
        return f"{self.message}\n\tat org.apache.spark.SparkContext"

    def getCause(self) -> Thrown | None:  # noqa: N802
        return self.cause


@pytest.mark.parametrize(
    ("thrown", "reason"),
    [
        (Thrown("Could not parse Master URL: 'no'"), r"Could not parse Master URL: 'no'"),
        (
            Thrown("External scheduler cannot be instantiated", Thrown("no answer", Thrown("api: Name not known"))),
            r"External scheduler cannot be instantiated; api: Name not known",
        ),
    ],
)
def test_a_master_that_spark_refuses_is_one_sentence(
    thrown: Thrown, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the first reason and the last one."""

    def refuse(_: object) -> None:
        error = Py4JJavaError.__new__(Py4JJavaError)
        error.java_exception = thrown
        raise error

    for name in ("PYSPARK_PYTHON", "SPARK_LOCAL_IP"):
        monkeypatch.setenv(name, "unused")
    monkeypatch.setattr(launch, "start", lambda _: True)
    monkeypatch.setattr(SparkContext, "getOrCreate", refuse)
    settings = load({"bootstrap_servers": "b:1", "checkpoint": "/c", "master": "no"})
    with pytest.raises(SparkUnavailable, match=rf"^Spark does not start with the master no: {reason}\. Check its .*$"):
        build(settings, 3)


def test_memory_of_java_is_bounded_by_settings() -> None:
    """In MiB, as Spark takes it; a heap that is not set is left to Spark's own configuration."""
    given = {"bootstrap_servers": "b:1", "checkpoint": "/c", "rocksdb_bytes": 100 << 20, "heap_bytes": 2 << 30}
    found = options(load(given), 3)
    assert found[f"{ROCKSDB}.maxMemoryUsageMB"] == "100"
    assert found["spark.driver.memory"] == found["spark.executor.memory"] == "2048m"


def test_output_is_handed_on_in_tens_of_megabytes() -> None:
    """A worker keeps it until then."""
    rows = int(options_for()["spark.sql.execution.arrow.maxRecordsPerBatch"])
    assert rows * DEFAULT_TUNING.output_row_bytes < 100_000_000


def test_a_local_job_has_its_jars_on_the_class_path(tmp_path: Path) -> None:
    """The archive of classes has only classes of the class path."""
    jars = (tmp_path / "a.jar", tmp_path / "with space.jar")
    for checkpoint in ("/c", "s3a://bucket/c"):
        found = options_for(checkpoint, jars=jars)
        assert found["spark.driver.extraClassPath"] == f"{jars[0]}:{jars[1]}"
        assert "spark.jars" not in found


def test_jars_for_executors_are_given_as_uris(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    jars = (tmp_path / "a.jar", tmp_path / "with space.jar")
    uris = f"file://{tmp_path}/a.jar,file://{tmp_path}/with%20space.jar"
    cluster = options_for(master="spark://master:7077", jars=jars)
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")
    for found in (cluster, options_for(jars=jars)):
        assert found["spark.jars"] == uris
        assert "spark.driver.extraClassPath" not in found
    assert "spark.jars" not in options_for()


def test_source_and_sink_reach_the_broker_alike(tmp_path: Path) -> None:
    """The options of the file are Kafka's own; Spark knows them by a prefix."""
    file = tmp_path / "client.properties"
    file.write_text("security.protocol=SSL\n")
    settings = load({"bootstrap_servers": "b:1", "checkpoint": "/c", "kafka_options": str(file)})
    assert kafka_clients.options_for_spark(settings) == {
        "kafka.bootstrap.servers": "b:1",
        "kafka.security.protocol": "SSL",
    }


@pytest.mark.parametrize(
    "name", ["sasl.jaas.config", "ssl.keystore.key", "ssl.key.password", "ssl.truststore.password"]
)
def test_spark_does_not_show_secret_options_of_kafka(name: str) -> None:
    """It hides the values of options whose names its pattern finds."""
    pattern = options_for()["spark.redaction.regex"]
    assert re.search(pattern, f"kafka.{name}")
    assert not re.search(pattern, "kafka.ssl.keystore.location")


def test_temporary_files_are_in_a_folder_of_this_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path))
    folder = _scratch.__wrapped__()
    assert folder is not None
    assert tmp_path in folder.parents
    settings = load({"bootstrap_servers": "b:1", "checkpoint": "/c"})
    assert f"-Djava.io.tmpdir={folder}" in options(settings, 3, scratch=folder)["spark.driver.extraJavaOptions"]
    sockets = "spark.python.unix.domain.socket.dir"
    assert options(settings, 3, scratch=Path("/short"))[sockets] == "/short"
    assert len(options(settings, 3, scratch=tmp_path / ("long" * 20))[sockets]) <= 60


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("SPARK_SUBMIT_OPTS", "-Xms1g -Djava.io.tmpdir=/big"),
        ("JAVA_TOOL_OPTIONS", "-Djava.io.tmpdir=/big"),
        ("PYSPARK_SUBMIT_ARGS", "--conf 'spark.local.dir=/big' pyspark-shell"),
        ("SPARK_LOCAL_DIRS", "/disk1,/disk2"),
        ("SPARK_LOCAL_DIRS", "/proc/none"),
    ],
)
def test_a_folder_that_is_chosen_otherwise_stays(
    variable: str, value: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path))
    monkeypatch.setenv(variable, value)
    assert _scratch.__wrapped__() is None
    assert list(tmp_path.iterdir()) == []
