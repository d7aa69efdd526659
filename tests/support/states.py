"""States as bytes and back, as a worker writes and reads them."""

from collections.abc import Iterable

from streaming import home, state, worker
from streaming.errors import StateCorrupted
from streaming.home import Home
from streaming.journal import Journal
from streaming.state import Delta, ShardState
from streaming.worker import Entry, Output, Settings


class Memory(dict[str, bytes]):
    """An archive in memory; its parts are never changed."""

    def write(self, name: str, data: bytes) -> None:
        """Keeps a part."""
        assert self.get(name, data) == data
        self[name] = data

    def read(self, name: str) -> bytes:
        """A part."""
        if name not in self:
            raise StateCorrupted(f"there is no {name}")
        return self[name]

    def remove(self, name: str) -> None:
        """Forgets a part, if it is there: a repeated micro-batch does so again."""
        self.pop(name, None)


def work(
    parent: str, number: int, rows: Iterable[Entry], data: bytes | None, settings: Settings, *, batch: int = 0
) -> tuple[bytes | None, Output]:
    """What a worker makes of a micro-batch's rows of one key: its new state, and all output rows."""
    steps = worker.work(parent, number, rows, data, settings, batch=batch)
    whole = Output()
    while True:
        try:
            output = next(steps)
        except StopIteration as end:
            return end.value, whole
        whole.kinds += output.kinds
        whole.keys += output.keys
        whole.payloads += output.payloads
        whole.ignored.update(output.ignored)


def encode(shard: ShardState) -> bytes | None:
    """A shard's state as the journal of one change: from nothing to all of it."""
    return state.renew(Journal(), shard, Delta()).stored


def decode(data: bytes | None, *, inner_multi: bool = False) -> ShardState:
    """A shard's state from bytes."""
    shard = ShardState(inner_multi)
    state.catch_up(shard, Journal.open(data).changes())
    return shard


def encode_home(made: Home) -> bytes | None:
    """A home as the journal of one change."""
    return home.renew(Journal(), made, home.Delta(made.clock)).stored


def decode_home(data: bytes | None) -> Home:
    """A home from bytes."""
    made = Home()
    home.catch_up(made, Journal.open(data).changes())
    return made
