"""`reexpand verify` applies the limits under which the job has read each record."""

from pathlib import Path
from typing import Any

import orjson
import pytest

from streaming.config import Settings, load
from streaming.errors import CheckpointMismatch, NotVerified
from streaming.operations.checkpoint import JobCheckpoint
from streaming.operations.verify.replay import Replay, Rules, StoredInput, refused_requests
from streaming.records.model import MAX_AHEAD_MS, Source, Stream
from streaming.records.routing import Routing
from streaming.spark import checkpoint, notes
from streaming.state import ShardState
from streaming.worker.bounds import Bounds
from streaming.worker.limits_note import LIMITS, Limits, dump, parse
from streaming.worker.signature import Origin, Signer
from tests.support.events import created, deleted, encoded, replace
from tests.support.simulator import TOPICS

SUBSCRIPTIONS = TOPICS[1]
SIGNER = Signer(b"secret")
WIDE = Bounds(1_000_000, 1_024, 20_000, 16_384, MAX_AHEAD_MS)


def rules(*limits: Limits) -> Rules:
    return Rules(TOPICS, Routing(), inner_multi=False, limits=limits, signer=SIGNER)


def request(offset: int, client: str, entries: int, **fields: Any) -> StoredInput:
    value = encoded(replace(*[f"n{each}" for each in range(entries)], client=client, parent="p", **fields))
    return StoredInput(Stream.SUBSCRIPTIONS, 0, offset, offset, value)


def clients(tmp_path: Path, rules: Rules, *records: StoredInput) -> set[str]:
    """The clients that are left in session when the inputs are applied at once."""
    replay = Replay(rules, tmp_path)
    replay.feed(records)
    return {
        key.client_id for _, state in replay.states() for key, client in state.clients.items() if client.literal.live
    }


def test_each_record_has_the_limits_of_its_time(tmp_path: Path) -> None:
    """A request that was too long when the job read it stays refused, whatever is allowed later."""
    narrow = WIDE._replace(entries=2)
    history = (
        Limits(narrow, cap_requests=False),
        Limits(WIDE, cap_requests=False, since={SUBSCRIPTIONS: {0: 2}}),
        Limits(narrow, cap_requests=False, since={SUBSCRIPTIONS: {0: 4}}),
    )
    records = [request(number, f"c{number}", 3) for number in range(5)]
    assert clients(tmp_path, rules(*history), *records) == {"c2", "c3"}
    assert clients(tmp_path, rules(), *records) == {f"c{number}" for number in range(5)}


def test_a_record_of_the_job_itself_has_no_bounds(tmp_path: Path) -> None:
    """The end of a client repeats its later requests, so it may be longer than any of them."""
    limits = Limits(WIDE._replace(value_bytes=400), cap_requests=False)
    source = Source(SUBSCRIPTIONS, 0, 0, 0, 0)
    first = request(0, "c", 1)
    end = orjson.dumps(
        {
            "action": "COMPLETE_REMOVE", "clientId": "c", "group": "g", "topic": "p", "asOf": [0, 1, 1, 0],
            "ends": {"literal": {"place": [0, 1, 1, 0]}, "wildcard": {"place": [0, 1, 1, 0]}}, "padding": "x" * 400,
        }
    )  # fmt: skip
    own, forged = SIGNER.sign(end), Signer(b"another").sign(end)
    assert SIGNER.origin(own, source) is Origin.OWN
    assert clients(tmp_path, rules(limits), first, first._replace(offset=2, value=own)) == set()
    assert clients(tmp_path, rules(limits), first, first._replace(offset=2, value=forged)) == {"c"}
    several = orjson.dumps({"subscriptionSet": [orjson.loads(request(0, name, 1).value or b"") for name in "cdefghij"]})
    assert clients(tmp_path, rules(limits), first._replace(value=several)) == set(), "a record of short requests"
    assert clients(tmp_path, rules(), first._replace(value=several)) == set("cdefghij")
    replay = Replay(rules(limits), tmp_path)
    replay.feed([StoredInput(Stream.TOPICS, 0, 0, 0, encoded(created(topic="x" * 400)))])
    assert list(replay.states()) == [], "a topic event that is too long"


def test_a_started_micro_batch_is_applied_in_the_order_of_the_job() -> None:
    """The job reads partition 0 first. Kafka returns partitions in any order."""
    events = [
        StoredInput(Stream.TOPICS, 1, 0, 0, encoded(created())),
        StoredInput(Stream.TOPICS, 0, 0, 0, encoded(deleted())),
    ]
    for records in (events, events[::-1]):
        state = ShardState()
        rules().apply(state, ("p", 0), rules().rows(records)["p", 0])
        assert list(state.topics) == ["t"]


def test_a_shard_without_new_records_stays_as_it_is() -> None:
    """Verification does so for a shard within a backfill."""
    state = ShardState()
    rules().apply(state, ("p", 0), [])
    assert state == ShardState()


@pytest.mark.parametrize("names", [{"topic": ["p"], "group": "g"}, {"topic": "p", "group": {}}, {"topic": None}, {}])
def test_dead_letters_that_somebody_else_wrote_name_no_group(names: dict[str, Any]) -> None:
    """Whoever may write to the topic of dead letters can put anything there."""
    forged = orjson.dumps({"reason": "quota-exceeded", "original": orjson.dumps(names).decode()})
    real = orjson.dumps({"reason": "quota-exceeded", "original": encoded(replace("t")).decode()})
    assert list(refused_requests([forged, b'"quota-exceeded"', b'{"original":"quota-exceeded"}', real])) == [("p", "g")]


def test_the_note_is_what_was_written() -> None:
    history = (
        Limits(WIDE, cap_requests=False),
        Limits(WIDE._replace(entries=1), cap_requests=True, since={SUBSCRIPTIONS: {0: 7, 1: 0}}),
    )
    assert parse(dump(history)) == history


@pytest.mark.parametrize("content", [b"", b"[1]", b'[{"since":{}}]', b"[{}]", b'[{"bounds":{"entries":1}}]'])
def test_a_damaged_note_is_refused_by_verify_and_by_a_start(
    tmp_path: Path, content: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / LIMITS).write_bytes(content)
    with pytest.raises(NotVerified, match=f"{LIMITS} cannot be read"):
        _ = JobCheckpoint(str(tmp_path)).limits
    with pytest.raises(CheckpointMismatch, match="delete it while the job is stopped"):
        Job(monkeypatch, tmp_path).starts()


class Files:
    """Files of a checkpoint without Spark."""

    def __init__(self, _: object, root: str) -> None:
        self.exists = lambda name: Path(root, name).exists()
        self.read = lambda name: Path(root, name).read_bytes()
        self.write = lambda name, content: Path(root, name).write_bytes(content)


class Job:
    """Starts of a job on one checkpoint."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
        monkeypatch.setattr(notes, "CheckpointFiles", Files)
        monkeypatch.setattr(checkpoint, "progress", lambda *_: checkpoint.QueryProgress(read=self.read))
        self.read: dict[str, dict[int, int]] = {}
        self.folder = folder

    def starts(self, **given: Any) -> tuple[Limits, ...]:
        """Start, and return what `verify` reads then."""
        settings: Settings = load({"bootstrap_servers": "b:1", "checkpoint": str(self.folder), **given})
        spark: Any = None
        notes.note_limits(spark, settings)
        return JobCheckpoint(str(self.folder)).limits


def test_a_start_notes_other_limits_with_the_offsets_that_were_read(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    job = Job(monkeypatch, tmp_path)
    assert JobCheckpoint(str(tmp_path)).limits == ()
    first = Limits(WIDE, cap_requests=False)
    assert job.starts() == (first,)
    job.read = {SUBSCRIPTIONS: {0: 5}}
    assert job.starts() == (first,)
    narrow = Limits(WIDE._replace(entries=3), cap_requests=True, since=job.read)
    assert job.starts(max_entries=3, cap_requests=True) == (first, narrow)
    assert job.starts(max_entries=4) == (first, Limits(WIDE._replace(entries=4), cap_requests=False, since=job.read))
