"""Work that is done side by side."""

import asyncio
from collections.abc import Coroutine, Iterable


async def together(work: Iterable[Coroutine[object, object, None]]) -> None:
    """Do all of it side by side; the first error ends the rest, and is raised."""
    try:
        async with asyncio.TaskGroup() as tasks:
            for each in work:
                tasks.create_task(each)
    except ExceptionGroup as group:  # of which the first one has ended the others
        raise group.exceptions[0] from None
