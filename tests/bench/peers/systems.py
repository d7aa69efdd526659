"""The same operator in other stream processors: Kafka Streams, Quix Streams, Bytewax and PyFlink."""

import os
import shutil
import subprocess
from collections.abc import Callable, Container, Mapping
from dataclasses import replace
from pathlib import Path

from streaming.errors import JarsUnavailable
from streaming.local.jars import JarSets
from streaming.local.java import find_java
from streaming.local.process import cache_folder
from streaming.local.server import HOST, free_port
from tests.bench.command import progress
from tests.bench.streaming.driver import System

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
JARS = JarSets(HERE / "ivy.xml", HERE / "jars.sha256", ("kafka-streams", "flink"))
PARALLELISM = "2"
GUARANTEES = {"kafka-streams": "at_least_once", "kafka-streams-eos": "exactly_once_v2"}
NAMES = (*GUARANTEES, "quix-streams", "bytewax", "pyflink")


def installed(names: Container[str], folder: Path) -> list[System]:
    """Return the systems of these names, compiled into `folder` if necessary; report those not installed."""
    builders: dict[str, Callable[[str, Path], System]] = dict.fromkeys(GUARANTEES, kafka_streams)
    builders |= {"quix-streams": quix_streams, "bytewax": bytewax, "pyflink": pyflink}
    found = []
    for name in (name for name in NAMES if name in names):
        try:
            found.append(builders[name](name, folder))
        except (LookupError, JarsUnavailable) as error:
            progress(f"{name} is left out: {error}")
    return found


def kafka_streams(name: str, folder: Path) -> System:
    """Compile the operator in Kafka Streams; raise a LookupError if there is no compiler."""
    compiler = shutil.which("javac")
    if compiler is None:
        raise LookupError("there is no javac on the PATH; any JDK from 17 on will do")
    classpath = os.pathsep.join(map(str, JARS.jars("kafka-streams")))
    sources = sorted((HERE / "java").glob("*.java"))
    subprocess.run([compiler, "--release", "17", "-cp", classpath, "-d", folder, *sources], check=True)
    options = ["-Xmx1g", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-cp", f"{folder}{os.pathsep}{classpath}"]
    environment = {"REEXPAND_GUARANTEE": GUARANTEES[name], "REEXPAND_THREADS": PARALLELISM}
    return System(name, [str(find_java().executable), *options, "Main"], environment, stops=False)


def quix_streams(name: str, _: Path) -> System:
    """Return the operator in Quix Streams; raise a LookupError if its Python is not there."""
    return _in_python(name, "quix", "quix_streams", {"REEXPAND_PROCESSES": PARALLELISM})


def bytewax(name: str, _: Path) -> System:
    """Return the operator in Bytewax; raise a LookupError if its Python is not there."""
    # It is in no consumer group, and polls each partition every millisecond even if idle.
    addresses = " ".join(f"{HOST}:{free_port()}" for _ in range(int(PARALLELISM)))
    return replace(_in_python(name, "bytewax", "bytewax_flow", {"REEXPAND_ADDRESSES": addresses}), stops=True)


def pyflink(name: str, _: Path) -> System:
    """Return the operator in PyFlink; raise a LookupError if its Python is not there."""
    settings = {"REEXPAND_PARALLELISM": PARALLELISM, "REEXPAND_PORT": str(free_port())}
    system = _in_python(name, "flink", "py_flink", {"JVM_ARGS": "-Xmx1g", **settings})
    java = {"JAVA_HOME": str(find_java().home), "REEXPAND_JARS": os.pathsep.join(map(str, JARS.jars("flink")))}
    return replace(system, environment={**system.environment, **java})


def _in_python(name: str, folder: str, module: str, environment: Mapping[str, str]) -> System:
    python = cache_folder() / folder / "bin" / "python"
    if not python.exists():
        raise LookupError("not installed; `make bench SUITE=peers` does that")
    variables = {**environment, "PYTHONPATH": str(ROOT)}
    return System(name, [str(python), "-m", f"tests.bench.peers.{module}"], variables, stops=False)
