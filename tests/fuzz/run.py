"""Fuzz one target after the other: `python -m tests.fuzz.run [--seconds N] [NAME...]`, with a Python that has atheris.

`python -m tests.fuzz.run NAME --input FILE` runs one kept input, without a fuzzer.

What a target has learned is kept in `.reexpand/fuzz/NAME/corpus`, and inputs that broke it in `found` beside that; the
next run tries both first. The exit code is 1 when a target broke.
"""

# ruff: noqa: T201 - it is there to print

import argparse
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

from tests.fuzz.events import events
from tests.fuzz.patterns import batches, patterns
from tests.fuzz.selectors import selectors
from tests.fuzz.stored import stored

TARGETS: Final[dict[str, Callable[[bytes], None]]] = {
    target.__name__: target for target in (patterns, batches, stored, selectors, events)
}
HOME: Final = Path(".reexpand/fuzz")
LIMITS: Final = ("-timeout=10", "-rss_limit_mb=2048", "-max_len=1024")
_ROUND: Final = 120  # seconds of one process; atheris keeps some memory for each comparison of arrays
_GRACE: Final = 60  # seconds for start and end
_DONE: Final = re.compile(r"^Done (\d+) runs in (\d+) second", re.MULTILINE)
_COVERED: Final = re.compile(r"cov: (\d+)")
_WRITTEN: Final = re.compile(r"Test unit written to (\S+)$", re.MULTILINE)
_FAILURE: Final = re.compile(r"^ === Uncaught Python exception: ===|^==\d+== ?ERROR|^ALARM", re.MULTILINE)


def fuzz(name: str, seconds: int) -> bool:
    """Fuzz one target and print what came of it; return whether it held."""
    inputs = 0
    for start in range(0, seconds, _ROUND):
        log = _round(name, min(_ROUND, seconds - start))
        text = log.read_text(encoding="utf-8", errors="replace")
        done = _DONE.search(text)
        if done is None:
            failure = _FAILURE.search(text)
            print(f"{name}: broken; {log} ends with\n{text[failure.start() if failure else -4_000 :]}")
            for written in _WRITTEN.findall(text):
                print(f"{written}: {Path(written).read_bytes()!r}")
                print(f"again: .venv/bin/python -m tests.fuzz.run {name} --input {written}", flush=True)
            return False
        inputs += int(done[1])
    print(f"{name}: {inputs:,} inputs in {seconds} s, {_COVERED.findall(text)[-1]} branches, nothing found", flush=True)
    return True


def _round(name: str, seconds: int) -> Path:
    """Let the fuzzer work in a process of its own; return its log."""
    home = HOME / name
    corpus, found, log = home / "corpus", home / "found", home / "log"
    for folder in (corpus, found):
        folder.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "tests.fuzz.guided", name, *LIMITS]
    command += [f"-max_total_time={seconds}", f"-artifact_prefix={found}/", str(corpus), str(found)]
    with log.open("wb") as output:
        subprocess.run(command, stdout=output, stderr=subprocess.STDOUT, timeout=seconds + _GRACE, check=False)
    return log


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=int, default=60, help="for each target")
    parser.add_argument("targets", nargs="*", metavar="NAME", help=f"of {', '.join(TARGETS)}; all unless given")
    parser.add_argument("--input", type=Path, metavar="FILE", help="only run the targets on this input")
    given = parser.parse_args()
    unknown = set(given.targets) - set(TARGETS)
    if unknown:
        parser.error(f"there is no target {', '.join(sorted(unknown))}; use some of {', '.join(TARGETS)}")
    names = given.targets or TARGETS
    if given.input:
        for name in names:
            TARGETS[name](given.input.read_bytes())
        return
    held = [fuzz(name, given.seconds) for name in names]
    sys.exit(0 if all(held) else 1)


if __name__ == "__main__":
    main()
