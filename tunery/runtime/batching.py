"""Batching of calls as in group commit: calls that come during a batch form the next one.

The busier the server, the larger its batches; an idle server gets each call at once. The usual
DataLoader instead starts a batch in each iteration of the event loop, however many are running.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

A = TypeVar("A")
R = TypeVar("R")


class Batcher(Generic[A, R]):
    """Call `run`, which returns one result for each argument, with up to `size_max` arguments.

    A batch that raises `alone_after` is run again, one argument at a time, so that only the calls
    with a bad argument fail. Any other error is raised to all callers of the batch.
    """

    def __init__(
        self,
        run: Callable[[Sequence[A]], Awaitable[Sequence[R]]],
        size_max: int,
        alone_after: type[Exception] | tuple[type[Exception], ...] = (),
    ) -> None:
        self._run, self._size_max, self._alone_after = run, size_max, alone_after
        self._waiting: list[tuple[A, asyncio.Future[R]]] = []
        self._task: asyncio.Task[None] | None = None

    async def __call__(self, argument: A) -> R:
        future: asyncio.Future[R] = asyncio.get_running_loop().create_future()
        self._waiting.append((argument, future))
        if self._task is None or self._task.done():
            # The task begins in the next iteration of the loop, with all calls of this one.
            self._task = asyncio.create_task(self._run_batches(), name="batches")
        return await future

    async def _run_batches(self) -> None:
        try:
            while self._waiting:
                batch = self._waiting[: self._size_max]
                if open_entries := [entry for entry in batch if not entry[1].done()]:
                    await self._run_batch(open_entries)
                del self._waiting[: len(batch)]
        finally:  # a stopped task has callers that would wait for ever
            for _, future in self._waiting:
                future.cancel()
            self._waiting.clear()

    async def _run_batch(self, batch: Sequence[tuple[A, "asyncio.Future[R]"]]) -> None:
        try:
            results = await self._run([argument for argument, _ in batch])
        except Exception as error:  # raised to the callers
            if len(batch) > 1 and isinstance(error, self._alone_after):
                for entry in batch:
                    await self._run_batch([entry])
                return
            for _, future in batch:
                if not future.done():
                    future.set_exception(error)
            return
        for (_, future), result in zip(batch, results, strict=True):
            if not future.done():
                future.set_result(result)
