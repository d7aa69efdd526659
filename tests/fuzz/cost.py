"""Search for inputs that cost much for their size.

    python -m tests.fuzz.cost [--minutes N] [--target NAME] [--seed N] [--memory]

An input is a JSON value. Costs are counted: calls of functions, bytes of output, and with `--memory` the peak of
memory, each for a byte of input. So a run finds the same as another one with the same seed, on any machine; times are
printed only. The most expensive inputs are kept and changed further. The exit code is 1 if a budget of a target is
exceeded.
"""

# ruff: noqa: T201 - it is there to print

import argparse
import gc
import json
import random
import sys
import time
import tracemalloc
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

Json = Any

FLOOR: Final = 1_000
"""Size in bytes below which an input counts as one of this size, so that fixed costs do not."""

MOST_CALLS: Final = 5_000_000
"""Number of calls after which an input is taken to be as expensive as that."""

KEPT: Final = 12
"""Number of inputs that are kept for each kind of cost."""

_SIZES: Final = (2, 3, 5, 16, 60)
"""Numbers by which a part of an input is multiplied."""


class _TooExpensive(BaseException):
    """An input makes too many calls; code under test must not catch it."""


class Cost(NamedTuple):
    """Cost of an input, for each byte of it.

    Attributes:
        calls: calls of functions, of Python and of C.
        output: bytes written.
        memory: peak of the memory in bytes; 0 if it was not measured.
    """

    calls: float
    output: float
    memory: float = 0


@dataclass(frozen=True)
class Target:
    """Code that takes inputs.

    Attributes:
        seeds: inputs to begin with.
        run: takes a prepared input, and returns the number of bytes that it has written.
        budget: largest cost of any input of at most `max_bytes`.
        max_bytes: size of the largest inputs that are tried.
        prepare: makes of an input what `run` takes; its cost does not count.
    """

    name: str
    seeds: tuple[Json, ...]
    run: Callable[[Json], int]
    budget: Cost
    max_bytes: int = 16_000
    prepare: Callable[[Json], Any] = lambda value: value


def size_of(value: Json) -> int:
    return len(json.dumps(value, separators=(",", ":")))


def cost_of(target: Target, value: Json, *, memory: bool = False) -> Cost:
    """Run a target on an input and return the cost."""
    size = max(FLOOR, size_of(value))
    calls, output = 0, 0
    prepared = target.prepare(value)

    def count(_frame: object, event: str, _argument: object) -> None:
        nonlocal calls
        if event in ("call", "c_call"):
            calls += 1
            if calls > MOST_CALLS:
                raise _TooExpensive

    gc.disable()  # finalizers run where they like
    sys.setprofile(count)
    try:
        output = target.run(prepared)
    except _TooExpensive:
        pass
    finally:
        sys.setprofile(None)
        gc.enable()
    return Cost(calls / size, output / size, _peak(target, value) / size if memory else 0)


def _peak(target: Target, value: Json) -> int:
    prepared = target.prepare(value)
    tracemalloc.start()
    try:
        target.run(prepared)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def seconds_of(target: Target, value: Json) -> float:
    """Return the processor time of an input, the best of three."""

    def once() -> float:
        prepared = target.prepare(value)
        start = time.process_time()
        target.run(prepared)
        return time.process_time() - start

    return min(once() for _ in range(3))


@dataclass
class Search:
    """Search of one target; the archive has the most expensive inputs by each kind of cost."""

    target: Target
    seed: int = 0
    memory: bool = False
    archive: list[tuple[Cost, Json]] = field(default_factory=list)
    tried: int = 0

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)
        for value in self.target.seeds:
            self.target.run(self.target.prepare(value))  # what is loaded at the first use does not count
        for value in self.target.seeds:
            self._try(value)

    def step(self) -> None:
        """Try one more input: a changed one of the archive."""
        draw = self._random
        kind = draw.choice(Cost._fields[: 3 if self.memory else 2])
        # The best of some: expensive inputs are changed more often, and no input is out of reach.
        some = [draw.choice(self.archive) for _ in range(4)]
        value = max(some, key=lambda each: getattr(each[0], kind))[1]
        try:
            for _ in range(draw.choice((1, 1, 2, 4))):
                value = mutated(value, draw, draw.choice(self.archive)[1])
            size = size_of(value)
        except RecursionError:  # nested too deep for Python's own JSON
            return
        if size <= self.target.max_bytes:
            self._try(value)

    def worst(self) -> Iterator[tuple[str, Cost, Json]]:
        for kind in Cost._fields:
            cost, value = max(self.archive, key=lambda each, kind=kind: getattr(each[0], kind))  # type: ignore[misc]
            yield kind, cost, value

    def exceeded(self) -> list[str]:
        return [
            f"{self.target.name}: {getattr(cost, kind):,.1f} {kind} for a byte, {getattr(self.target.budget, kind):,} "
            f"at most: {json.dumps(value)[:2_000]}"
            for kind, cost, value in self.worst()
            if getattr(cost, kind) > getattr(self.target.budget, kind)
        ]

    def _try(self, value: Json) -> None:
        self.tried += 1
        self.archive.append((cost_of(self.target, value, memory=self.memory), value))
        if len(self.archive) > KEPT * len(Cost._fields) * 2:
            best: dict[int, tuple[Cost, Json]] = {}
            for kind in Cost._fields:
                ranked = sorted(self.archive, key=lambda each, kind=kind: -getattr(each[0], kind))  # type: ignore[misc]
                best.update((id(each), each) for each in ranked[:KEPT])
            self.archive = list(best.values())


def mutated(value: Json, draw: random.Random, other: Json) -> Json:
    """Return a copy of an input with one part changed, perhaps by a part of another input."""
    places = list(_places(value))
    path = draw.choice(places)
    part = _at(value, path)
    return _replaced(value, path, _changed(part, draw, _at(other, draw.choice(list(_places(other))))))


def _changed(part: Json, draw: random.Random, other: Json) -> Json:
    times = draw.choice(_SIZES)
    if isinstance(part, list) and part and draw.random() < 0.8:
        number = draw.randrange(len(part))
        return draw.choice(
            (
                part * times,
                [*part[:number], *[part[number]] * times, *part[number:]],
                [*part[:number], *(_numbered(part[number], each) for each in range(times)), *part[number:]],
                [*part[:number], *part[number + 1 :]],
                [*part[:number], other, *part[number:]],
                draw.sample(part, len(part)),
            )
        )
    if isinstance(part, dict) and part and draw.random() < 0.8:
        name = draw.choice(list(part))
        return draw.choice(
            (
                {**part, name: other},
                {each: value for each, value in part.items() if each != name},
                {**part, **{f"{name}{each}": part[name] for each in range(times)}},
                {**part, **(other if isinstance(other, dict) else {})},
            )
        )
    if isinstance(part, str) and draw.random() < 0.9:
        cut = draw.randrange(len(part) + 1)
        text = other if isinstance(other, str) else "a"
        return draw.choice(
            (
                part * times,
                part[:cut] * times + part[cut:],
                part[:cut] + part[cut:] * times,
                part[:cut] + text + part[cut:],
                part[:cut],
                part[cut:],
                f"({part})",
            )
        )
    if isinstance(part, int) and not isinstance(part, bool):
        return draw.choice((0, 1, -1, part + 1, part * times, 2**53))
    nested = part
    for _ in range(draw.choice((1, 1, 2, 40))):
        nested = [nested]
    return draw.choice((other, nested, [part] * times, {"a": part}, None))


def _numbered(part: Json, number: int) -> Json:
    """Return a part whose texts differ from those of its copies."""
    if isinstance(part, str):
        return f"{number}{part}"
    if isinstance(part, list):
        return [part[0], *(_numbered(each, number) for each in part[1:])] if part else part
    if isinstance(part, dict):
        named = [name for name in part if name in _NAMED]
        changed = named[number % len(named)] if named else ""
        return {name: _renamed(each, number) if name == changed else each for name, each in part.items()}
    return part


def _renamed(part: Json, number: int) -> Json:
    if isinstance(part, list):
        return [_renamed(each, number) for each in part]
    return f"{number}{part}" if isinstance(part, str) else part


_NAMED: Final = {"liteTopic", "clientId", "group", "liteTopicSet"}


def _places(value: Json, path: tuple[Any, ...] = (), depth: int = 0) -> Iterator[tuple[Any, ...]]:
    yield path
    if depth < 12:  # deeper parts are changed with what holds them
        if isinstance(value, dict):
            for name, each in value.items():
                yield from _places(each, (*path, name), depth + 1)
        elif isinstance(value, list):
            for number in {0, len(value) // 2, len(value) - 1} if value else ():
                yield from _places(value[number], (*path, number), depth + 1)


def _at(value: Json, path: tuple[Any, ...]) -> Json:
    for step in path:
        value = value[step]
    return value


def _replaced(value: Json, path: tuple[Any, ...], part: Json) -> Json:
    if not path:
        return part
    step, *rest = path
    changed = _replaced(value[step], tuple(rest), part)
    if isinstance(value, dict):
        return {**value, step: changed}
    return [*value[:step], changed, *value[step + 1 :]]


def main() -> None:
    """Search all targets, or one."""
    from tests.fuzz.cost_targets import TARGETS  # noqa: PLC0415 - they import this module

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=1, help="for each target")
    parser.add_argument("--target", choices=[target.name for target in TARGETS], help="all unless given")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--memory", action="store_true", help="measure the peak of memory as well, which is slow")
    given = parser.parse_args()
    exceeded: list[str] = []
    for target in TARGETS:
        if given.target not in (None, target.name):
            continue
        search = Search(target, given.seed, given.memory)
        end = time.monotonic() + 60 * given.minutes
        while time.monotonic() < end:
            search.step()
        print(f"{target.name}: {search.tried:,} inputs")
        for kind, cost, value in search.worst():
            size = size_of(value)
            seconds = seconds_of(target, value)
            print(
                f"  most {kind}: {getattr(cost, kind):,.1f} for a byte ({size:,} bytes, {1e6 * seconds / size:,.2f} s "
                f"of a processor for 1 MB): {json.dumps(value)[:300]}",
                flush=True,
            )
        exceeded += search.exceeded()
    print("\n".join(exceeded))
    sys.exit(1 if exceeded else 0)


if __name__ == "__main__":
    main()
