"""A job in a shell and a folder that are set up for something else."""

import subprocess
from pathlib import Path

import pytest

from tests.support.processes import eventually
from tests.support.running_job import POLL_SECONDS, REEXPAND, SETTLE_SECONDS, Streams, running
from tests.support.scene import Scene

CORE_SITE = """<configuration>
  <property><name>fs.defaultFS</name><value>hdfs://namenode.invalid:8020</value></property>
</configuration>"""

FOREIGN = "raise RuntimeError('this is the package of somebody else')"


def test_a_job_uses_its_own_release_python_and_file_system(
    streams: Streams, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a folder with a package `streaming`, with Hadoop's settings of a cluster, and the variables of a notebook."""
    foreign = tmp_path / "project" / "streaming"
    foreign.mkdir(parents=True)
    (foreign / "__init__.py").write_text(FOREIGN)
    (tmp_path / "hadoop").mkdir()
    (tmp_path / "hadoop" / "core-site.xml").write_text(CORE_SITE)
    monkeypatch.chdir(foreign.parent)
    monkeypatch.setenv("HADOOP_CONF_DIR", str(tmp_path / "hadoop"))
    monkeypatch.setenv("PYSPARK_PYTHON", "/usr/bin/python3")
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", "--packages no.such:package:1 pyspark-shell")
    scene = Scene(streams)
    scene.asks("c", "g", "p", "topic")
    scene.born("p", "topic")
    with running(streams, tmp_path / "job.log") as job:
        assert eventually(lambda: len(streams.relation()) == 1, SETTLE_SECONDS, POLL_SECONDS), job.said()
        assert "Traceback" not in job.said()
        assert "\tat " not in job.said()
        assert job.stop() == 0
    assert (streams.checkpoint / "query" / "commits").is_dir()
    assert (streams.checkpoint / "parts").is_dir()
    settings = streams.settings
    words = [REEXPAND, "verify", "--bootstrap-servers", settings.bootstrap_servers, "--checkpoint", settings.checkpoint]
    words += ["--updates", settings.updates, "--dead-letters", settings.dead_letters]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=200)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "the relation is right"
