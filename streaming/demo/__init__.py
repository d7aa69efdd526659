"""The demo: a real broker, the real job, a scenario played on them, and a check of what comes out."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def run_demo(home: Path, keep: bool, as_json: bool, cluster: bool = False) -> int:  # noqa: FBT001, FBT002 -- the command passes them by name
    """Plays the demo and returns its exit code: 0 when what came out is what the oracle says.

    Args:
        home: folder that gets a folder `demo`, wiped at the start; only the log of the job stays in it.
        keep: leave broker and job running after the summary, until Ctrl-C.
        as_json: one JSON object a line instead of text.
        cluster: run the job on a Spark cluster of two workers, and kill one of them half way.

    Raises:
        ReexpandError: the broker, the cluster or the job cannot be started, or ended by itself.
    """
    from streaming.demo.runner import run  # noqa: PLC0415 -- help needs none of it
    from streaming.demo.screen import JsonScreen, TextScreen  # noqa: PLC0415

    return run(home, JsonScreen() if as_json else TextScreen(), keep=keep, on_cluster=cluster)
