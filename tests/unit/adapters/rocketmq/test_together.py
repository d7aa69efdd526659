"""Work side by side."""

import asyncio

import pytest

from streaming.adapters.rocketmq.together import together


def test_the_first_error_ends_the_rest_and_is_raised() -> None:
    """What goes on after it would change what the next attempt has read."""
    done: list[str] = []

    async def fail() -> None:
        raise OSError("first")

    async def work(name: str, seconds: float) -> None:
        await asyncio.sleep(seconds)
        done.append(name)

    async def run() -> None:
        await together(work(name, 0) for name in "ab")
        with pytest.raises(OSError, match="first"):
            await together([work("late", 0.01), fail()])
        await asyncio.sleep(0.05)

    asyncio.run(run())
    assert sorted(done) == ["a", "b"]
