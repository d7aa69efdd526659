"""The demo: a scenario on a real broker and the real job, with a check of the result."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def run_demo(home: Path, keep: bool, as_json: bool, cluster: bool = False) -> int:  # noqa: FBT001, FBT002 -- the command passes them by name
    """Play the demo and return its exit code: 0 if the result equals the oracle's.

    Args:
        home: parent of the folder `demo`, which is emptied at the start; only logs stay in it.
        keep: keep broker and job running after the summary, until Ctrl-C.
        as_json: print one JSON object a line instead of text.
        cluster: run the job on a Spark cluster of two workers, and kill one of them half way.

    Raises:
        ReexpandError: the broker, the cluster or the job does not start, or ended by itself.
    """
    from streaming.demo.runner import run  # noqa: PLC0415 -- help needs none of it
    from streaming.demo.screen import JsonScreen, TextScreen  # noqa: PLC0415

    return run(home, JsonScreen() if as_json else TextScreen(), keep=keep, on_cluster=cluster)
