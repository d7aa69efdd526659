"""Queries to a running job over Kafka, with `reexpand explain` and similar verbs."""

import json
from typing import Any

from click.testing import CliRunner

from streaming.cli import main
from streaming.inspect import Filter, Inspector, PairVerdict
from tests.support import events
from tests.support.running_job import TOPIC_SETTINGS, Streams

MOVED = events.wildcard(parent="elsewhere")
"""Attributes that would move the group `g`."""


def verb(streams: Streams, *words: str, given: str | None = None) -> tuple[int, list[Any]]:
    """Run a verb with --json, and return its exit code and lines."""
    settings = streams.settings
    names = {f"REEXPAND_{name.upper()}": getattr(settings, name) for name in ("bootstrap_servers", *TOPIC_SETTINGS)}
    result = CliRunner(env=names).invoke(main, [*words, "--json"], given)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.output
    return result.exit_code, [json.loads(line) for line in result.stdout.splitlines() if line.startswith(("{", "["))]


def assert_the_job_explains_itself(streams: Streams) -> None:
    """Check the answers on the scene of `test_every_dialect_and_selector_end_to_end`."""
    before = streams.relation()
    with Inspector(streams.settings, timeout=60) as inspector:
        (found,) = inspector.explain("nats", "fleet.us")
        assert (found.pair.parent, found.received, found.reason) == ("d", True, "'fleet.>' matches it")
        assert found.pair.decided_by is not None
        assert found.pair.decided_by.stream == streams.settings.subscription_events
        (found,) = inspector.explain("c", "blue__1", parent="s", group="priced")
        assert found.verdict is PairVerdict.SELECTOR
        assert found.binding is not None
        assert found.binding.parent == "s"
        (found,) = inspector.explain("lite", "red__1", parent="s", group="g")
        assert (found.verdict, [hint.code for hint in found.hints]) == (PairVerdict.CLIENT_UNKNOWN, ["other-parent"])
        pages = list(inspector.topics("d", Filter("orders__*__created"), limit=1))
        assert [item.topic for page in pages for item in page.items] == ["orders__1__created", "orders__2__created"]
        shared = inspector.topic("d", "sensors")
        assert [(each.client, each.part) for each in shared.subscribers] == [("mqtt", "share:workers/sensors/#")]
        assert {"g", "tagged", "priced"} <= {lease.group for lease in inspector.leases()}
        moved = inspector.plan(
            {"group": "g", "attributes": {"lite.bind.topic": "elsewhere", "lite.sub.wildcard": "true"}}
        )
        assert (moved.adds, moved.removes) == (0, sum(row.parent == "d" for row in before))
    code, lines = verb(streams, "explain", "--client", "nats", "--topic", "fleet.us", "--timeout", "60")
    assert (code, lines[0]["pair"]["verdict"]) == (0, "received")
    code, lines = verb(streams, "clients", "list", "--parent", "s", "--timeout", "60")
    assert (code, sorted((line["group"], line["client"]) for line in lines)) == (
        0, [("priced", "c"), ("priced", "d"), ("tagged", "c")]
    )  # fmt: skip
    code, lines = verb(streams, "subscriptions", "list", "--parent", "d", "--client", "nats", "--timeout", "60")
    assert (code, "fleet.>" in json.dumps(lines)) == (0, True)
    code, lines = verb(streams, "groups", "show", "priced", "--timeout", "60")
    assert (code, '"s"' in json.dumps(lines)) == (0, True)
    code, lines = verb(streams, "plan", "--timeout", "60", given=json.dumps(MOVED))
    assert (code, sum(each["removes"] for each in lines[0]["parents"])) == (0, moved.removes)
    code, lines = verb(streams, "tail", "--once", "--client", "nats", "--topic", "fleet.us")
    assert (code, [line["liteTopic"] for line in lines]) == (0, ["fleet.us"])
    assert_updates_are_followed_from_a_place(streams)
    code, _ = verb(streams, "topics", "list", "--timeout", "60")
    assert code == 2, "there are several parents"
    assert streams.relation() == before
    code, lines = verb(streams, "send", "topic", "fleet.cn", "--parent", "d", "--wait", "--timeout", "60")
    assert code == 0
    assert [(line["op"], line["clientId"]) for line in lines[:-1]] == [("ADD", "nats")]
    assert lines[-1]["updates"] == 1


def assert_updates_are_followed_from_a_place(streams: Streams) -> None:
    """By offset, from the beginning or the end, and by time."""

    def followed(*start: str) -> list[str]:
        code, lines = verb(streams, "tail", "--once", *start)
        assert code == 0
        return sorted(map(json.dumps, lines))

    everything = followed()
    assert everything
    for start in (["-o", "0"], ["-o", "-1000000"], ["--since", "1d"], ["--since", "2026-01-01T00:00:00Z"]):
        assert followed(*start) == everything, start
    assert followed("--since", "0s") == []
    last = followed("-o", "-3")
    assert 0 < len(last) < len(everything)
    assert set(last) <= set(everything)
