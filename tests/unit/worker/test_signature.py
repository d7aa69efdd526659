"""Fields for the job alone count in records of its own."""

import json
from typing import Any

import pytest

from streaming.records.model import Reason, Source, Stream
from streaming.worker.rows import STREAMS, OutputKind
from streaming.worker.signature import Origin, Signer, own_fields
from streaming.worker.worker import Worker, WorkerConfig
from tests.support.events import WILD, encoded, leave, replace, tick, with_attributes
from tests.support.simulator import TOPICS as NAMES
from tests.support.states import CLOCK, GROUPS, HOME, SUBSCRIPTIONS, TOPICS, Written, row, work

OURS, THEIRS = Signer(b"ours"), Signer(b"theirs")
END = encoded(leave(asOf=[0, 5, 1_005]))
MOVE = encoded(with_attributes({}, parentTopic="p", supersededBy=[0, 5, 1_005]))
REQUEST_FIELDS: list[dict[str, Any]] = [
    {"later": [{}]}, {"later": 5}, {"asOf": [0, 5, 1_005]}, {"asOf": "x"}, {"asOf": [2**64 - 1] * 3},
    {"ends": []}, {"ends": {"m": {}}}, {"through": {}}, {"laterCount": "many"}, {"laterCount": 0},
    {"expired": True}, {"expired": True, "action": "COMPLETE_REMOVE"}, {"continues": True}, {"forgets": True},
    {"piece": [0, "{}"]}, {"piece": "x"},
]  # fmt: skip
GROUP_FIELDS: list[dict[str, Any]] = [{"supersededBy": 5}, {"boundTo": "q"}, {"boundTo": []}]
FORGED = [
    (SUBSCRIPTIONS, END),
    (GROUPS, MOVE),
    *((SUBSCRIPTIONS, encoded(replace("t", **fields))) for fields in REQUEST_FIELDS),
    *((GROUPS, encoded(with_attributes({}, parentTopic="p", **fields))) for fields in GROUP_FIELDS),
]


def worker(signer: Signer | None = OURS, **settings: Any) -> Worker:
    return Worker(WorkerConfig(NAMES, signer=signer, **settings))


def removed(output: Written) -> int:
    return output.kinds.count(OutputKind.REMOVE)


SUBSCRIBED = [
    row(GROUPS, WILD, 0),
    row(SUBSCRIPTIONS, replace("*"), 1),
    row(TOPICS, json.dumps({"event": "CREATED", "parentTopic": "p", "liteTopic": "t"}).encode(), 2),
]


@pytest.mark.rule("signature")
@pytest.mark.parametrize(("stream", "payload"), FORGED)
def test_what_a_user_signs_with_nothing_is_one_dead_letter(stream: int, payload: bytes) -> None:
    """And changes nothing. Its fields are not parsed, and a record that another job has signed is left out."""
    by = worker()
    state, _ = work("p", 0, SUBSCRIBED, None, by)
    forged = row(stream, payload, 9)
    after, output = work("p", 0, [forged], state, by)
    assert (after, output.reasons, removed(output)) == (state, [], 0)
    _, output = work(*HOME, [forged], None, by)
    (letter,) = output.letters
    assert letter["reason"] == Reason.RESERVED_FIELD
    assert all(field in letter["message"] for field in own_fields(STREAMS[stream], json.loads(payload)))
    assert work(*HOME, [forged._replace(payload=THEIRS.sign(payload))], None, by)[1].kinds == []


@pytest.mark.rule("signature")
@pytest.mark.parametrize("payload", [END, MOVE])
def test_what_the_job_signs_counts(payload: bytes) -> None:
    by, stream = worker(), SUBSCRIPTIONS if payload is END else GROUPS
    state, output = work("p", 0, SUBSCRIBED, None, by)
    assert output.kinds.count(OutputKind.ADD) == 1
    _, output = work("p", 0, [row(stream, OURS.sign(payload), 9)], state, by)
    assert removed(output) == 1
    assert work(*HOME, [row(stream, OURS.sign(payload), 9)], None, by)[1].reasons == []


def test_what_another_job_signs_is_left_out_without_a_word() -> None:
    """It is there for the shards of that job; this one writes its own."""
    by = worker()
    state, _ = work("p", 0, SUBSCRIBED, None, by)
    theirs = row(SUBSCRIPTIONS, THEIRS.sign(END), 9)
    after, output = work("p", 0, [theirs], state, by)
    assert (after, output.kinds) == (state, [])
    assert work(*HOME, [theirs], None, by)[1].kinds == []


@pytest.mark.rule("signature")
def test_what_a_former_release_wrote_counts_without_a_signature() -> None:
    """Up to the end that its inputs had when this one began."""
    by = worker(OURS._replace(unsigned={NAMES[SUBSCRIPTIONS]: {0: 9}}))
    state, _ = work("p", 0, SUBSCRIBED, None, by)
    assert removed(work("p", 0, [row(SUBSCRIPTIONS, END, 9)], state, by)[1]) == 0
    assert removed(work("p", 0, [row(SUBSCRIPTIONS, END, 8)], state, by)[1]) == 1


def test_the_coordinator_signs_what_it_writes_to_requests_and_groups() -> None:
    by = worker(client_timeout_ms=10)
    rows = [
        row(GROUPS, WILD, 0),
        row(GROUPS, with_attributes({"lite.bind.topic": "q"}), 1),
        row(SUBSCRIPTIONS, replace("t"), 2),
        row(CLOCK, tick(5_000), 3),
    ]
    _, output = work(*HOME, rows, None, by)
    written = {
        kind: payload or b""
        for kind, payload in zip(output.kinds, output.payloads, strict=True)
        if kind.startswith(OutputKind.INPUT)
    }
    assert written.keys() == {"input:groups", "input:subscriptions"}
    for payload in written.values():
        assert OURS.origin(payload, Source("t", 0, 0, 0, 0)) is Origin.OWN
    assert own_fields(Stream.GROUPS, json.loads(written["input:groups"]))
    assert own_fields(Stream.SUBSCRIPTIONS, json.loads(written["input:subscriptions"]))


@pytest.mark.parametrize("cut", [b"", b"}", b"{}", END[:-1], OURS.sign(END)[:-1], OURS.sign(END) + b" "])
def test_anything_else_is_unsigned(cut: bytes) -> None:
    assert OURS.origin(cut, Source("t", 0, 0, 0, 0)) is Origin.UNSIGNED


def test_a_signature_is_for_these_bytes_only() -> None:
    signed = OURS.sign(END)
    assert json.loads(signed) | {"sign": None} == json.loads(END) | {"sign": None}
    for at in (0, 20, len(END) - 2, len(signed) - 10):
        changed = signed[:at] + bytes([signed[at] ^ 1]) + signed[at + 1 :]
        assert OURS.origin(changed, Source("t", 0, 0, 0, 0)) is Origin.OTHER_JOB
    assert OURS.origin(OURS.sign(END), Source("t", 0, 0, 0, 0)) is Origin.OWN
