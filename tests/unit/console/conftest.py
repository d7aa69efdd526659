"""A console on a simulated broker."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import pytest
from starlette.testclient import TestClient

from streaming.console.app import ConsoleSources, console
from streaming.console.explaining import explain_by_updates
from streaming.console.live import LiveRelation
from tests.support.simulated import TOPIC, Simulated
from tests.support.update_records import add

ROWS = (
    add("eu__acme__created", parent="orders", client="c1", group="billing", changes={"patterns": ["eu__**"]}),
    add("eu__acme__created", parent="orders", client="c2", group="audit", changes={"patterns": []}),
    add("eu__globex__created", parent="orders", client="c1", group="billing", changes={"patterns": ["eu__**"]}),
    add("us__acme__created", parent="orders", client="c2", group="audit", changes={"patterns": []}),
    add("eu/berlin/temp", parent="sensors", client="c3", group="hot", part="share:s", changes={"patterns": ["eu/#"]}),
)


@pytest.fixture
def broker() -> Simulated:
    return Simulated()


@contextmanager
def relation_of_rows(broker: Simulated) -> Iterator[LiveRelation]:
    broker.write(*ROWS, partition=0)
    with LiveRelation(broker.address, TOPIC) as relation:
        relation.wait_ready(60)
        yield relation


@pytest.fixture
def live(broker: Simulated) -> Iterator[LiveRelation]:
    """The relation of `ROWS`."""
    with relation_of_rows(broker) as relation:
        yield relation


@pytest.fixture(scope="session")
def still() -> Iterator[LiveRelation]:
    """The same, for tests that change nothing."""
    with relation_of_rows(Simulated()) as relation:
        yield relation


@pytest.fixture
def sources(still: LiveRelation) -> ConsoleSources:
    return ConsoleSources(still, partial(explain_by_updates, still))


@pytest.fixture
def browser(sources: ConsoleSources) -> TestClient:
    """A client of a console without a token."""
    return TestClient(console(sources), base_url="http://localhost:9465", follow_redirects=False)
