"""Findings in words and as JSON."""

import io
import json
from collections import Counter

import pytest
from rich.console import Console

from streaming.operations.verify import findings as report
from streaming.operations.verify.findings import DamagedState, Difference, Fault, Findings, RowName, UpdateRecord
from tests.support.events import replace

ROW = RowName("orders", "billing", "c1", "eu__1")
RECORD = UpdateRecord(0, 7, 1_000, {**replace("t"), "op": "ADD", "cause": "SUBSCRIBED"})
SURPLUS = Difference(b"key", ROW, Fault.SURPLUS_UPDATE, inputs=False, state=False, updates=True, record=RECORD)
QUOTA = Difference(b"key", ROW, Fault.QUOTA_ORDER, inputs=True, state=False, updates=False)
DAMAGED = DamagedState("orders", 3, "a state value fails its checksum")


def shown(findings: Findings) -> str:
    console = Console(file=io.StringIO(), highlight=False)
    report.show(findings, console)
    written = console.file
    assert isinstance(written, io.StringIO)
    return written.getvalue()


def findings(*differences: Difference, **fields: object) -> Findings:
    rows: dict[str, int | None] = {"inputs": None, "state": 2, "updates": 3}
    made = Findings(7, rows, differences=list(differences))
    for name, value in fields.items():
        setattr(made, name, value)
    return made


def test_a_right_relation_is_shown_in_two_lines() -> None:
    assert shown(findings()) == (
        "rows after micro-batch 7: not read by inputs, 2 by state, 3 by updates\nthe relation is right\n"
    )


@pytest.mark.parametrize(
    ("found", "is_right", "said"),
    [
        (
            findings(SURPLUS),
            False,
            "surplus-update  orders  c1 (billing)    eu__1  no      no     yes      ADD SUBSCRIBED [0]@7",
        ),
        (findings(SURPLUS), False, "1 surplus-update: the updates topic has an ADD of a row outside the relation"),
        (findings(SURPLUS), False, "the relation is wrong: 1 difference\n"),
        (findings(QUOTA), True, "the relation is right\n"),
        (findings(QUOTA, SURPLUS), False, "the relation is wrong: 1 difference\n"),
        (findings(damaged=[DAMAGED]), False, "damaged: shard 3 of orders: a state value fails its checksum"),
        (findings(corrected=Counter([Fault.SURPLUS_UPDATE])), True, "1 row was repaired; the relation is right\n"),
    ],
)
def test_the_relation_is_right_or_what_is_wrong_is_shown(found: Findings, is_right: bool, said: str) -> None:  # noqa: FBT001
    text = shown(found)
    assert (found.is_right, said in text) == (is_right, True)
    assert text.endswith("the relation is right\n") == is_right


def test_many_differences_are_cut_in_the_text_only() -> None:
    many = findings(*[SURPLUS] * 25)
    assert "and 5 more (--json has all)" in shown(many)
    assert len(list(report.as_json(many))) == 26


def test_json_has_the_record_and_a_summary_as_its_last_line() -> None:
    difference, summary = map(json.loads, map(json.dumps, report.as_json(findings(SURPLUS))))
    assert difference["lastRecord"]["update"]["cause"] == "SUBSCRIBED"
    assert (difference["inputs"], difference["state"], difference["updates"]) == (False, False, True)
    assert (summary["right"], summary["differences"]) == (False, {"surplus-update": 1})
