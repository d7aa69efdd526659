"""The operator in Kafka Streams: fetched and compiled."""

import os
import shutil
import subprocess
from pathlib import Path

from streaming.local.java import find_java
from tests.bench.peers.jars import JARS
from tests.bench.streaming.driver import System

HERE = Path(__file__).parent
THREADS = 2
GUARANTEES = {"kafka-streams": "at_least_once", "kafka-streams-eos": "exactly_once_v2"}
"""By the name of the system."""


def systems(folder: Path) -> list[System]:
    """Both guarantees of one program, compiled into `folder`.

    Raises:
        LookupError: there is no compiler.
        JarsUnavailable: the jars cannot be had.
    """
    compiler = shutil.which("javac")
    if compiler is None:
        raise LookupError("there is no javac on the PATH; any JDK from 17 on will do")
    classpath = os.pathsep.join(map(str, JARS.jars("kafka-streams")))
    sources = sorted((HERE / "java").glob("*.java"))
    subprocess.run([compiler, "--release", "17", "-cp", classpath, "-d", folder, *sources], check=True)
    command = [
        str(find_java().executable),
        "-Xmx1g",
        "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
        *("-cp", f"{folder}{os.pathsep}{classpath}"),
        "Main",
    ]
    return [
        System(name, command, {"REEXPAND_GUARANTEE": guarantee, "REEXPAND_THREADS": str(THREADS)}, stops=False)
        for name, guarantee in GUARANTEES.items()
    ]
