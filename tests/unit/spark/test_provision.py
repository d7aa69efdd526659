"""Kafka at the start: transactions of other checkpoints, the topic of answers, and group attributes from a file."""

import json
import logging
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock, Mock

import pytest

from streaming.config import load
from streaming.errors import ConfigInvalid, KafkaUnavailable
from streaming.kafka.permissions import partition_names
from streaming.records.model import BIND_TOPIC, QUOTA, WILDCARD
from streaming.records.parsing import parse_group_event
from streaming.spark import provision

SETTINGS = load({"bootstrap_servers": "b:1", "checkpoint": "/c"})
GONE, ALIVE, UNKNOWN = (f"{number}0000000-0000-4000-8000-000000000000" for number in "123")


@pytest.mark.rule("abandoned-transactions")
def test_only_transactions_of_drivers_that_are_gone_are_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def lease(_spark: object, _settings: object, checkpoint_id: str) -> MagicMock:
        asked.append(checkpoint_id)
        made = MagicMock()
        made.__enter__.return_value.is_abandoned.return_value = checkpoint_id == GONE
        return made

    monkeypatch.setattr(provision, "Lease", lease)
    others = ["reexpand-accept-orders-1", f"reexpand-{GONE}", f"other-{GONE}-1", f"reexpand-{GONE}-x", "accounts"]
    kafka = Mock()
    kafka.open_transactions.return_value = {
        *partition_names(GONE, 2), *partition_names(ALIVE, 1), *partition_names(UNKNOWN, 1), *others,
    }  # fmt: skip
    spark: Any = None
    provision.end_abandoned(spark, SETTINGS, kafka)
    kafka.end_transactions.assert_called_once_with(partition_names(GONE, 2))
    assert sorted(asked) == [GONE, ALIVE, UNKNOWN]


@pytest.mark.parametrize(
    ("present", "allowed", "created", "said"),
    [
        ([], None, True, None),
        (["lite-answers"], {"DESCRIBE", "WRITE"}, False, None),
        ([], None, KafkaUnavailable("Kafka refuses to create it."), "Kafka refuses to create it"),
        ([], None, KafkaUnavailable("TopicAuthorizationException"), "WRITE on the topic lite-answers"),
        (["lite-answers"], {"DESCRIBE"}, False, "WRITE on the topic lite-answers"),
    ],
)
def test_a_job_that_cannot_answer_goes_on_and_says_so(
    present: list[str], allowed: set[str] | None, created: Any, said: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    kafka = Mock()
    kafka.names.return_value = set(present)
    kafka.create.side_effect = [created]
    kafka.allowed_on_topics.return_value = {"lite-answers": allowed} if allowed else {}
    with caplog.at_level(logging.WARNING, "reexpand"):
        assert provision.provide_answers(kafka, SETTINGS) is (said is None)
    assert kafka.create.called == (not present)
    assert [said in message for message in caplog.messages if said] == ([True] if said else caplog.messages)


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
