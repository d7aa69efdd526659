"""Local Spark in the process of the tests."""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pyspark import SparkContext
from pyspark.sql import SparkSession

from streaming.config import Settings
from streaming.local.java import environment, find_java
from streaming.spark import session

PARTITIONS = 2


@contextmanager
def local_spark(settings: Settings, warehouse: Path, jars: Sequence[Path] = ()) -> Iterator[SparkSession]:
    """Start Spark as the job does, with these jars; its JVM ends with the context."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in environment(find_java()).items():
            patch.setenv(name, value)
        patch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
        patch.setenv("PYSPARK_PYTHON", sys.executable)
        patch.setitem(session._LOCAL, "spark.master", "local[2]")
        patch.setitem(session._LOCAL, "spark.sql.warehouse.dir", str(warehouse))
        built = session.build(settings, PARTITIONS, jars)
        try:
            yield built
        finally:
            gateway: Any = SparkContext._gateway
            built.stop()
            gateway.shutdown()
            gateway.proc.stdin.close()  # on which the JVM exits
            gateway.proc.wait(60)
            SparkContext._gateway = SparkContext._jvm = None
