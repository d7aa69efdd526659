"""Which parent each group is bound to, and what the parent that it leaves is told."""

import json
from typing import Any

import pytest
from streaming.placement import Bucket, decode, encode, place

from streaming.errors import StateCorrupted
from streaming.events import BIND_TOPIC, GroupEvent, Source, parse_group_event
from streaming.subscription import Ignored


def bind(parent: str, group: str = "g") -> GroupEvent:
    return GroupEvent(group, {BIND_TOPIC: parent}, parent, None)


def delete(parent: str | None = None, group: str = "g") -> GroupEvent:
    return GroupEvent(group, {}, parent, None)


def echo(parent: str, offset: int = 1) -> GroupEvent:
    return GroupEvent("g", {}, parent, (3, offset, 1_000 + offset))


def told(parent: str, offset: int, group: str = "g") -> dict[str, Any]:
    """What is written back to the group stream."""
    return {"group": group, "attributes": {}, "parentTopic": parent, "supersededBy": [3, offset, 1_000 + offset]}


UNKNOWN = {Ignored.GROUP_UNKNOWN: 1}
CASES: list[tuple[str, dict[str, str], list[GroupEvent], dict[str, str], list[dict[str, Any]], dict[Ignored, int]]] = [
    ("a new group", {}, [bind("p")], {"g": "p"}, [], {}),
    ("new attributes on the same parent", {"g": "p"}, [bind("p")], {"g": "p"}, [], {}),
    ("a move", {"g": "p"}, [bind("q")], {"g": "q"}, [told("p", 0)], {}),
    ("a move of a group of this batch", {}, [bind("p"), bind("q")], {"g": "q"}, [told("p", 1)], {}),
    ("there and back", {"g": "p"}, [bind("q"), bind("p")], {"g": "p"}, [told("p", 0), told("q", 1)], {}),
    ("a deletion that names no parent", {"g": "p"}, [delete()], {}, [told("p", 0)], {}),
    ("a deletion that names the parent reaches it by itself", {"g": "p"}, [delete("p")], {}, [], {}),
    ("a deletion that names another parent does not concern this one", {"g": "p"}, [delete("q")], {"g": "p"}, [], {}),
    ("a deletion of an unknown group", {}, [delete()], {}, [], UNKNOWN),
    ("a deletion of an unknown group is counted by the parent that it names", {}, [delete("p")], {}, [], {}),
    ("a second deletion", {"g": "p"}, [delete(), delete()], {}, [told("p", 0)], UNKNOWN),
    ("deleted and bound again", {"g": "p"}, [delete(), bind("q")], {"g": "q"}, [told("p", 0)], {}),
    ("an echo is ignored", {"g": "q"}, [echo("p")], {"g": "q"}, [], {}),
    ("an echo that names the present parent is ignored as well", {"g": "p"}, [echo("p")], {"g": "p"}, [], {}),
    ("groups are apart", {"g": "p", "h": "p"}, [bind("q", "h")], {"g": "p", "h": "q"}, [told("p", 0, "h")], {}),
]


@pytest.mark.parametrize(
    ("before", "events", "after", "written", "ignored"), [case[1:] for case in CASES], ids=[case[0] for case in CASES]
)
def test_place(
    before: dict[str, str],
    events: list[GroupEvent],
    after: dict[str, str],
    written: list[dict[str, Any]],
    ignored: dict[Ignored, int],
) -> None:
    bucket = Bucket(dict(before))
    sourced = [(Source("groups", 3, offset, 0, 1_000 + offset), event) for offset, event in enumerate(events)]
    placement = place(bucket, sourced)
    assert placement.parents == after
    assert [json.loads(record.value or b"") for record in placement.events] == written
    assert [record.key.decode() for record in placement.events] == [event["group"] for event in written]
    assert placement.ignored == ignored
    assert bucket.parents == before, "the bucket itself was changed"


def test_what_is_written_back_is_a_valid_group_event() -> None:
    placement = place(Bucket({"g": "p"}), [(Source("groups", 3, 5, 0, 77), bind("q"))])
    (record,) = placement.events
    assert parse_group_event(record.value) == GroupEvent("g", {}, "p", (3, 5, 77))


def test_a_bucket_is_what_was_encoded() -> None:
    bucket = Bucket({"g": "p", "é": "😀"})
    assert decode(encode(bucket)) == bucket
    assert not Bucket()
    with pytest.raises(StateCorrupted):
        decode(encode(bucket)[:-1])
