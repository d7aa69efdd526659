"""`reexpand verify` beside a real job: nothing is found on a right relation, and every fault by its name."""

import json
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from streaming.kafka.topics import configure
from streaming.oracle import Effective
from streaming.records.updates import Cause
from streaming.records.writing import update_key
from tests.support.brokers import StartBroker
from tests.support.processes import eventually
from tests.support.recorded_job import RecordedJob
from tests.support.running_job import POLL_SECONDS, PRODUCERS_TIME, SETTLE_SECONDS, Streams, running
from tests.support.scene import (
    LEASE_MS,
    Scene,
    ask_in_every_dialect,
    ask_with_selectors,
    coming_and_going,
    limits_and_times,
)
from tests.support.update_records import forged
from tests.support.verbs import reexpand, verify

RECORDED = sorted((Path(__file__).parents[1] / "fixtures").glob("checkpoint-format-*"))
OPTIONS = ("--shards", "p=3", "--tick-interval-ms", "1000", "--client-timeout-ms", str(LEASE_MS))


def last_add(streams: Streams, row: Effective) -> dict[str, Any]:
    about = [each for each in streams.read(streams.settings.updates) if each.key() == update_key(*row) and each.value()]
    found: dict[str, Any] = json.loads(about[-1].value() or b"")
    assert found["op"] == "ADD"
    return found


def all_features(scene: Scene) -> None:
    """Dialects, selectors, an exclusive group, quotas, times, and clients that leave."""
    scene.group("g", "p")
    scene.born("p", "orders__1__created", "sensors/a/temp", "fleet.eu.1", "com.app.x", "com.app2", "orders__2__created")
    ask_in_every_dialect(scene, "p")
    ask_with_selectors(scene)
    scene.asks("leaves", "both", "only", "b__1")
    scene.asks("leaves", "both", "limited", "2")
    limits_and_times(scene)


@pytest.mark.rule("repaired")
@pytest.mark.main
def test_a_live_job_is_verified_and_its_updates_are_repaired(streams: Streams, tmp_path: Path) -> None:
    """A right relation has no difference; stale records are named, all of them and nothing else, and taken back."""
    configure(streams.bootstrap_servers, {streams.settings.subscription_events: PRODUCERS_TIME})  # one fell silent
    scene, updates = Scene(streams), streams.settings.updates
    all_features(scene)
    with running(streams, tmp_path / "job.log", *OPTIONS) as job:
        causes = {Cause.TOPIC_EXPIRED, Cause.LEASE_EXPIRED}
        assert eventually(
            lambda: causes <= {update["cause"] for update in streams.updates()}, SETTLE_SECONDS, POLL_SECONDS
        )
        scene.asks("leaves", "both", "", action="COMPLETE_REMOVE")
        scene.settles(job)
        with coming_and_going(scene):
            time.sleep(2)
            settled = {row for row in streams.relation() if row.parent != "busy"}

            surplus = {
                Effective("p", "g", "lite", "orders__3__created"),
                Effective("only", "only-g", "first", "b__1"),
                Effective("leased", "timed", "keeps", "passes"),
                Effective("gone", "gone", "gone", "gone"),
                Effective("p", "g", "wamp", "com.app.y", "wamp:prefix:com.app"),
            }
            missing = {
                Effective("p", "g", "mqtt", "sensors/a/temp", "share:workers/sensors/#"),
                Effective("s", "priced", "c", "blue__1"),
                Effective("limited", "few", "some", "9"),
            }
            assert missing <= settled
            assert not surplus & settled
            streams.write(updates, *(record for row in surplus for record in forged("ADD", row)))
            streams.write(updates, *(record for row in missing for record in forged("REMOVE", row)))
            altered: dict[Effective, dict[str, Any]] = {
                Effective("p", "g", "nats", "fleet.eu.1"): {"patterns": ["fleet.*"]},
                Effective("s", "tagged", "c", "red__1"): {"version": 7},
                Effective("only", "only-g", "second", "b__1"): {"clientId": "first"},
            }
            for row, changes in altered.items():
                streams.write(updates, (update_key(*row), json.dumps({**last_add(streams, row), **changes}).encode()))
            wrong = verify(streams)
            assert wrong.exit_code == 1
            assert wrong.summary["rows"]["inputs"] >= 12
            assert wrong.faults == {
                **dict.fromkeys(surplus, "surplus-update"), **dict.fromkeys(missing, "missing-update"),
                **dict.fromkeys(altered, "wrong-value"),
            }  # fmt: skip
            last = {each["liteTopic"]: each["lastRecord"]["update"]["op"] for each in wrong.differences}
            assert (last["b__1"], last["blue__1"]) == ("ADD", "REMOVE")

            mended = verify(streams, "--repair")
            assert mended.differences == []
            assert mended.summary["repaired"] == len(surplus | missing | altered.keys())
            assert mended.exit_code == 0
        assert {row for row in streams.relation() if row.parent != "busy"} == settled
        repaired = [update for update in streams.updates() if update["cause"] == Cause.REPAIRED]
        written = Counter(update["op"] for update in repaired)
        assert written == {"ADD": len(missing) + len(altered), "REMOVE": len(surplus)}
        assert last_add(streams, Effective("p", "g", "nats", "fleet.eu.1"))["patterns"] == ["fleet.>"]
        assert last_add(streams, Effective("s", "tagged", "c", "red__1"))["version"] is None
        (added,) = (update for update in repaired if update["liteTopic"] == "blue__1")
        about = [update for update in streams.updates() if update["liteTopic"] == "blue__1"]
        (first,) = (update for update in about if update["op"] == "ADD" and update["cause"] != Cause.REPAIRED)
        assert added["patterns"] == first["patterns"] == ["**"]
        assert added["bitmap"] == first["bitmap"]


@pytest.mark.long
def test_a_killed_job_is_verified_and_its_state_as_well(streams: Streams, tmp_path: Path) -> None:
    """Updates of a micro-batch that was not committed are no fault; what the state lacks, and its damage, are."""
    scene = Scene(streams)
    scene.group("g", "p")
    scene.asks("c", "g", "p", "a__**")
    scene.born("p", *(f"a__{number:05}__{'x' * 20}" for number in range(1_500)))
    with running(streams, tmp_path / "job.log", "--tick-interval-ms", "0") as job:
        scene.settles(job)
        scene.born("p", "a__later")
        scene.settles(job)
        job.kill()
        job.forget_last_commit()
    right = verify(streams)
    assert right.differences == []
    assert right.exit_code == 0
    assert right.summary["inFlight"] == 1

    # The state is made to lack an event: the checkpoint says that it was read.
    scene.born("p", "a__skipped")
    scene.gone("p", f"a__00000__{'x' * 20}")
    scene.sent()
    batch = right.summary["microBatch"]
    (streams.checkpoint / "query" / "offsets" / str(batch + 1)).unlink()
    read = streams.checkpoint / "query" / "offsets" / str(batch)
    *head, offsets = read.read_text().splitlines()
    positions = json.loads(offsets)
    positions[streams.settings.topic_events] = {
        str(number): end for number, end in streams.ends(streams.settings.topic_events).items()
    }
    read.write_text("\n".join([*head, json.dumps(positions)]))
    read.with_name(f".{batch}.crc").unlink(missing_ok=True)
    wrong = verify(streams, "--repair")
    assert wrong.exit_code == 1
    assert {row.lite_topic: fault for row, fault in wrong.faults.items()} == {
        "a__skipped": "state-differs", f"a__00000__{'x' * 20}": "state-differs", "a__later": "state-differs"
    }  # fmt: skip
    assert wrong.summary["repaired"] == 0

    (part, *_) = (path for path in (streams.checkpoint / "parts").rglob("*") if path.is_file())
    content = bytearray(part.read_bytes())
    content[len(content) // 2] ^= 1
    part.write_bytes(bytes(content))
    damaged = verify(streams)
    assert damaged.exit_code == 1
    assert damaged.summary["damagedShards"] == 1
    assert "checksum" in damaged.differences[0]["problem"]


@pytest.mark.parametrize(
    "folder",
    [*(pytest.param(folder, marks=pytest.mark.long) for folder in RECORDED[:-1]), RECORDED[-1]],
    ids=lambda folder: folder.name,
)
def test_a_recorded_job_is_verified(folder: Path, own_broker: StartBroker, tmp_path: Path) -> None:
    """The job was stopped within a backfill of a client: the missing updates are in flight.

    The release of format 4 rejected a request because of a quota that this release caps: verification leaves that
    undecided. Both releases keyed the rows of shares by their names alone, which is reported until they are replaced.
    """
    recorded = RecordedJob(folder)
    streams = recorded.streams(own_broker().bootstrap_servers, tmp_path / "checkpoint")
    recorded.restore(streams)
    verdict = verify(streams)
    found = {(each["fault"], each["group"], each["liteTopic"]) for each in verdict.differences}
    shares = {each for each in found if each[1] == "fleet"}
    undecided = {("quota-order", "halves", "s0__a"), ("quota-order", "halves", "s1__a")}
    assert found - shares == (undecided if folder.name.endswith("-4") else set())
    assert {fault for fault, _, _ in shares} == {"missing-update", "surplus-update"}
    assert verdict.exit_code == 1
    told = sum(row.parent == "many" and row.client_id == "wide" for row in streams.relation())
    assert verdict.summary["inFlight"] == recorded.topics("many") - told > 0
    row = Effective("many", "wild", "nobody", "none")
    streams.write(streams.settings.updates, *forged("ADD", row), *forged("ADD", row._replace(parent="other")))
    limited = verify(streams, "--parent", "many", "--no-inputs")
    assert limited.faults == {row: "surplus-update"}
    assert limited.summary["rows"]["inputs"] is None


@pytest.mark.parametrize("options", [["--checkpoint", "nowhere"], []], ids=["no checkpoint", "no broker"])
def test_what_cannot_be_verified_ends_with_exit_code_2(options: list[str], streams: Streams, tmp_path: Path) -> None:
    (tmp_path / "checkpoint" / "query" / "commits").mkdir(parents=True)
    (tmp_path / "checkpoint" / "query" / "commits" / "0").touch()
    names = ("group_events", "subscription_events", "topic_events", "clock")
    identity = {name: getattr(streams.settings, name) for name in names}
    identity |= {"shards": {}, "route_depth": 1, "allow_inner_multi": False}
    (tmp_path / "checkpoint" / "reexpand.json").write_text(json.dumps(identity))
    given = options or ["--checkpoint", str(tmp_path / "checkpoint")]
    done = reexpand("verify", "--bootstrap-servers", "127.0.0.1:1", *given, codes=(2,), cwd=tmp_path)
    assert done.stderr.splitlines()[-1].startswith("Error: ")
