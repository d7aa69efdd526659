"""What is fuzzed, by name; `python -m tests.fuzz.targets NAME FILE` runs one kept input, without a fuzzer."""

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

if __name__ == "__main__":
    TARGETS[sys.argv[1]](Path(sys.argv[2]).read_bytes())
