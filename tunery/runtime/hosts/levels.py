"""Follow the level of the log, and announce the release of this process."""

import asyncio
import logging
import os
import socket
from functools import lru_cache
from importlib.metadata import version
from typing import Final

import msgspec

from schemas.levels import ReleaseNotice
from schemas.streams import RELEASES_TOPIC, UPGRADE_PARTITION
from schemas.units import Ms
from tunery.runtime.bus.abstract import BusError
from tunery.runtime.ports import Ports
from tunery.runtime.telemetry.logs import log_event
from tunery.runtime.watchdog import beat

LOG: Final = logging.getLogger("tunery.process")
NOTICE_EVERY_MS: Final[Ms] = 30_000
POLL_MS: Final[Ms] = 1_000
LEAVE_S_MAX: Final = 0.5


@lru_cache(maxsize=1)
def release() -> str:
    """Return the version of Tunery that runs."""
    return version("tunery")


class LevelHost:
    """Implements `Host`. It raises ReleaseTooOld when an operator has left this release behind."""

    name = "levels"

    def __init__(self, runtime: Ports) -> None:
        self._log, self._levels, self._keys = runtime.log, runtime.levels, runtime.keys
        self._clock, self._service = runtime.clock, runtime.keys.sender or runtime.name
        self._process = f"{self._service}@{socket.gethostname()}:{os.getpid()}"
        self._ready = asyncio.Event()

    async def ready(self) -> None:
        await self._ready.wait()

    async def run(self) -> None:
        """Follow until cancelled. Raises ReleaseTooOld, Unavailable, OutOfRange."""
        orders = await self._levels.follow(self._log)
        noticed_ms = self._clock.monotonic_ms() - NOTICE_EVERY_MS
        try:
            while True:
                beat("waiting")
                now_ms = self._clock.monotonic_ms()
                if now_ms - noticed_ms >= NOTICE_EVERY_MS and await self._announced():
                    noticed_ms = now_ms
                self._ready.set()
                await self._levels.poll(orders, POLL_MS)
        finally:
            await orders.close()

    async def leave(self) -> None:
        """Announce that this process ends, so that a raise of the level does not wait for it."""
        try:
            async with asyncio.timeout(LEAVE_S_MAX):
                await self._announce(ended=True)
        except (TimeoutError, BusError):
            return  # it is forgotten once it has been silent for long enough

    async def _announced(self) -> bool:
        """Announce this process; False if that failed, so that it is tried again."""
        try:
            await self._announce()
        except BusError as error:
            log_event(LOG, logging.WARNING, "release.not_announced", why=error)
            return False
        return True

    async def _announce(self, *, ended: bool = False) -> None:
        notice = ReleaseNotice(
            service=self._service,
            process=self._process,
            release=release(),
            level=self._levels.readable,
            ended=ended,
        )
        value = msgspec.json.encode(notice)
        if self._keys.can_sign(RELEASES_TOPIC):
            value = self._keys.sign(RELEASES_TOPIC, value)
        key = self._process.encode()
        await self._log.send(RELEASES_TOPIC, key, value, UPGRADE_PARTITION)
