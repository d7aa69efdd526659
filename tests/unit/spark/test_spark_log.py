"""Lines of Spark's JVM: in the form of the job's log, and none of what the job tells of itself."""

import json
import logging
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyspark
import pytest
from py4j.java_gateway import GatewayParameters, JavaGateway

from streaming.cli import output as own_log
from streaming.config import load
from streaming.local.java import find_java
from streaming.spark.session import options

JARS = Path(pyspark.__file__).parent / "jars"
QUERY = "org.apache.spark.sql.execution.streaming.runtime.MicroBatchExecution"
WRITING = "org.apache.spark.sql.execution.datasources.v2.WriteToDataSourceV2Exec"
TASKS = "org.apache.spark.executor.Executor"


@pytest.fixture(autouse=True)
def _root_logger() -> Iterator[None]:
    """The log of the command is set up as before."""
    root, own = logging.getLogger(), logging.getLogger("reexpand")
    handlers, level = root.handlers[:], own.level
    yield
    root.handlers[:] = handlers
    own.setLevel(level)


@contextmanager
def a_jvm(lines: list[str]) -> Iterator[Any]:
    """A Java with the options of a job's Spark; its lines are there afterwards."""
    given = options(load({"bootstrap_servers": "b:1", "checkpoint": "/c"}), 1)["spark.driver.extraJavaOptions"]
    words = [word for word in given.split() if word.startswith("-D")]
    command = [
        str(find_java().executable),
        *words,
        "-cp",
        f"{JARS}/*",
        "py4j.GatewayServer",
        "--die-on-broken-pipe",
        "0",
    ]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        port = int(process.stdout.readline())
        # Finalizers would otherwise look for the JVM when it is gone, at any time in another test.
        gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port, enable_memory_management=False))
        try:
            yield gateway.jvm
        finally:
            gateway.close()
            process.kill()
            assert process.stderr is not None
            lines += process.stderr.read().splitlines()


def lines_of(form: own_log.Form, *, verbose: bool = False) -> list[str]:
    """What is left of an error with a stack from each logger."""
    own_log.set_up(verbose=verbose, form=form)
    lines: list[str] = []
    with a_jvm(lines) as jvm:
        loggers = jvm.org.apache.logging.log4j.LogManager
        for name in (QUERY, WRITING, TASKS):
            loggers.getLogger(name).error('it said "no"\nand ended', jvm.java.lang.RuntimeException("because"))
    own_log.set_up(verbose=False)
    return lines


def test_what_the_job_tells_of_itself_is_left_out() -> None:
    text = "\n".join(lines_of("text"))
    assert "Executor: it said" in text
    assert "MicroBatchExecution" not in text
    assert "WriteToDataSource" not in text


def test_all_is_there_with_verbose() -> None:
    assert sum("it said" in line for line in lines_of("text", verbose=True)) == 3


def test_lines_of_spark_are_json_where_the_log_is() -> None:
    (line,) = map(json.loads, lines_of("json"))
    assert (line["event"], line["level"], line["logger"]) == ('it said "no"\nand ended', "error", "spark.Executor")
    assert "RuntimeException: because" in line["exception"]
    assert line["time"][:2] == "20"
