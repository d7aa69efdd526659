"""Explanations from the updates."""

import pytest

from streaming.client import Subscriber
from streaming.console.budget import Budget
from streaming.console.explaining import _MEANING, BASIS, UpdatesExplainer
from streaming.console.live import LiveRelation
from streaming.updates.op import Cause
from tests.support.processes import eventually
from tests.support.simulated import Simulated
from tests.support.update_records import add, remove

C1 = Subscriber("orders", "billing", "c1")


@pytest.fixture
def explainer(still: LiveRelation) -> UpdatesExplainer:
    return UpdatesExplainer(still)


def test_a_row_is_explained_by_its_pattern(explainer: UpdatesExplainer) -> None:
    found = explainer.explain(C1, "eu__acme__created")
    assert found.receives
    assert found.headline == "c1 receives eu__acme__created: by eu__**, since the client subscribed."
    assert [(check.name, check.met) for check in found.checks] == [("topic", True), ("client", True), ("pattern", True)]
    assert [step["fits"] for step in found.checks[2].steps] == [True, True, True]
    assert found.basis == BASIS


def test_a_subscription_to_everything_has_no_pattern(explainer: UpdatesExplainer) -> None:
    found = explainer.explain(Subscriber("orders", "audit", "c2"), "eu__acme__created")
    assert found.checks[2].detail == "The client is subscribed to every topic of the parent."


def test_a_client_without_a_matching_pattern(explainer: UpdatesExplainer) -> None:
    """The known patterns are those of its other rows, with the verdict on each segment."""
    found = explainer.explain(C1, "us__acme__created")
    assert not found.receives
    assert found.headline == "c1 does not receive us__acme__created: none of its known patterns matches."
    pattern = found.checks[2]
    assert pattern.met is False
    assert pattern.detail == "eu__** (lite): segment 1 of the topic, 'us', is not 'eu'."


def test_a_pattern_that_matches_though_nothing_is_received(explainer: UpdatesExplainer) -> None:
    found = explainer.explain(C1, "eu__new")
    assert not found.receives
    assert found.headline.endswith(
        "though a pattern of it matches: a selector, a quota, or an exclusive group takes it away."
    )
    assert [check.met for check in found.checks] == [None, True, True]


def test_an_explanation_compares_a_bounded_number_of_patterns(
    explainer: UpdatesExplainer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Budget, "__init__", lambda self: self.__dict__.update(left=60, is_spent=False))
    found = explainer.explain(C1, "us__acme__created")
    assert found.headline == "c1 does not receive us__acme__created; not all of its patterns were compared."
    assert "reexpand explain" in found.basis
    assert found.checks[2].detail == "eu__** (lite) was not compared."


def test_the_last_removal_says_why(broker: Simulated, live: LiveRelation) -> None:
    names = {"parent": "orders", "client": "c1", "group": "billing"}
    broker.write(remove("eu__acme__created", changes={"cause": "EVICTED"}, **names), partition=0)
    broker.write(add("eu__acme__created", client="c9", group="billing", parent="orders"), partition=0)
    assert eventually(lambda: live.rows.row(Subscriber("orders", "billing", "c9"), "eu__acme__created") is not None)
    found = UpdatesExplainer(live).explain(C1, "eu__acme__created")
    assert found.headline.endswith("any more: a newer client of the exclusive group took the topic.")
    assert found.checks[-1].detail.startswith("In the same group c9 receives it")
    assert [seen["op"] for seen in found.history] == ["REMOVE", "ADD"]


def test_parts_of_a_client_are_looked_at_in_their_dialect(explainer: UpdatesExplainer) -> None:
    found = explainer.explain(Subscriber("sensors", "hot", "c3"), "eu/berlin/temp")
    assert found.receives
    assert found.checks[2].detail == "eu/# (mqtt): every segment fits."


def test_a_client_that_is_not_known(explainer: UpdatesExplainer) -> None:
    found = explainer.explain(Subscriber("orders", "g", "nobody"), "eu__acme__created")
    assert found.headline == "nobody does not receive eu__acme__created, nor any other topic of orders."
    assert found.checks[1].met is None


def test_every_cause_has_a_meaning() -> None:
    assert _MEANING.keys() == set(Cause)
