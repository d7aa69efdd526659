"""The list of permissions, and the page that shows it."""

import re
from pathlib import Path

from confluent_kafka import KafkaError, KafkaException

from streaming.config import load
from streaming.kafka.clients import reason
from streaming.kafka.permissions import PERMISSIONS, Grant, grants, missing, readable

PAGE = Path(__file__).parents[3] / "docs" / "security.md"


def test_the_table_of_the_page_is_the_list() -> None:
    """Row by row: role, resources, operation, purpose."""
    rows = [line.split("|")[1:-1] for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("| ")]
    found = [
        (role.strip("` "), kind.strip(), tuple(re.findall(r"`([^`]+)`", names)), operation.strip("` "), why.strip())
        for role, kind, names, operation, why in (row for row in rows if len(row) == 5)
    ][1:]
    assert found == [(p.role, p.kind.lower().replace("_", " "), p.resources, p.operation, p.why) for p in PERMISSIONS]


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
