"""States as bytes and back, as a worker writes and reads them."""

from streaming import home, state
from streaming.errors import StateCorrupted
from streaming.home import Home
from streaming.journal import Journal
from streaming.state import Delta, ShardState


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
