"""Spark executor in a pod of the job's image, equivalent to the entry point of Spark's own images.

    python -m streaming.spark.executor executor

Spark describes the executor in environment variables; see `BasicExecutorFeatureStep` and `entrypoint.sh` of Spark.
"""

import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path

import pyspark

from streaming.local.java import find_java

_BACKEND = "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend"

_OPTIONS = {
    "--driver-url": "SPARK_DRIVER_URL",
    "--executor-id": "SPARK_EXECUTOR_ID",
    "--cores": "SPARK_EXECUTOR_CORES",
    "--app-id": "SPARK_APPLICATION_ID",
    "--hostname": "SPARK_EXECUTOR_POD_IP",
    "--resourceProfileId": "SPARK_RESOURCE_PROFILE_ID",
    "--podName": "SPARK_EXECUTOR_POD_NAME",
}
"""Variable of each option."""

_JAVA_OPTION = re.compile(r"SPARK_JAVA_OPT_(\d+)")


def arguments(variables: Mapping[str, str]) -> list[str]:
    """Return the arguments of Java, or exit if a variable is missing."""
    if missing := sorted({*_OPTIONS.values(), "SPARK_EXECUTOR_MEMORY"} - variables.keys()):
        sys.exit(f"Only Spark on Kubernetes starts this, in a pod of an executor: {', '.join(missing)} is not set.")
    numbers = sorted(int(found[1]) for name in variables if (found := _JAVA_OPTION.fullmatch(name)))
    memory = variables["SPARK_EXECUTOR_MEMORY"]
    jars = str(Path(pyspark.__file__).parent / "jars" / "*")
    classes = os.pathsep.join(filter(None, (variables.get("SPARK_CLASSPATH"), jars)))
    return [
        *(variables[f"SPARK_JAVA_OPT_{number}"] for number in numbers),
        *(f"-Xms{memory}", f"-Xmx{memory}", "-cp", classes, _BACKEND),
        *(word for option, name in _OPTIONS.items() for word in (option, variables[name])),
    ]


def main() -> None:
    """Become the executor: Java gets the signals of the pod."""
    given, java = arguments(os.environ), find_java()
    os.environ["JAVA_HOME"] = str(java.home)
    os.execv(java.executable, [str(java.executable), *given])  # noqa: S606 - Spark's command


if __name__ == "__main__":
    main()
