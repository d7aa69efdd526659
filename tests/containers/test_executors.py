"""Executors of Spark on Kubernetes: its real API, the rights of the manifests, and pods that are processes here."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from streaming.local.broker import Broker
from tests.containers.deployment import OnS3, settles
from tests.containers.kubernetes_api import KubernetesApi, kubernetes_api
from tests.containers.played_node import played_node
from tests.support.histories import Profile, history, large_state
from tests.support.processes import eventually
from tests.support.running_job import START_SECONDS, Streams
from tests.support.s3_server import s3_server
from tests.support.simulator import Record

pytestmark = [
    pytest.mark.containers,
    pytest.mark.timeout(1_200),
    pytest.mark.skipif(os.geteuid() != 0, reason="only root gives a process mounts of its own"),
]


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    with Broker(tmp_path / "kafka") as found:
        yield found


@pytest.fixture
def api(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[KubernetesApi]:
    folder = tmp_path_factory.mktemp("api")
    with kubernetes_api(folder) as found:
        found.kubeconfig(folder / "config")
        monkeypatch.setenv("KUBECONFIG", str(folder / "config"))
        yield found


class OnExecutors(OnS3):
    """Two executors for each driver; nobody but the test makes pods of the Deployment."""

    overlay = "executors"

    def have_controllers_done(self, certificate: str) -> None:
        """Make what controllers make in each namespace."""
        trusted = {"kind": "ConfigMap", "metadata": {"name": "kube-root-ca.crt", "namespace": self.name}}
        nobody = {"kind": "ServiceAccount", "metadata": {"name": "default", "namespace": self.name}}
        self.create({**trusted, "data": {"ca.crt": certificate}}, nobody)

    def start_driver(self, name: str) -> None:
        """Make a pod as the Deployment has it."""
        found = json.loads(self.in_namespace("get", "deployment", "reexpand", "--output=json"))
        template: dict[str, Any] = found["spec"]["template"]
        place = {**template["metadata"], "name": name, "namespace": self.name}
        self.create({"kind": "Pod", "metadata": place, "spec": template["spec"]})

    def executors(self) -> list[str]:
        """Return the names of the executors that run."""
        words = ("--selector=spark-role=executor", "--field-selector=status.phase=Running", "--output=name")
        return [name.removeprefix("pod/") for name in self.in_namespace("get", "pods", *words).split()]

    def owners(self) -> set[str]:
        """Return the names of the pods with whose end Kubernetes removes the executors."""
        path = "--output=jsonpath={.items[*].metadata.ownerReferences[*].name}"
        return set(self.in_namespace("get", "pods", "--selector=spark-role=executor", path).split())


def test_executors_and_drivers_that_die_cost_no_row(api: KubernetesApi, broker: Broker, tmp_path: Path) -> None:
    """An executor is deleted, another one dies, then the driver: each is replaced, and the relation is right."""
    before, records = large_state("p"), history(Random(2), 1_200, Profile(dialects=True))
    quarter = len(records) // 4
    manifests = tmp_path / "manifests"
    manifests.mkdir()
    with s3_server(tmp_path) as server:
        streams = Streams(broker.bootstrap_servers, server.folder / "checkpoint").create()
        feed = streams.producer()
        for record in before:
            feed.send(record.stream, record.value, "p")
        deployment = OnExecutors(streams, manifests, server)
        deployment.have_controllers_done(api.certificate.read_text())
        deployment.apply(REEXPAND_MASTER=f"k8s://{api.url}", REEXPAND_HTTP="off", REEXPAND_SHUFFLE_PARTITIONS="4")
        with played_node(api, deployment.name, tmp_path) as node:

            def settled(after: list[Record]) -> None:
                settles(streams, [*before, *after], node.logs, streams.are_read)
                assert streams.relation(), "a relation without rows shows nothing"

            deployment.start_driver("reexpand-1")
            assert eventually(lambda: len(deployment.executors()) == 2, START_SECONDS, 0.5), node.logs()
            first = deployment.executors()
            feed.send_slowly(records[:quarter])
            settled(records[:quarter])

            deployment.kill(first[0])
            feed.send_slowly(records[quarter : 2 * quarter])
            settled(records[: 2 * quarter])

            node.kill(first[1])
            feed.send_slowly(records[2 * quarter : 3 * quarter])
            settled(records[: 3 * quarter])
            assert eventually(lambda: len({*deployment.executors()} - {*first}) == 2, START_SECONDS, 0.5), node.logs()

            former = deployment.executors()
            assert deployment.owners() == {"reexpand-1"}
            deployment.kill("reexpand-1")
            deployment.start_driver("reexpand-2")
            feed.send_slowly(records[3 * quarter :])
            settled(records)
            assert eventually(lambda: set(deployment.executors()).isdisjoint(former), START_SECONDS, 0.5), node.logs()
        assert any(path.is_file() for path in (streams.checkpoint / "parts").rglob("*")), "Python wrote nothing"
