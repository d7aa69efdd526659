"""docker-compose.yml for real: its services are built, brought up, used from outside, and restarted.

`REEXPAND_TEST_COMPOSE="docker-compose"` chooses a command of Compose where there are several.
"""

import secrets
from collections.abc import Iterator

import pytest

from tests.containers.services import Services, running_services
from tests.support.compose import SERVICES

# The first build downloads Spark.
pytestmark = [pytest.mark.containers, pytest.mark.timeout(1800)]


@pytest.fixture(scope="module")
def services() -> Iterator[Services]:
    with running_services() as up:
        yield up


@pytest.fixture
def parent(services: Services) -> str:
    """A parent topic of this test's own, on which a client subscribes by the pattern `eu__*`."""
    parent = f"orders-{secrets.token_hex(4)}"
    attributes = {"lite.bind.topic": parent, "lite.sub.wildcard": "true"}
    services.send("lite-group-events", parent, {"group": parent, "attributes": attributes})
    request = {"action": "COMPLETE_ADD", "clientId": "c1", "group": parent, "topic": parent, "liteTopicSet": ["eu__*"]}
    services.send("lite-subscription-events", parent, {"subscriptionSet": [request]})
    return parent


def test_events_from_outside_come_out_as_updates(services: Services, parent: str) -> None:
    """A topic that matches becomes an ADD, one that does not becomes nothing."""
    create(services, parent, "us__1")
    create(services, parent, "eu__1")
    services.until_updates(parent, [("ADD", "eu__1")])


def test_a_restarted_job_goes_on_where_it_stopped(services: Services, parent: str) -> None:
    """SIGTERM ends it with exit code 0; afterwards it knows the subscription, and says nothing twice."""
    create(services, parent, "eu__1")
    services.until_updates(parent, [("ADD", "eu__1")])
    services.compose("stop", "reexpand")
    assert services.state("reexpand")["ExitCode"] == 0
    create(services, parent, "eu__2")
    services.compose("start", "reexpand")
    services.until_healthy("reexpand")
    create(services, parent, "eu__3")
    services.until_updates(parent, [("ADD", "eu__1"), ("ADD", "eu__2"), ("ADD", "eu__3")])


def test_every_service_that_keeps_running_becomes_healthy(services: Services) -> None:
    services.compose("--profile", "traffic", "up", "--detach", "traffic")
    for name, service in SERVICES.items():
        if "healthcheck" in service:
            services.until_healthy(name)


def create(services: Services, parent: str, topic: str) -> None:
    services.send("lite-topic-events", parent, {"event": "CREATED", "parentTopic": parent, "liteTopic": topic})
