"""Options of the Spark session, by where job and checkpoint are."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from streaming.config import load
from streaming.errors import SparkUnavailable
from streaming.spark import kafka_clients
from streaming.spark.session import _configured, build, options
from streaming.tuning import DEFAULT_TUNING

MANAGER = "spark.sql.streaming.checkpointFileManagerClass"


def options_for(checkpoint: str = "/c", master: str | None = None, jars: tuple[Path, ...] = ()) -> dict[str, str]:
    settings = load({"bootstrap_servers": "b:1", "checkpoint": checkpoint, "master": master})
    return options(settings, 3, jars)


@pytest.mark.parametrize(
    ("checkpoint", "local"),
    [
        ("/var/lib/reexpand", True),
        ("relative/folder", True),
        ("file:///var/lib/reexpand", True),
        ("file:/var/lib/reexpand", True),
        ("hdfs://namenode:8020/reexpand", False),
        ("s3a://bucket/reexpand", False),
        ("abfss://container@account/reexpand", False),
        ("gs://bucket/reexpand", False),
    ],
)
def test_only_local_checkpoints_get_the_file_manager_of_local_files(checkpoint: str, local: bool) -> None:  # noqa: FBT001
    """Object stores and HDFS need the one that Spark chooses for them."""
    assert (MANAGER in options_for(checkpoint)) == local


def test_a_local_job_writes_local_files_without_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the driver has the class: executors elsewhere get it too late, and spark-submit has read files by then."""
    jars = (Path("/jars/kafka.jar"), Path("/jars/hadoop-bare-naked-local-fs-1.jar"))
    names = {"spark.hadoop.fs.file.impl", "spark.driver.extraClassPath"}
    found = options_for(jars=jars)
    assert found["spark.driver.extraClassPath"] == str(jars[1])
    assert names <= found.keys()
    assert not names & options_for(jars=jars[:1]).keys()
    assert not names & options_for("s3a://bucket/c", jars=jars).keys()
    assert not names & options_for(master="spark://master:7077", jars=jars).keys()
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")
    assert not names & options_for(jars=jars).keys()


@pytest.mark.parametrize("master", [None, "local", "local[2]", "local[*,4]"])
def test_a_local_job_stays_on_this_machine(master: str | None) -> None:
    found = options_for(master=master)
    assert found["spark.master"] == (master or "local[*,4]")
    assert found["spark.driver.host"] == found["spark.driver.bindAddress"] == "127.0.0.1"
    assert found["spark.ui.enabled"] == "false"
    assert "log4j2" in found["spark.driver.extraJavaOptions"]


@pytest.mark.parametrize("master", ["spark://master:7077", "k8s://https://api:6443", "yarn"])
def test_a_job_on_a_cluster_can_be_reached_by_its_executors(master: str) -> None:
    """Nothing ties it to the loopback interface."""
    found = options_for("s3a://bucket/c", master)
    assert found["spark.master"] == master
    assert [key for key, value in found.items() if "127.0.0.1" in value] == []
    assert "spark.driver.host" not in found


GUARD = {"spark.ui.enabled": "false", "spark.authenticate": "true", "spark.network.crypto.enabled": "true"}


def guard_of(given_master: str | None, **configured: str) -> dict[str, str]:
    settings = load({"bootstrap_servers": "b:1", "checkpoint": "s3a://bucket/c", "master": given_master})
    given = {f"spark.{name.replace('_', '.')}": value for name, value in configured.items()}
    found = options(settings, 3, configured=given)
    return {name: value for name, value in found.items() if name in GUARD}


@pytest.mark.parametrize("master", ["yarn", "k8s://https://api:6443"])
def test_executors_prove_who_they_are_where_spark_spreads_the_secret(master: str) -> None:
    """And their connections are encrypted; Spark's own configuration goes before."""
    assert guard_of(master) == GUARD
    assert guard_of(master, ui_enabled="true", authenticate="false") == {"spark.network.crypto.enabled": "true"}
    assert guard_of(master, shuffle_service_enabled="true") == {"spark.ui.enabled": "false"}


def test_a_standalone_cluster_has_a_secret_of_its_own_or_none() -> None:
    """Its master and workers would have to know it."""
    assert guard_of("spark://master:7077") == {"spark.ui.enabled": "false"}
    assert guard_of("spark://master:7077", ui_enabled="true") == {}


@pytest.mark.parametrize("master", [None, "local[2]"])
def test_a_local_job_needs_no_secret(master: str | None) -> None:
    assert guard_of(master) == {"spark.ui.enabled": "false"}


def test_what_spark_submit_has_chosen_goes_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")
    """It may have begun without a secret, as the master of an application on YARN does."""
    assert guard_of(None, master="yarn") == {"spark.ui.enabled": "false"}
    assert guard_of(None, master="yarn", ui_enabled="true", authenticate="true") == {}
    assert guard_of(None, master="local[2]") == {}


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


@pytest.mark.parametrize("master", ["spark://127.0.0.1:7077", "spark://localhost:7077"])
def test_a_cluster_on_this_machine_is_not_open_to_others(master: str) -> None:
    found = options_for(master=master)
    assert found["spark.driver.host"] == found["spark.driver.bindAddress"] == "127.0.0.1"


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
        """With more lines than anyone wants to read."""
        return f"{self.message}\n\tat org.apache.spark.SparkContext"

    def getCause(self) -> Thrown | None:  # noqa: N802
        """None at the last one."""
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
    monkeypatch.setattr(SparkSession.Builder, "getOrCreate", refuse)
    settings = load({"bootstrap_servers": "b:1", "checkpoint": "/c", "master": "no"})
    with pytest.raises(SparkUnavailable, match=rf"^Spark does not start with the master no: {reason}\. Check its .*$"):
        build(settings, 3)


@pytest.mark.parametrize("master", [None, "spark://master:7077"])
def test_state_is_the_same_everywhere(master: str | None) -> None:
    found = options_for(master=master)
    assert found["spark.sql.shuffle.partitions"] == "3"
    provider = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    assert found["spark.sql.streaming.stateStore.providerClass"] == provider
    assert found["spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled"] == "true"
    assert found["spark.sql.streaming.checkpoint.fileChecksum.enabled"] == "false"


def test_memory_of_java_is_bounded_by_settings() -> None:
    """In MiB, as Spark takes it; a heap that is not set is left to Spark's own configuration."""
    rocksdb = "spark.sql.streaming.stateStore.rocksdb"
    heaps = "spark.driver.memory", "spark.executor.memory"
    found = options_for()
    assert found[f"{rocksdb}.boundedMemoryUsage"] == "true"
    assert found[f"{rocksdb}.maxMemoryUsageMB"] == "256"
    assert not set(heaps) & found.keys()
    given = {"bootstrap_servers": "b:1", "checkpoint": "/c", "rocksdb_bytes": 100 << 20, "heap_bytes": 2 << 30}
    found = options(load(given), 3)
    assert found[f"{rocksdb}.maxMemoryUsageMB"] == "100"
    assert [found[name] for name in heaps] == ["2048m", "2048m"]


def test_output_is_handed_on_in_tens_of_megabytes() -> None:
    """A worker keeps it until then."""
    rows = int(options_for()["spark.sql.execution.arrow.maxRecordsPerBatch"])
    assert rows * DEFAULT_TUNING.output_row_bytes < 100_000_000


def test_jars_are_given_as_uris(tmp_path: Path) -> None:
    found = options_for(jars=(tmp_path / "a.jar", tmp_path / "with space.jar"))
    assert found["spark.jars"] == f"file://{tmp_path}/a.jar,file://{tmp_path}/with%20space.jar"
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
