"""Cancels tasks by mistake, as a defect of a library or of the interpreter does."""

import asyncio
from collections.abc import Callable

WAIT_S_MAX = 180


def tasks_called(*beginnings: str) -> list["asyncio.Task[object]"]:
    """The running tasks whose names begin so, in the order of their names."""
    named = [task for task in asyncio.all_tasks() if task.get_name().startswith(beginnings)]
    return sorted(named, key=lambda task: task.get_name())


def cancel_by_mistake(name: str) -> None:
    """Cancel the only task of this name; nothing asked it to stop."""
    (task,) = [task for task in tasks_called(name) if task.get_name() == name]
    task.cancel()


async def until(holds: Callable[[], bool]) -> None:
    """Return once it holds. Raises TimeoutError."""
    async with asyncio.timeout(WAIT_S_MAX):
        while not holds():  # noqa: ASYNC110  # plain state of the test
            await asyncio.sleep(0.01)
