"""The sample traffic: valid events, after which every client receives something."""

from itertools import islice
from pathlib import Path
from random import Random

import pytest
from click.testing import CliRunner

from streaming.examples import traffic
from tests.support.histories import expected
from tests.support.simulator import Record


def records(count: int, seed: int = 1) -> list[Record]:
    events = islice(traffic.events(Random(seed)), count)
    return [Record(each.stream, each.value, 0, at) for at, each in enumerate(events)]


def test_every_client_receives_topics_by_its_pattern() -> None:
    relation = expected([records(400)]).relation()
    clients = {(row.group, row.client_id) for row in relation}
    assert clients == {(group, f"{tenant}-{group}") for group in traffic.GROUPS for tenant in traffic.TENANTS}
    for row in relation:
        _, tenant, _, step = row.lite_topic.split("__")
        assert row.client_id == f"{tenant}-{row.group}"
        assert step == {"billing": "paid", "logistics": "shipped"}.get(row.group, step)


def test_the_number_of_topics_is_bounded_and_a_seed_determines_the_events() -> None:
    assert records(200) == records(200) != records(200, seed=2)
    relation = expected([records(3_000)]).relation()
    topics = {row.lite_topic for row in relation if row.group == "dashboard"}
    assert len(topics) - traffic.LIVE_TOPICS in (0, 1)  # one may just have come


def test_a_broker_that_is_away_is_a_sentence() -> None:
    result = CliRunner().invoke(traffic.main, ["--bootstrap-servers", "127.0.0.1"])
    assert result.exit_code == 1
    assert "bootstrap_servers must be host:port" in result.output


@pytest.mark.parametrize("unacknowledged", [0, 1])
def test_the_heartbeat_needs_kafkas_acknowledgement(
    unacknowledged: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class FakeWriter:
        def __init__(self, *_: object) -> None: ...

        def send(self, *_: object) -> None: ...

        def wait(self, _: float) -> int:
            return unacknowledged

        def flush(self, _: float) -> None: ...

    monkeypatch.setattr(traffic, "wait_for_broker", lambda *_, **__: None)
    monkeypatch.setattr(traffic, "Writer", FakeWriter)
    file = tmp_path / "heartbeat"
    options = ("--bootstrap-servers", "b:1", "--rate", "1000", "--heartbeat-file", str(file))
    assert CliRunner().invoke(traffic.main, [*options, "--count", "1"]).exit_code == 0
    assert not file.exists(), "no event has been acknowledged yet"
    assert CliRunner().invoke(traffic.main, [*options, "--count", "2"]).exit_code == 0
    assert file.exists() == (unacknowledged == 0)
