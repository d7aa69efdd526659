"""State partition of a key, as Spark distributes the keys: the hash of parent and number by Murmur3 with seed 42."""

from typing import Final

_SEED: Final = 42
_BITS: Final = 0xFFFFFFFF


def partition_of(parent: str, number: int, partitions: int) -> int:
    """Return the state partition of a key.

    Args:
        parent: the parent topic, or the coordinator.
        number: the shard.
        partitions: number of state partitions.
    """
    found = _hash_of_int(number, _hash_of_text(parent.encode(), _SEED))
    return (found - (1 << 32) if found >> 31 else found) % partitions  # Spark takes it for signed


def _hash_of_int(value: int, seed: int) -> int:
    return _finished(_mixed(seed, value & _BITS), 4)


def _hash_of_text(data: bytes, seed: int) -> int:
    """Hash whole words, then each remaining byte as a signed word, as only Spark does."""
    aligned = len(data) - len(data) % 4
    found = seed
    for start in range(0, aligned, 4):
        found = _mixed(found, int.from_bytes(data[start : start + 4], "little"))
    for byte in data[aligned:]:
        found = _mixed(found, (byte - 256 if byte > 127 else byte) & _BITS)  # noqa: PLR2004 - the largest signed byte
    return _finished(found, len(data))


def _mixed(seed: int, word: int) -> int:
    word = _rotated(word * 0xCC9E2D51 & _BITS, 15) * 0x1B873593 & _BITS
    return (_rotated(seed ^ word, 13) * 5 + 0xE6546B64) & _BITS


def _rotated(word: int, by: int) -> int:
    return (word << by | word >> 32 - by) & _BITS


def _finished(found: int, length: int) -> int:
    found ^= length
    found = (found ^ found >> 16) * 0x85EBCA6B & _BITS
    found = (found ^ found >> 13) * 0xC2B2AE35 & _BITS
    return found ^ found >> 16
