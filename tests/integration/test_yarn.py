"""The job by spark-submit in cluster mode on a real YARN: its driver is killed, and the whole application."""

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

import pyspark
import pytest

from streaming.local import classes, jars
from streaming.oracle import Effective
from tests.support.brokers import SharedBroker
from tests.support.processes import child, eventually
from tests.support.running_job import TOPIC_SETTINGS, Streams
from tests.support.scene import Scene
from tests.support.yarn import Yarn

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]

RIGHT_SECONDS = 180
DRIVER = "org.apache.spark.deploy.yarn.ApplicationMaster"


@contextmanager
def submitted(yarn: Yarn, streams: Streams, folder: Path) -> Iterator[None]:
    """Submit the job as deploy/README.md says; the application is killed in the end."""
    main = folder / "main.py"
    main.write_text("from streaming.cli import main\n\nmain()\n")
    settings = streams.settings
    topics = [text for name in TOPIC_SETTINGS for text in (f"--{name.replace('_', '-')}", getattr(settings, name))]
    options = {
        "spark.yarn.appMasterEnv.PYSPARK_PYTHON": sys.executable,
        "spark.executorEnv.PYSPARK_PYTHON": sys.executable,
        "spark.yarn.jars": f"local:{Path(pyspark.__file__).parent / 'jars/*'}",
        "spark.yarn.stagingDir": folder.as_uri(),
        "spark.executor.instances": "2",
        "spark.python.unix.domain.socket.dir": tempfile.gettempdir(),  # a container's own is too long a path
    }
    command = [str(Path(sys.executable).with_name("spark-submit")), "--master", "yarn", "--deploy-mode", "cluster"]
    command += ["--jars", ",".join(map(str, [*jars.spark(), classes.sink()]))]
    command += [text for name, value in options.items() for text in ("--conf", f"{name}={value}")]
    command += [str(main), "run", "--bootstrap-servers", streams.bootstrap_servers, "--checkpoint"]
    command += [str(streams.checkpoint), "--http", "off", "--shuffle-partitions", "2", *topics]
    environment = {**os.environ, "HADOOP_CONF_DIR": str(yarn.configuration), "PYSPARK_PYTHON": sys.executable}
    file = folder / f"submit-{uuid4().hex[:4]}.log"
    with file.open("wb") as log, child(command, env=environment, stdout=log, stderr=log):
        yield
        yarn.kill_application()
        assert eventually(lambda: yarn.application()["state"] == "KILLED", RIGHT_SECONDS, 0.5)


def drivers() -> list[int]:
    found = subprocess.run(["pgrep", "-f", f"java .*{DRIVER}"], capture_output=True, text=True, check=False)
    return [int(line) for line in found.stdout.split()]


def test_the_job_runs_on_yarn_and_its_driver_is_replaced(broker: SharedBroker, tmp_path: Path) -> None:
    streams = Streams(broker.bootstrap_servers, tmp_path / "checkpoint").create(2)
    expected, scene = set[Effective](), Scene(streams)
    scene.group("g", "p")
    scene.asks("c", "g", "p", "eu__*")

    def born(topic: str) -> None:
        """A topic comes to exist, and its row to the updates."""
        scene.born("p", topic)
        scene.sent()
        expected.add(Effective("p", "g", "c", topic))
        assert eventually(lambda: streams.relation() == expected or has_failed(), RIGHT_SECONDS, 0.5)
        assert streams.relation() == expected, yarn.application()

    def has_failed() -> bool:
        return yarn.application().get("state") in {"FAILED", "FINISHED"}

    with Yarn(tmp_path / "yarn") as yarn:
        with submitted(yarn, streams, tmp_path):
            born("eu__first")
            for pid in drivers():
                os.kill(pid, signal.SIGKILL)
            born("eu__second")  # YARN has started another driver
        with submitted(yarn, streams, tmp_path):
            born("eu__third")
        assert streams.repeated() == 0
