"""Models in memory: those that were used last, up to a limit."""

import asyncio
import contextlib
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Final

from schemas.units import Ms
from services.engine.ports import LoadedModel, ModelLoader, Refusal, Weights
from tunery.platform.fair_places import FairPlaces
from tunery.work.engine import BUSY, EngineModel

WAIT_MS_MAX: Final[Ms] = 60_000  # how long a question waits for a place in memory


@dataclass
class MemoryEntry:
    """A model that is in memory, or on the way."""

    loading: "asyncio.Task[LoadedModel]"
    fair_places: FairPlaces
    users: int = 0  # questions that it answers, or that wait for it


class LoadedModels:
    """Loads each model once, also when several questions ask for it, and drops the one that was
    not used for the longest time.
    """

    def __init__(
        self,
        weights: Weights,
        engine: ModelLoader,
        *,
        models_max: int,
        answers_max: int,
        tenant_answers_max: int | None = None,
    ) -> None:
        """Load up to `models_max` models, each with places for `answers_max` answers at once, of
        one tenant for `tenant_answers_max`; None: for all of them.
        """
        self._weights, self._engine = weights, engine
        self._models_max: Final = models_max
        self._answers_max: Final = answers_max
        self._tenant_answers_max: Final = tenant_answers_max
        self._entries: OrderedDict[EngineModel, MemoryEntry] = OrderedDict()
        self._dropping: set[asyncio.Task[None]] = set()
        self._released = asyncio.Event()

    @contextlib.asynccontextmanager
    async def borrow(
        self, model: EngineModel, tenant: str, *, low: bool = False
    ) -> AsyncIterator[LoadedModel]:
        """The model, with a place at it, which stays in memory until the end of the context.

        Tenants that wait for places get them in turn; `low`: after all others. Loading continues
        when a caller is cancelled. Raises Refusal; BlobError.
        """
        entry = await self._entry_of(model)
        self._entries.move_to_end(model)
        entry.users += 1
        try:
            loaded = await asyncio.shield(entry.loading)
            async with entry.fair_places.take(tenant, low=low):
                yield loaded
        finally:
            entry.users -= 1
            self._released.set()

    def is_loaded(self, model: EngineModel) -> bool:
        entry = self._entries.get(model)
        return entry is not None and entry.loading.done()

    async def close(self) -> None:
        """Drop all models."""
        entries = list(self._entries.values())
        self._entries.clear()
        for entry in entries:
            await _drop(entry)

    async def _load(self, model: EngineModel) -> LoadedModel:
        files = await self._weights.fetch(model)
        return await asyncio.to_thread(self._engine.load, files)

    async def _entry_of(self, model: EngineModel) -> MemoryEntry:
        """The model's entry, for which another one is dropped. Raises Refusal after WAIT_MS_MAX."""
        try:
            async with asyncio.timeout(WAIT_MS_MAX / 1_000):
                while (entry := self._entries.get(model)) is None:
                    if self._drop_idle():
                        loading = asyncio.create_task(self._load(model), name="load model")
                        loading.add_done_callback(self._forget_if_failed(model))
                        fair_places = FairPlaces(self._answers_max, self._tenant_answers_max)
                        self._entries[model] = MemoryEntry(loading, fair_places)
                    else:
                        self._released.clear()
                        await self._released.wait()
        except TimeoutError as error:
            raise Refusal(
                BUSY,
                f"All {self._models_max} models that the engine keeps in memory are answering. Try "
                "again shortly; the operator can raise TUNERY_ENGINE_MODELS_MAX.",
            ) from error
        return entry

    def _drop_idle(self) -> bool:
        """Make room for one more model, by dropping an idle one if needed; return False if all are
        in use.
        """
        if len(self._entries) < self._models_max:
            return True
        for model, entry in self._entries.items():
            if entry.users == 0 and entry.loading.done():
                del self._entries[model]
                dropping = asyncio.create_task(_drop(entry), name="drop model")
                self._dropping.add(dropping)
                dropping.add_done_callback(self._dropping.discard)
                return True
        return False

    def _forget_if_failed(
        self, model: EngineModel
    ) -> "Callable[[asyncio.Task[LoadedModel]], None]":
        def forget(task: "asyncio.Task[LoadedModel]") -> None:
            if task.cancelled() or task.exception() is not None:
                self._entries.pop(model, None)

        return forget


async def _drop(entry: MemoryEntry) -> None:
    with contextlib.suppress(Exception):  # loading failed, and those who waited got the error
        loaded = await entry.loading
        await asyncio.to_thread(loaded.close)
