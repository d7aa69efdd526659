"""`reexpand rebuild` for the topics of a test."""

import json
import subprocess
from pathlib import Path
from typing import Any

from tests.support.running_job import REEXPAND, TOPIC_SETTINGS, Streams


def words(streams: Streams, former: Path | None, *options: str) -> list[str]:
    """Return the command that rebuilds into the checkpoint of these streams."""
    found = [REEXPAND, "rebuild", "--json", *options]
    found += ["--without-former"] if former is None else ["--former", str(former)]
    for name in ("bootstrap_servers", "checkpoint", *TOPIC_SETTINGS):
        found += [f"--{name.replace('_', '-')}", getattr(streams.settings, name)]
    return found


def rebuilt(streams: Streams, former: Path | None, *options: str) -> dict[str, Any]:
    """Rebuild, and return the output."""
    done = subprocess.run(words(streams, former, *options), check=False, capture_output=True, text=True, timeout=400)
    assert done.returncode == 0, done.stdout + done.stderr
    said: dict[str, Any] = json.loads(done.stdout)
    return said


def other(streams: Streams, name: str = "rebuilt") -> Streams:
    """Return the same topics with another checkpoint."""
    return Streams(streams.bootstrap_servers, streams.checkpoint.with_name(name), streams.prefix)
