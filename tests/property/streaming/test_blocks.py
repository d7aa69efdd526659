"""Blocks that share a dictionary are those that each request leaves by itself."""

from random import Random

from streaming.records.model import LITE
from streaming.state.blocks import Block, Blocks, replaced, settled, without_and_with
from tests.support.events import NATS

HISTORIES = 300
ENTRIES = "abcdef"


def test_every_version_is_what_its_requests_say() -> None:
    """Whichever version a request follows, such as the one before a refused request, and whenever it is read."""
    for seed in range(HISTORIES):
        random = Random(seed)
        first = (Block(0, 0, 0, LITE, ("a", "b")), Block(1, 0, 1, NATS, ("a",)))
        versions: list[tuple[tuple[Block, ...], Blocks]] = [(first, Blocks(first))]
        for order in range(2, 25):
            plain, shared = random.choice(versions[-3:])
            notation = random.choice([LITE, LITE, NATS])
            texts = tuple(random.sample(ENTRIES, random.randint(0, 3)))
            new = Block(order, 0, order, notation, texts)
            kind = random.random()
            if kind < 0.2:
                found, wanted = replaced(shared, new), replaced(plain, new)
            elif kind < 0.5:
                gone = new._replace(entries=())
                found, wanted = (without_and_with(held, notation, texts, gone) for held in (shared, plain))
            else:
                found, wanted = (without_and_with(held, notation, texts, new) for held in (shared, plain))
            versions.append((settled(wanted), found if isinstance(found, Blocks) else Blocks(tuple(found))))
            at = random.randrange(len(versions))
            assert settled(versions[at][1]) == versions[at][0]
            (a, b), (c, d) = random.choice(versions), random.choice(versions)
            assert (b == d) is (a == c)
            assert bool(b) is bool(a)
        assert [settled(shared) for _, shared in versions] == [plain for plain, _ in versions]


def test_a_version_has_the_changes_of_its_request() -> None:
    first = Blocks((Block(1, 0, 1, LITE, ("a", "b")),))
    second = without_and_with(first, LITE, ["b", "c"], Block(2, 0, 2, LITE, ("b", "c")))
    assert isinstance(second, Blocks)
    assert second.fresh(first) == (Block(2, 0, 2, LITE, ("c",)),)
    assert [
        (text, old and old.order, new and new.order)
        for (_, text), (old, new) in (second.changes_since(first) or {}).items()
    ] == [
        ("b", 1, 2),
        ("c", None, 2),
    ]
    assert second.changes_since(()) is None
    assert without_and_with(second, LITE, ["x"], Block(3, 0, 3, LITE, ())) is second
