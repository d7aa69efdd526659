"""Explanations from the updates, and from a job that may not answer."""

from typing import Self

import pytest

from streaming.client import Subscriber
from streaming.config import load
from streaming.console import explaining
from streaming.console.explaining import _MEANING, BASIS, UPDATES_BASIS, explain, explain_by_updates
from streaming.console.live import LiveRelation
from streaming.errors import InspectError
from streaming.inspect import Explanation, SegmentStep
from streaming.records.op import Cause
from streaming.worker.inquiry.model import EntryVerdict, GroupFacts, Hint, PairFacts, PairVerdict
from tests.support.processes import eventually
from tests.support.simulated import Simulated
from tests.support.update_records import add, remove

C1 = Subscriber("orders", "billing", "c1")


def test_a_row_names_its_entries_and_its_cause(still: LiveRelation) -> None:
    found = explain_by_updates(still, C1, "eu__acme__created")
    assert found["receives"]
    assert found["headline"] == "c1 receives eu__acme__created: by eu__**, since the client subscribed."
    assert (found["basis"], found["checks"]) == (UPDATES_BASIS, [])
    assert [seen["op"] for seen in found["history"]] == ["ADD"]
    everything = explain_by_updates(still, Subscriber("orders", "audit", "c2"), "eu__acme__created")
    assert "by its subscription to every topic" in everything["headline"]
    by_part = explain_by_updates(still, Subscriber("sensors", "hot", "c3"), "eu/berlin/temp")
    assert (by_part["receives"], [seen["part"] for seen in by_part["history"]]) == (True, ["share:s"])


@pytest.mark.parametrize("client", ["c1", "unknown"])
def test_a_pair_without_changes(still: LiveRelation, client: str) -> None:
    found = explain_by_updates(still, Subscriber("orders", "billing", client), "us__acme__created")
    assert (found["receives"], found["history"]) == (False, [])
    headline = f"{client} does not receive us__acme__created, and the kept updates contain no"
    assert found["headline"].startswith(headline)


def test_the_last_removal_names_its_cause(broker: Simulated, live: LiveRelation) -> None:
    names = {"parent": "orders", "client": "c1", "group": "billing"}
    broker.write(remove("eu__acme__created", changes={"cause": "EVICTED"}, **names), partition=0)
    assert eventually(lambda: live.rows.row(C1, "eu__acme__created") is None)
    found = explain_by_updates(live, C1, "eu__acme__created")
    assert found["headline"] == (
        "c1 no longer receives eu__acme__created: a newer client of the exclusive group received the topic."
    )
    assert [seen["op"] for seen in found["history"]] == ["REMOVE", "ADD"]


def test_a_client_without_a_group_is_explained_in_the_group_that_receives(
    broker: Simulated, live: LiveRelation
) -> None:
    broker.write(add("other", parent="orders", client="c1", group="abc"), partition=0)
    asked = Subscriber("orders", "", "c1")
    assert eventually(lambda: live.rows.count_of_topic("orders", "other") == 1)
    found = explain_by_updates(live, asked, "eu__acme__created")
    assert (found["receives"], found["groups"]) == (True, ["billing", "abc"])
    assert explain_by_updates(live, asked, "other")["groups"] == ["abc", "billing"]
    assert explain_by_updates(live, asked._replace(client_id="c"), "other")["groups"] == [""]


def test_every_cause_has_a_meaning() -> None:
    assert _MEANING.keys() == set(Cause)


class FakeInspector:
    """A job that answers, or does not."""

    def __init__(self, *answers: Explanation) -> None:
        self.answers = answers

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Close nothing."""

    def explain(self, *_: object, **__: object) -> list[Explanation]:
        """Answer."""
        if not self.answers:
            raise InspectError("no job answers")
        return list(self.answers)


SETTINGS = load({"bootstrap_servers": "broker:1", "checkpoint": "unused"})


def test_reasons_come_from_the_job(monkeypatch: pytest.MonkeyPatch, still: LiveRelation) -> None:
    """With each entry segment by segment, and the history from the updates."""
    steps = (
        SegmentStep("us", "eu", fits=False, verdict="differs"),
        SegmentStep("**", "acme", fits=True, verdict="any"),
    )
    entry = EntryVerdict("us__**", "lite", None, matches=False, reason="segment 1 differs", steps=steps)
    pair = PairFacts(
        parent="orders", topic="eu__acme__created", group="billing", client="c1", verdict=PairVerdict.NO_MATCH,
        reason="no entry matches", decided_by=None, topic_facts=None, client_facts=None, entries=(entry,),
        group_facts=GroupFacts("billing", {}, "wildcard", exclusive=False, quota=-1),
    )  # fmt: skip
    answer = Explanation(pair, None, None, None, (Hint("x", "a hint"),))
    monkeypatch.setattr(explaining, "Inspector", lambda *_: FakeInspector(answer))
    found = explain(SETTINGS, still, C1, "eu__acme__created")
    assert found["headline"] == "c1 does not receive eu__acme__created: no entry matches."
    assert (found["receives"], found["basis"]) == (False, BASIS)
    shown = next(check for check in found["checks"] if check["name"] == "entry")
    assert (shown["met"], [step["fits"] for step in shown["steps"]]) == (False, [False, True])
    assert found["checks"][-1]["detail"] == "a hint"
    assert [seen["op"] for seen in found["history"]] == ["ADD"]


def test_the_job_explains_the_group_that_receives(monkeypatch: pytest.MonkeyPatch, still: LiveRelation) -> None:
    """Of very many groups it names the first ones."""
    answers = [
        Explanation(
            PairFacts(
                parent="orders", topic="t", group=group, client="c1", verdict=verdict, reason="why", decided_by=None,
                topic_facts=None, client_facts=None, entries=(),
                group_facts=GroupFacts(group, {}, "wildcard", exclusive=False, quota=-1),
            ), None, None, None, (),
        )
        for group, verdict in [
            *((f"g{number:02}", PairVerdict.NO_MATCH) for number in range(30)), ("last", PairVerdict.RECEIVED)
        ]
    ]  # fmt: skip
    monkeypatch.setattr(explaining, "Inspector", lambda *_: FakeInspector(*answers))
    found = explain(SETTINGS, still, C1._replace(group=""), "t")
    assert found["receives"]
    assert found["groups"] == ["last", *(f"g{number:02}" for number in range(19))]


def test_without_an_answer_the_updates_are_used(monkeypatch: pytest.MonkeyPatch, still: LiveRelation) -> None:
    monkeypatch.setattr(explaining, "Inspector", lambda *_: FakeInspector())
    found = explain(SETTINGS, still, C1, "eu__acme__created")
    assert found["headline"].startswith("c1 receives eu__acme__created")
    assert found["basis"] == f"{UPDATES_BASIS} The job did not answer: no job answers."
