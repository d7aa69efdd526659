"""The list of permissions, and the page that shows it."""

import re
from itertools import takewhile
from pathlib import Path
from typing import Final

from confluent_kafka import KafkaError, KafkaException

from streaming.config import load
from streaming.kafka.clients import reason
from streaming.kafka.permissions import PERMISSIONS, Grant, Kind, Permission, grants, missing, readable

PAGE = Path(__file__).parents[3] / "docs" / "security.md"
HEADER = "| role | resources | operation | purpose |\n|---|---|---|---|\n"
KINDS: Final[dict[str, Kind]] = {"topic": "TOPIC", "group": "GROUP", "transactional id": "TRANSACTIONAL_ID"}
INPUTS = "`group_events`, `subscription_events`, `topic_events`"
"""Settings that the page abbreviates as inputs."""


def _row(line: str) -> Permission:
    """Read a row of the page: role, resources, operation, purpose."""
    role, resources, operation, why = (cell.strip() for cell in line.split("|")[1:-1])
    names = resources.replace("all topics", "inputs, `clock`, `updates`, `dead_letters`").replace("inputs", INPUTS)
    kind = names.partition("`")[0].strip() or "topic"
    found = tuple(re.findall(r"`([^`]+)`", names))
    return Permission(role.strip("`"), found, operation, why, KINDS[kind])


def test_the_table_of_the_page_is_the_list() -> None:
    _, _, table = PAGE.read_text(encoding="utf-8").partition(HEADER)
    rows = takewhile(lambda line: line.startswith("| "), table.splitlines())
    assert [_row(row) for row in rows] == list(PERMISSIONS)


def test_nothing_is_asked_for_twice() -> None:
    """Nor beside an operation that includes it."""
    settings = load({"bootstrap_servers": "b:1", "checkpoint": "/c"})
    implied = {"DESCRIBE": {"READ", "WRITE"}, "DESCRIBE_CONFIGS": {"ALTER_CONFIGS"}}
    for role in {permission.role for permission in PERMISSIONS}:
        found = grants(role, settings)
        assert len(set(found)) == len(found)
        for grant in found:
            others = {other.operation for other in found if other[:2] == grant[:2]}
            assert not implied.get(grant.operation, set()) & others


def test_grants_have_the_names_of_the_settings() -> None:
    settings = load({"bootstrap_servers": "b:1", "checkpoint": "/c", "updates": "u"})
    assert Grant("TOPIC", "u", "WRITE") in grants("job", settings)
    assert Grant("TOPIC", "shop-delivered", "WRITE") in grants("dispatcher", settings, "shop")


def test_a_refusal_names_what_is_missing() -> None:
    refused = KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)
    expected = "Kafka does not allow this user READ on the topic t; docs/security.md lists what each needs"
    assert reason(refused, readable("t")) == reason(KafkaException(refused), readable("t")) == expected
    assert "on the transactional id reexpand-..." in missing([Grant("TRANSACTIONAL_ID", "reexpand-", "WRITE")])
    assert "allow" not in reason(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART), readable("t"))
