"""The demo's verdict: every difference is found, in both directions."""

from __future__ import annotations

from dataclasses import replace

import pytest

from streaming.client import Relation
from streaming.examples.scenario import ORDERS, Step, appears, relation, subscribes, wildcard_group
from streaming.examples.verdict import (
    Coordinates,
    DeadLetter,
    ReceivedUpdate,
    Transcript,
    Verdict,
    effective_rows,
    judge,
)
from streaming.oracle import Effective
from streaming.records.model import Reason, Stream
from streaming.records.updates import Cause, Op
from tests.support.update_records import add, gone

BAD = Step(Stream.TOPICS, ORDERS, b"{", "a bad record", Reason.NOT_JSON)
STEPS = [wildcard_group("g", ORDERS), subscribes("c", "g", ORDERS, "eu__*"), appears(ORDERS, "eu__a"), BAD]
PLACES = [Coordinates("in", 0, number) for number in range(len(STEPS))]
RIGHT = {Effective(ORDERS, "g", "c", "eu__a")}
OTHER = Effective(ORDERS, "g", "c", "us__a")
LETTER = DeadLetter(Reason.NOT_JSON, "not JSON", PLACES[3], 2_000)
UPDATE = ReceivedUpdate(Op.ADD, Effective(ORDERS, "g", "c", "eu__a"), ("eu__*",), Cause.TOPIC_CREATED, 1_000, 2_000)


def record(*letters: DeadLetter) -> Transcript:
    return Transcript(list(zip(STEPS, PLACES, strict=True)), [UPDATE], list(letters))


def verdict(held: set[Effective], *letters: DeadLetter) -> Verdict:
    return judge(record(*letters), held, relation(STEPS))


def test_what_the_oracle_says_passes() -> None:
    result = verdict(RIGHT, LETTER)
    assert result.ok
    assert "contains the 1 (client, topic) pairs" in result.sentence
    assert result.differences == []
    assert (result.sent, result.updates, result.dead_letters) == (
        {"groups": 1, "subscriptions": 1, "topics": 2},
        {"ADD": 1, "REMOVE": 0},
        {"not-json": 1},
    )
    assert verdict(RIGHT, LETTER, LETTER).ok, "delivery is at least once"


@pytest.mark.parametrize(
    ("result", "sentence", "difference"),
    [
        (verdict(set(), LETTER), "1 missing from the updates topic", "missing: c (g) receives orders/eu__a"),
        (
            verdict({*RIGHT, OTHER}, LETTER),
            "1 surplus in the updates topic",
            "surplus: c (g) receives orders/us__a",
        ),
        (verdict(RIGHT), "1 missing dead letters", "missing: dead letter not-json for in[0]@3"),
        (
            verdict(RIGHT, LETTER, replace(LETTER, source=PLACES[2])),
            "1 unexpected dead letters",
            "surplus: dead letter not-json for in[0]@2",
        ),
    ],
)
def test_what_differs_is_named(result: Verdict, sentence: str, difference: str) -> None:
    assert not result.ok
    assert sentence in result.sentence
    assert result.differences == [difference]
    assert len(verdict(RIGHT, replace(LETTER, reason=Reason.WRONG_TYPE)).differences) == 2


@pytest.mark.parametrize(
    ("latencies", "percent", "expected"),
    [([], 50, None), ([7], 50, 7), ([7], 95, 7), ([1, 2], 50, 1), (range(1, 101), 50, 50), (range(1, 101), 95, 95)],
)
def test_a_percentile_is_one_of_the_latencies(latencies: list[int], percent: int, expected: int | None) -> None:
    assert replace(verdict(RIGHT), latencies_ms=list(latencies)).percentile_ms(percent) == expected


def test_what_waited_for_the_first_micro_batch_is_not_measured() -> None:
    """An update is cold when its event was sent before the job's first output."""
    seen = record(LETTER)
    seen.updates.append(replace(UPDATE, sent_ms=2_500, seen_ms=2_800))
    result = judge(seen, RIGHT, RIGHT)
    assert (result.cold, list(result.latencies_ms)) == (1, [300])
    assert Transcript().is_cold(UPDATE)


def test_what_is_held_has_the_names_of_the_oracles_rows() -> None:
    """A subscription that counts by itself included."""
    relation = Relation()
    for record in (add("eu__a"), add("eu__b"), add("eu__c", part="share:s"), gone("eu__b")):
        relation.apply(*record)
    assert effective_rows(relation) == {Effective("p", "g", "c", "eu__a"), Effective("p", "g", "c", "eu__c", "share:s")}
