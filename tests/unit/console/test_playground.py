"""The playground agrees with the matcher."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

import matcher
from streaming.console import playground
from streaming.console.live import LiveRelation
from streaming.console.playground import Trial, attempt
from tests.support.simulated import TOPIC, Simulated
from tests.support.update_records import add


def trial(
    pattern: str, *topics: str, dialect: str = "lite", parent: str | None = None, policy: str | None = None
) -> Trial:
    return Trial(pattern, dialect, policy, False, topics, parent)


def test_topics_that_match_and_others_with_each_segment(still: LiveRelation) -> None:
    found = attempt(trial("eu__*__created", "eu__acme__created", "us__acme__created", "eu"), still)
    assert found["valid"]
    assert (found["matched"], found["total"]) == (1, 3)
    (match,) = found["matching"]
    assert [step["verdict"] for step in match["steps"]] == ["equal", "one segment", "equal"]
    assert [(each["topic"], each["outcome"]) for each in found["others"]] == [
        ("us__acme__created", "segment"),
        ("eu", "too-short"),
    ]


def test_an_invalid_pattern_says_where_and_how_to_mend_it(still: LiveRelation) -> None:
    found = attempt(trial("eu/#/x", dialect="mqtt"), still)
    assert found == {
        "valid": False,
        "segment": 2,
        "position": 3,
        "reason": "'#' is not the last level",
        "hint": "move it to the end, or write '+' here",
    }


@pytest.mark.parametrize(
    ("dialect", "policy"), [("lite", None), ("mqtt", None), ("nats", None), ("wamp", None), ("wamp", "prefix")]
)
def test_every_dialect_is_tried(dialect: str, policy: str | None, still: LiveRelation) -> None:
    topic = f"a{matcher.get_dialect(dialect).separator}b"
    found = attempt(trial(topic, topic, "c", dialect=dialect, policy=policy), still)
    assert [each["topic"] for each in found["matching"]] == [topic]


def test_topics_of_a_parent_are_tried(still: LiveRelation) -> None:
    found = attempt(trial("eu__*__created", parent="orders"), still)
    assert (found["matched"], found["checked"], found["total"]) == (2, 2, 3)
    assert [each["topic"] for each in found["matching"]] == ["eu__acme__created", "eu__globex__created"]
    assert [each["topic"] for each in found["others"]] == ["us__acme__created"]


def test_a_large_parent_is_tried_in_part_and_says_so(broker: Simulated, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(playground, "SCANNED", 40)
    monkeypatch.setattr(playground, "_PAGE", 10)
    broker.write(*(add(f"a__{number:03}") for number in range(100)), partition=0)
    with LiveRelation(broker.address, TOPIC) as large:
        large.wait_ready(10)
        found = attempt(trial("a__*", parent="p"), large)
    assert (found["matched"], found["checked"], found["candidates"], found["total"]) == (40, 40, 100, 100)


@given(
    st.sampled_from(["lite", "mqtt", "nats", "wamp"]),
    st.lists(st.sampled_from(["a", "b", "*", "+", "**", "#", ">", ""]), min_size=1, max_size=4),
    st.lists(st.sampled_from(["a", "b", "ab", ""]), max_size=4),
)
def test_a_topic_that_matches_has_the_beginning_that_is_searched(
    dialect: str, pattern: list[str], topic: list[str]
) -> None:
    """So the search of a parent overlooks none."""
    rules = matcher.get_dialect(dialect)
    text, name = rules.separator.join(pattern), rules.separator.join(topic)
    if matcher.matches(text, name, dialect):
        assert name.startswith(playground._beginning(rules.parse(text), rules.separator))
