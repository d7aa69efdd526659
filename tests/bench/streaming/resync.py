"""What it costs that 10,000 clients repeat their sets: the work of the Python side, and the state that is written.

    python -m tests.bench.streaming.resync

The reference is the first subscription of the same clients, in the same run.
"""

import json
import statistics
import time

from rich.table import Table

from streaming import coordinator
from streaming.records.model import BIND_TOPIC, WILDCARD
from streaming.worker import WorkerConfig
from streaming.worker.process import without_collection
from streaming.worker.rows import InputRow, OutputKind
from tests.bench.command import arguments, show
from tests.support.states import work

PARENT = "orders"
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
        self._run({(PARENT, 0): [self._row(0, self._group(number)) for number in range(GROUPS)]})

    def ask(self) -> tuple[float, int, int]:
        """All ask; seconds, bytes of state that is new at the end of the values, and updates."""
        rows: dict[Key, list[InputRow]] = {}
        for number in range(self._count):
            group = f"group{number % GROUPS:03}"
            request = {
                "action": "COMPLETE_ADD",
                "clientId": f"10.0.{number // 256}.{number % 256}@1",
                "group": group,
                "topic": PARENT,
                "liteTopicSet": [f"region{number % 50}__*__kind{kind}" for kind in range(PATTERNS)],
                "version": 1,
            }
            payload = json.dumps(request).encode()
            for key in ((PARENT, 0), (coordinator.COORDINATOR, coordinator.bucket_of(group))):
                rows.setdefault(key, []).append(self._row(1, payload))
        return self._run(rows)

    def _group(self, number: int) -> bytes:
        return json.dumps({"group": f"group{number:03}", "attributes": {BIND_TOPIC: PARENT, WILDCARD: "true"}}).encode()

    def _row(self, stream: int, payload: bytes) -> InputRow:
        self._offset += 1
        return InputRow(stream, 0, self._offset, 0, self._offset, payload)

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
    """Prints the table."""
    parser = arguments(__doc__)
    parser.add_argument("--clients", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    clients = Clients(options.clients)
    first, first_bytes, _ = clients.ask()
    again = [clients.ask() for _ in range(options.rounds)]
    per = 1e6 / options.clients
    spent = [seconds * per for seconds, _, _ in again]
    written = statistics.median(written for _, written, _ in again) / options.clients
    updates = sum(updates for _, _, updates in again)
    figures = {
        "us to subscribe": first * per,
        "bytes to subscribe": first_bytes / options.clients,
        "us to ask again": statistics.median(spent),
        "bytes to ask again": written,
        "updates": updates,
    }
    table = Table("", "us a client", "state bytes written a client", "updates", title=f"{options.clients:,} clients")
    table.add_row("subscribe", f"{first * per:.1f}", f"{first_bytes / options.clients:.0f}", "0 (no topics)")
    table.add_row(
        "ask again",
        f"{statistics.median(spent):.1f} ({min(spent):.1f} to {max(spent):.1f})",
        f"{written:.0f}",
        str(updates),
    )
    table.add_row("ratio", f"{statistics.median(spent) / (first * per):.2f}", "", "")
    show(figures, table, as_json=options.json, width=100)


if __name__ == "__main__":
    main()
