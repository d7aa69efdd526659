"""Arguments of an executor on Kubernetes."""

import pytest

from streaming.spark.executor import arguments

GIVEN = {
    "SPARK_DRIVER_URL": "spark://CoarseGrainedScheduler@10.0.0.1:7078",
    "SPARK_EXECUTOR_ID": "3",
    "SPARK_EXECUTOR_CORES": "2",
    "SPARK_EXECUTOR_MEMORY": "1024m",
    "SPARK_APPLICATION_ID": "spark-1",
    "SPARK_EXECUTOR_POD_IP": "10.0.0.2",
    "SPARK_RESOURCE_PROFILE_ID": "0",
    "SPARK_EXECUTOR_POD_NAME": "reexpand-exec-3",
}


def test_java_gets_what_the_variables_say() -> None:
    found = arguments({**GIVEN, **{f"SPARK_JAVA_OPT_{number}": f"-Dn={number}" for number in range(12)}})
    assert found[:12] == [f"-Dn={number}" for number in range(12)]  # by number, not by name
    assert found[12:14] == ["-Xms1024m", "-Xmx1024m"]
    assert found[14] == "-cp"
    assert found[15].endswith("/jars/*")
    backend = found.index("org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend")
    options = dict(zip(found[backend + 1 :: 2], found[backend + 2 :: 2], strict=True))
    assert options == {
        "--driver-url": GIVEN["SPARK_DRIVER_URL"],
        "--executor-id": "3",
        "--cores": "2",
        "--app-id": "spark-1",
        "--hostname": "10.0.0.2",
        "--resourceProfileId": "0",
        "--podName": "reexpand-exec-3",
    }


def test_classes_of_the_user_come_first() -> None:
    assert arguments({**GIVEN, "SPARK_CLASSPATH": "/own.jar"})[3] == f"/own.jar:{arguments(GIVEN)[3]}"


def test_elsewhere_it_says_what_it_is_for() -> None:
    with pytest.raises(SystemExit, match=r"Only Spark on Kubernetes.*SPARK_DRIVER_URL, .* not set"):
        arguments({})
