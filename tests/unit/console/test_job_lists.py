"""Lists from a job that may not answer."""

from collections.abc import Callable
from typing import Any, Self

import pytest
from starlette.testclient import TestClient

from streaming.console import job_lists
from streaming.console.app import ConsoleSources, console
from streaming.console.job_lists import BASIS, UPDATES_BASIS, JobLists
from streaming.console.live import LiveRelation
from streaming.errors import InspectError, Unanswered
from streaming.inspect import GroupFacts, Page, TopicFacts
from tests.support.simulated import TOPIC, Simulated
from tests.unit.console.conftest import ROWS
from tests.unit.console.test_routes import ask


class FakeInspector:
    """A job with two groups and with topics in two shards, which counts its questions."""

    def __init__(self, failure: InspectError | None = None) -> None:
        self.failure = failure
        self.asked = 0

    def __enter__(self) -> Self:
        self.asked += 1
        return self

    def __exit__(self, *_: object) -> None:
        """Close nothing."""

    def groups(self, _: str, *, limit: int) -> Any:
        """Yield one page."""
        if self.failure:
            raise self.failure
        found = [GroupFacts(name, {}, "wildcard", exclusive=False, quota=quota, clients=2)
                 for name, quota in (("billing", 5), ("idle", -1))]  # fmt: skip
        yield Page(found[:limit], 1 if limit < len(found) else None, len(found))

    def parents(self) -> list[str]:
        """Return the only parent."""
        if self.failure:
            raise self.failure
        return ["orders"]

    def topic_count(self, _: str) -> int:
        """Return the number of topics in both shards."""
        return 5

    def topics_from(self, _: str, shard: int, cursor: int, *, limit: int) -> Any:
        """Return a page, and the place of the next one."""
        names = (("eu__acme__created", "idle__1", "idle__2"), ("us__acme__created", "idle__3"))[shard]
        page = Page([TopicFacts(name) for name in names[cursor : cursor + limit]], None, len(names))
        end = cursor + limit
        return page, (shard, end) if end < len(names) else None if shard else (1, 0)


Asked = Callable[[FakeInspector], TestClient]


@pytest.fixture
def asked(still: LiveRelation) -> Asked:
    """A client of a console that asks this job."""

    def client(job: FakeInspector) -> TestClient:
        sources = ConsoleSources(still, lambda *_: {}, lists=JobLists(lambda: job))
        return TestClient(console(sources), base_url="http://localhost")

    return client


def test_groups_of_the_job_are_joined_with_those_of_the_updates(asked: Asked) -> None:
    job = FakeInspector()
    found = ask(asked(job), "groups", parent="orders", sort="quota")
    names = [(each["group"], each["clients"], each["quota"], each["subscribers"]) for each in found["groups"]]
    assert names == [("billing", 2, 5, 1), ("audit", None, None, 1), ("idle", 2, None, 0)]
    assert (found["total"], found["names"], found["basis"]) == (3, 3, BASIS)
    at_once = ask(asked(job), "groups", parent="orders", source="updates")
    assert ([each["group"] for each in at_once["groups"]], at_once["basis"]) == (["audit", "billing"], UPDATES_BASIS)


@pytest.mark.parametrize("failure", [None, Unanswered("nobody is there")])
def test_readers_share_a_question_about_groups(
    asked: Asked, failure: InspectError | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also one that was not answered, because a job that is missing takes seconds to notice."""
    job = FakeInspector(failure)
    client = asked(job)
    found = [ask(client, "groups", parent="orders") for _ in range(3)]
    assert job.asked == 1
    assert ("nobody is there" in found[2]["basis"], found[2]["total"]) == ((True, 2) if failure else (False, 3))
    monkeypatch.setattr(job_lists, "_FRESH_SECONDS", 0)
    ask(client, "groups", parent="orders")
    assert job.asked == 2


def test_a_group_list_that_is_cut_has_no_number_of_names(asked: Asked, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_lists, "MAX_ITEMS", 1)
    found = ask(asked(FakeInspector()), "groups", parent="orders")
    assert (found["names"], found["total"]) == (None, 2)


def test_topics_without_receivers_come_in_parts(asked: Asked, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each part is bounded, and names the place of the next one; only the first has the number of topics."""
    client = asked(FakeInspector())
    whole = ask(client, "unreceived", parent="orders")
    assert ([each["topic"] for each in whole["topics"]], whole["more"]) == (["idle__1", "idle__2", "idle__3"], None)
    assert (whole["searched"], whole["names"]) == (5, 5)
    for bound, value in (("_PAGE", 2), ("_FOUND", 1)):
        monkeypatch.setattr(job_lists, bound, value)
    parts, after = [], "0:0"
    while after:
        part = ask(client, "unreceived", parent="orders", after=after)
        parts.append(([each["topic"] for each in part["topics"]], part["searched"], part["names"]))
        after = part["more"]
    assert parts == [(["idle__1"], 2, 5), (["idle__2"], 1, None), (["idle__3"], 2, None)]
    selected = ask(client, "unreceived", parent="orders", search="idle__*", how="lite", after="1:0")
    assert [each["topic"] for each in selected["topics"]] == ["idle__3"]
    wrong = client.get("/api/unreceived", params={"parent": "orders", "after": "1:x"})
    assert (wrong.status_code, "parameter after" in wrong.json()["error"]) == (400, True)


def test_a_relation_with_gaps_lists_no_topics_without_receivers(broker: Simulated) -> None:
    """It would list topics whose rows it lacks."""
    broker.write(*ROWS, partition=0)
    cases: list[tuple[dict[str, Any], str]] = [
        ({"max_rows": 2}, "rows are omitted"),
        ({"parents": ["sensors"]}, "--parent"),
    ]
    for options, reason in cases:
        with LiveRelation(broker.address, TOPIC, **options) as live:
            live.wait_ready(60)
            sources = ConsoleSources(live, lambda *_: {}, lists=JobLists(FakeInspector))
            found = ask(TestClient(console(sources), base_url="http://localhost"), "unreceived", parent="orders")
            assert reason in found["error"]


def test_a_job_that_does_not_answer_is_reported(asked: Asked, browser: TestClient) -> None:
    assert ask(asked(FakeInspector()), "placed") == {"parents": ["orders"]}
    found = ask(asked(FakeInspector(Unanswered("nobody is there"))), "placed")
    assert found == {"error": "The job did not answer: nobody is there."}
    assert ask(browser, "placed") == {"error": "This console does not ask the job."}
