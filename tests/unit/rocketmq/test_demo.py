"""The judgement of the demo on RocketMQ."""

from __future__ import annotations

import json
import time
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from streaming.rocketmq import demo
from streaming.rocketmq.demo import BEFORE, SCENES, USERS, LitePlay, receivers

if TYPE_CHECKING:
    from collections.abc import Mapping

TOPICS = list(dict.fromkeys(topic for scene in (BEFORE, *SCENES) for topic in scene.topics))


def test_the_scenario_tells_the_consumers_apart() -> None:
    """Each receives some topics and not others, but for the auditor."""
    found = receivers(TOPICS, {"us__acme__order__created"})
    assert {user.name: len(found[user.name]) for user in USERS} == {
        "acme-billing": 2, "globex-billing": 2, "eu-warehouse": 3, "auditor": len(TOPICS) - 1,
    }  # fmt: skip


def played(*, without: tuple[str, str] | None = None, surplus: bool = False) -> LitePlay:
    """A play of two topics, of which all messages came, but for one."""
    play = LitePlay(as_json=True)
    producer = SimpleNamespace(send=lambda *_: None)
    for topic in TOPICS[:2]:
        play.send(producer, topic)
    for user in USERS:
        for topic in TOPICS[:2]:
            is_right = topic in play.held()[user.name]
            if (is_right or surplus) and (user.name, topic) != without:
                play.listener(user)(SimpleNamespace(lite_topic=topic, body=b"1"))
    return play


@pytest.mark.parametrize(
    ("case", "held", "counts"),
    [
        ({}, True, (0, 0)),
        ({"without": ("acme-billing", TOPICS[0])}, True, (1, 0)),
        ({"surplus": True}, True, (0, 3)),
        ({}, False, (0, 0)),
    ],
)
def test_what_is_missing_or_surplus_fails(
    case: Mapping[str, Any],
    held: bool,  # noqa: FBT001 - of the case
    counts: tuple[int, int],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(time, "sleep", lambda _: None)
    play = played(**case)
    found = {name: frozenset(names) for name, names in play.held().items()}
    if not held:
        found["auditor"] = frozenset()
    code = demo._judge(play, found)
    summary = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (summary["missing"], summary["surplus"]) == counts
    assert summary["ok"] == (counts == (0, 0) and held)
    assert code == (0 if summary["ok"] else 1)
