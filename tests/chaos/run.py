"""Let faults strike the real job under load, one after the other, and judge what is left.

`python -m tests.chaos.run [--only NAME]... [--json]`, and more by `--help`; the exit code is 1 when a fault made
something wrong.
"""

# ruff: noqa: T201 - it is there to print

import argparse
import json
import os
import shlex
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from rich.console import Console

from streaming.local.broker import Broker
from streaming.local.java import short_lived
from tests.chaos import table
from tests.chaos.catalogue import FAULTS
from tests.chaos.model import Fault, Row
from tests.chaos.theatre import Theatre, play
from tests.support.processes import ends_in_order

RESULTS: Final = Path(".reexpand/chaos")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", action="append", metavar="NAME", help="a fault to play; repeatable; all unless given")
    parser.add_argument("--list", action="store_true", help="print the names of the faults and how they strike")
    parser.add_argument("--json", action="store_true", help="print one JSON object a line instead of a table")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder for results and table")
    parser.add_argument("--seed", type=int, default=int(time.time()), help="of the random events")
    parser.add_argument("--job-options", default="", help="further options of `reexpand run`, in one text")
    given = parser.parse_args()
    unknown = set(given.only or ()) - set(FAULTS)
    if unknown:
        parser.error(f"there is no fault {', '.join(sorted(unknown))}; --list shows all")
    if given.list:
        for fault in FAULTS.values():
            print(f"{fault.name:26} {fault.how}")
        return
    os.environ.update(short_lived(os.environ))
    ends_in_order()
    rows = _play_all([FAULTS[name] for name in given.only or FAULTS], given)
    sys.exit(0 if all(row.right for row in rows) else 1)


def _play_all(faults: Sequence[Fault], given: argparse.Namespace) -> list[Row]:
    console = Console(stderr=True)
    rows: list[Row] = []
    results = table.Results(given.out)
    console.print(f"seed {given.seed}, {len(faults)} faults")
    with ExitStack() as stack:
        folder = Path(
            stack.enter_context(tempfile.TemporaryDirectory(prefix="reexpand-chaos-", ignore_cleanup_errors=True))
        )
        theatre = Theatre(Broker(folder / "kafka"), folder, given.seed, shlex.split(given.job_options))
        stack.callback(theatre.close)
        for number, fault in enumerate(faults, 1):
            begun = time.monotonic()
            with console.status(f"{number}/{len(faults)} {fault.name}: {fault.how}"):
                row = play(fault, theatre)
            rows.append(row)
            results.keep(row)
            seconds = time.monotonic() - begun
            console.print(
                f"{number}/{len(faults)} {fault.name}: {'right' if row.right else row.failure} ({seconds:.0f} s)"
            )
            if given.json:
                print(json.dumps(table.as_object(row)), flush=True)
    if not given.json:
        Console().print(table.as_screen(rows))
    return rows


if __name__ == "__main__":
    main()
