"""deploy/kubernetes for real: two drivers on a cluster of one node, a rollout under load, and a driver that is killed.

The cluster is that of kubectl's context. Its node has the image `reexpand:local`, and `REEXPAND_TEST_KAFKA` is the
address of a broker on this machine, under a name that pods reach as well.
"""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Final

import pytest

from tests.containers.deployment import Deployment, OnS3, OnVolume, settles
from tests.support.histories import Profile, history
from tests.support.running_job import Streams
from tests.support.s3_server import s3_server

_KAFKA: Final = os.environ.get("REEXPAND_TEST_KAFKA", "")

pytestmark = [
    pytest.mark.containers,
    pytest.mark.timeout(1_800),
    pytest.mark.skipif(not _KAFKA, reason="REEXPAND_TEST_KAFKA names no broker that pods reach"),
    pytest.mark.skipif(shutil.which("kubectl") is None, reason="there is no kubectl"),
]


@pytest.fixture
def streams() -> Streams:
    return Streams(_KAFKA, Path("/var/lib/reexpand/checkpoint")).create()


@pytest.fixture(params=["volume", "s3"])
def deployment(request: pytest.FixtureRequest, streams: Streams, tmp_path: Path) -> Iterator[Deployment]:
    if request.param == "volume":
        yield from until_removed(OnVolume(streams, tmp_path))
    else:
        with s3_server(tmp_path, _KAFKA.rpartition(":")[0]) as server:
            yield from until_removed(OnS3(streams, tmp_path, server))


def until_removed(deployed: Deployment) -> Iterator[Deployment]:
    try:
        yield deployed
    finally:
        deployed.remove()


def test_a_rollout_and_a_killed_driver_cost_no_row(deployment: Deployment, streams: Streams) -> None:
    """One of two drivers works; the other one takes over, in order and without notice."""
    records = history(Random(8), 1_200, Profile(dialects=True))
    third = len(records) // 3
    feed = streams.producer()
    deployment.apply()
    deployment.rolled_out()
    deployment.holder()
    before = deployment.pods()
    assert len(before) == 2
    assert deployment.restarts() == 0
    feed.send_slowly(records[:third])
    settles(streams, records[:third], deployment.logs)

    deployment.apply(REEXPAND_MAX_OFFSETS_PER_TRIGGER="5000")
    feed.send_slowly(records[third : 2 * third])
    deployment.rolled_out()
    deployment.holder()
    assert set(before).isdisjoint(deployment.pods())
    settles(streams, records[: 2 * third], deployment.logs)

    holder = deployment.holder()
    deployment.kill(holder)
    feed.send_slowly(records[2 * third :])
    settles(streams, records, deployment.logs)
    assert deployment.holder() != holder
    deployment.rolled_out()
