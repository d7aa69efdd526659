"""The playground agrees with the matcher."""

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

import matcher
from matcher.dialects.lite import Lite
from streaming.console import asking
from streaming.console.asking import Trial, attempt
from streaming.console.budget import STEPS
from streaming.console.listing import beginning
from streaming.console.live import LiveRelation
from tests.support.simulated import TOPIC, Simulated
from tests.support.update_records import add


def trial(
    pattern: str, *topics: str, dialect: str = "lite", parent: str | None = None, policy: str | None = None
) -> Trial:
    return Trial(pattern, dialect, policy, False, topics, parent)


def test_topics_that_match_and_others_with_each_segment(still: LiveRelation) -> None:
    found = attempt(trial("eu__*__created", "eu__acme__created", "us__acme__created", "eu"), still)
    assert found["valid"]
    assert (found["matched"], found["total"], found["cut"]) == (1, 3, "")
    (match,) = found["matching"]
    assert [step["verdict"] for step in match["steps"]] == ["equal", "one segment", "equal"]
    assert [(each["topic"], each["outcome"]) for each in found["others"]] == [
        ("us__acme__created", "segment"),
        ("eu", "too-short"),
    ]


def test_an_invalid_pattern_says_where_and_how_to_mend_it(still: LiveRelation) -> None:
    found = attempt(trial("eu/#/x", dialect="mqtt"), still)
    reason, hint = "'#' is not the last level", "move it to the end, or write '+' here"
    assert found == {"valid": False, "segment": 2, "position": 3, "reason": reason, "hint": hint}


def test_a_share_is_tried_with_its_filter(still: LiveRelation) -> None:
    found = attempt(trial("$share/s/eu/+", "eu/a", "$share/s/eu/a", dialect="mqtt"), still)
    assert [each["topic"] for each in found["matching"]] == ["eu/a"]
    assert [step["pattern"] for step in found["matching"][0]["steps"]] == ["eu", "+"]
    malformed = attempt(trial("$share//a", dialect="mqtt"), still)
    assert (malformed["valid"], malformed["position"]) == (False, 7)


def test_every_dialect_is_tried(still: LiveRelation) -> None:
    for dialect, policy in [*((name, None) for name in matcher.DIALECTS), ("wamp", "prefix")]:
        topic = f"a{matcher.get_dialect(dialect).separator}b"
        found = attempt(trial(topic, topic, "c", dialect=dialect, policy=policy), still)
        assert [each["topic"] for each in found["matching"]] == [topic], dialect


def test_topics_of_a_parent_are_tried(still: LiveRelation) -> None:
    found = attempt(trial("eu__*__created", parent="orders"), still)
    assert (found["matched"], found["checked"], found["total"]) == (2, 2, 3)
    assert [each["topic"] for each in found["matching"]] == ["eu__acme__created", "eu__globex__created"]
    assert [each["topic"] for each in found["others"]] == ["us__acme__created"]


def test_a_large_parent_is_tried_in_part_and_says_so(broker: Simulated, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asking, "SCANNED", 40)
    monkeypatch.setattr(asking, "_PAGE", 10)
    broker.write(*(add(f"a__{number:03}") for number in range(100)), partition=0)
    with LiveRelation(broker.address, TOPIC) as large:
        large.wait_ready(60)
        found = attempt(trial("a__*", parent="p"), large)
    assert (found["matched"], found["checked"], found["candidates"], found["total"]) == (40, 40, 100, 100)


def deep(segments: int, end: str = "") -> str:
    return "__".join(["s"] * segments) + end


@pytest.mark.parametrize(
    ("pattern", "topics"),
    [
        (deep(1_000, "__**"), [deep(4_000)] * 16),
        ("**__" + deep(1_000) + "__x__**", [deep(4_000)] * 16),
        ("**__" + "__**__".join("s" * 500) + "__x", [deep(255)] * 1_000),
        ("s__**", [deep(250)] * 1_000),
        ("s__**", ["s__" + "x" * 1_000] * 1_000),
    ],
    ids=["deep", "inner-wildcard", "many-inner-wildcards", "many-segments", "long-names"],
)
def test_the_work_and_the_size_of_an_answer_are_bounded(
    pattern: str, topics: list[str], still: LiveRelation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Counted in comparisons of segments, not in time."""
    compared = [0]

    class Counted(str):
        __slots__ = ()
        __hash__ = str.__hash__

        def __eq__(self, other: object) -> bool:
            compared[0] += 1
            return str.__eq__(self, other)

    split = Lite.split

    def counted(self: Lite, topic: str) -> list[str] | None:
        found = split(self, topic)
        return None if found is None else list(map(Counted, found))

    monkeypatch.setattr(Lite, "split", counted)
    found = attempt(Trial(pattern, "lite", None, True, topics, None), still)
    assert found["valid"]
    assert compared[0] <= 3 * STEPS
    assert len(orjson.dumps(found)) < 1_000_000
    if found["checked"] < found["total"]:
        assert "fewer" in found["cut"]


def test_the_segments_of_a_pattern_count_for_each_topic(still: LiveRelation) -> None:
    """To prepare a pattern of 4,800 segments for a short topic takes 0.9 ms."""
    found = attempt(Trial("**__" + "__**__".join("s" * 1_000), "lite", None, True, ["s"] * 1_000, None), still)
    assert 0 < found["checked"] * 2_000 <= STEPS


def test_a_deep_topic_has_its_verdict_without_segments(still: LiveRelation) -> None:
    found = attempt(trial("s__**", deep(8_000)), still)
    assert (found["matched"], found["matching"][0]["steps"]) == (1, [])
    assert "256 segments" in found["matching"][0]["reason"]


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
        assert name.startswith(beginning(rules.parse(text), rules.separator))
