"""Group attributes from a file."""

import json
from pathlib import Path

import pytest

from streaming.errors import ConfigInvalid
from streaming.records.model import BIND_TOPIC, QUOTA, WILDCARD
from streaming.records.parsing import parse_group_event
from streaming.spark import provision


@pytest.mark.rule("group-file")
def test_a_file_gives_an_event_for_each_group(tmp_path: Path) -> None:
    file = tmp_path / "groups.toml"
    file.write_text(f'["g"]\n"{BIND_TOPIC}" = "p"\n"{WILDCARD}" = true\n["h.i"]\n"{BIND_TOPIC}" = "q"\n"{QUOTA}" = 5\n')
    events = provision.read_groups(file)
    assert {group: json.loads(event)["group"] for group, event in events.items()} == {"g": "g", "h.i": "h.i"}
    assert parse_group_event(events["g"]).attributes == {BIND_TOPIC: "p", WILDCARD: "true"}
    assert parse_group_event(events["h.i"]).attributes == {BIND_TOPIC: "q", QUOTA: "5"}


@pytest.mark.rule("group-file")
@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[g", "is not TOML"),
        ('["g"]\n"lite.sub.wildcard" = true', "group 'g': the attributes lack lite.bind.topic"),
        ('g = "p"', "group 'g': attributes must be an object"),
        ('["g"]\n"lite.bind.topic" = "p"\n"lite.sub.client.quota" = -5', "group 'g': lite.sub.client.quota"),
        ('["g"]\n"lite.bind.topic" = 5', "group 'g': attribute"),
    ],
)
def test_a_file_that_is_not_valid_is_refused(tmp_path: Path, text: str, said: str) -> None:
    """Before anything is written, with the file, the group and what is wrong."""
    file = tmp_path / "groups.toml"
    file.write_text(text)
    with pytest.raises(ConfigInvalid, match=r"groups\.toml") as caught:
        provision.read_groups(file)
    assert said in str(caught.value)
