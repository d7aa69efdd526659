"""Verbs of `reexpand` as processes."""

import json
import subprocess
from collections.abc import Container
from typing import Any, NamedTuple

from streaming.oracle import Effective
from tests.support.running_job import REEXPAND, Streams


def reexpand(*words: object, codes: Container[int] = (0,), **options: Any) -> subprocess.CompletedProcess[str]:
    """Run a verb, and check its exit code and that it prints no traceback."""
    command = [REEXPAND, *map(str, words)]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=400, **options)
    assert done.returncode in codes, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    return done


class Verdict(NamedTuple):
    """Result of `reexpand verify --json`."""

    exit_code: int
    differences: list[dict[str, Any]]
    summary: dict[str, Any]

    @property
    def faults(self) -> dict[Effective, str]:
        found = {}
        for each in self.differences:
            if "liteTopic" in each:
                place = each["parentTopic"], each["group"], each["clientId"], each["liteTopic"]
                found[Effective(*place, each.get("part", ""))] = str(each["fault"])
        return found


def verify(streams: Streams, *more: str) -> Verdict:
    options = streams.options("bootstrap_servers", "checkpoint", "updates", "dead_letters")
    done = reexpand("verify", "--json", *options, *more, codes=(0, 1))
    *differences, summary = map(json.loads, done.stdout.splitlines())
    return Verdict(done.returncode, differences, summary)


def assert_verified(streams: Streams) -> None:
    verdict = verify(streams)
    assert verdict.exit_code == 0, verdict.differences
