"""A host for tests: it raises what it is given, run by run, and then works until cancelled."""

import asyncio


class ScriptedHost:
    """`failures`: what the first runs raise. `stops`: gets the name when a run is cancelled."""

    def __init__(self, name: str, *failures: BaseException, stops: list[str] | None = None) -> None:
        self.name = name
        self.runs = 0
        self._failures = list(failures)
        self._stops = stops if stops is not None else []
        self._ready = asyncio.Event()

    async def run(self) -> None:
        self.runs += 1
        if self._failures:
            raise self._failures.pop(0)
        self._ready.set()
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0.01)
            self._stops.append(self.name)

    async def ready(self) -> None:
        await self._ready.wait()
