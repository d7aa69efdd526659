"""What it costs that 10,000 clients repeat their sets: the work of the Python side, and the state that is written.

    python -m tests.bench.streaming.resync

The reference is the first subscription of the same clients, in the same run.
"""

import json
import time

from streaming import coordinator
from streaming.worker import WorkerConfig
from streaming.worker.process import without_collection
from streaming.worker.rows import InputRow, OutputKind
from tests.bench.command import arguments, show
from tests.support import values
from tests.support.states import work

PARENT = "p"
GROUPS = 100
PATTERNS = 10
SETTINGS = WorkerConfig(("groups", "subscriptions", "topics", "clock"), client_timeout_ms=120_000)
Key = tuple[str, int]


class Clients:
    """So many clients of 100 groups with 10 patterns each, and the keys that see them."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._offset = 0
        self.states: dict[Key, bytes | None] = {}
        groups = [values.wildcard(group=f"group{number:03}") for number in range(GROUPS)]
        self._run({(PARENT, 0): [self._row(0, group) for group in groups]})

    def ask(self) -> tuple[float, int, int]:
        """All ask; seconds, bytes of state that is new at the end of the values, and updates."""
        rows: dict[Key, list[InputRow]] = {}
        for number in range(self._count):
            group = f"group{number % GROUPS:03}"
            patterns = [f"region{number % 50}__*__kind{kind}" for kind in range(PATTERNS)]
            client = f"10.0.{number // 256}.{number % 256}@1"
            request = values.replace(*patterns, client=client, group=group, version=1)
            for key in ((PARENT, 0), (coordinator.COORDINATOR, coordinator.bucket_of(group))):
                rows.setdefault(key, []).append(self._row(1, request))
        return self._run(rows)

    def _row(self, stream: int, event: values.Event) -> InputRow:
        self._offset += 1
        return InputRow(stream, 0, self._offset, 0, self._offset, json.dumps(event).encode())

    def _run(self, rows: dict[Key, list[InputRow]]) -> tuple[float, int, int]:
        written = updates = 0
        start = time.perf_counter()
        for key, batch in rows.items():
            former = self.states.get(key)
            with without_collection():
                self.states[key], output = work(*key, batch, former, SETTINGS)
            updates += sum(kind in (OutputKind.ADD, OutputKind.REMOVE) for kind in output.kinds)
            now = self.states[key] or b""
            written += len(now) - len(former) if former and now.startswith(former) else len(now)
        return time.perf_counter() - start, written, updates


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--clients", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    clients = Clients(options.clients)
    first, *again = (clients.ask() for _ in range(1 + options.rounds))

    def figures(turns: list[tuple[float, int, int]]) -> dict[str, list[float]]:
        seconds, written, updates = zip(*turns, strict=True)
        return {
            "us per client": [1e6 * each / options.clients for each in seconds],
            "state bytes written per client": [each / options.clients for each in written],
            "updates": list(updates),
        }

    rows = {"subscribe": figures([first]), "ask again": figures(again)}
    ratios = [seconds / first[0] for seconds, _, _ in again]
    show({**rows, "ratio": {"us per client": ratios}}, f"{options.clients:,} clients", as_json=options.json)


if __name__ == "__main__":
    main()
