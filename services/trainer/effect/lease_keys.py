"""The keys of one lease: asked for when it begins, opened in memory, gone with its agent.

A node has no key store. It gets what the work of a lease opens and writes, sealed to a public key
that is made for this lease and whose private half is stored nowhere.
"""

import asyncio
import logging
import os
from base64 import b64decode
from collections.abc import Callable
from contextlib import suppress
from typing import Final

import msgspec

from schemas.lease_keys import RequestLeaseKeys
from schemas.units import Ms
from services.trainer.domain.state import Grant
from services.trainer.ports import Reporting
from tunery.platform.blobs.encrypted import EncryptedBlobs
from tunery.platform.blobs.path_keys import LeasePathKeys
from tunery.platform.ports import Runtime
from tunery.platform.seal.abstract import SealBroken
from tunery.platform.seal.boxes import KEY_BYTES, open_box, public_key_of
from tunery.platform.seal.handed import HandedKeys, LeaseSealer, decode_keys, hand_paths
from tunery.runtime.telemetry.logs import log_event

LOG: Final = logging.getLogger(__name__)
WAIT_MS_MAX: Final[Ms] = 300_000  # half of the shortest limit to start
LOOK_S: Final = 0.5  # whether the lease is still wanted


class KeysMissing(Exception):
    """The lease did not get the keys of its work."""


class LeaseKeys:
    """Keys of one lease. `blobs` and `seal` work once they have come, and for this lease alone."""

    def __init__(
        self, grant: Grant, incarnation: str, runtime: Runtime, reports: Reporting
    ) -> None:
        self._grant, self._incarnation, self._reports = grant, incarnation, reports
        self._clock = runtime.clock
        self._private_key = os.urandom(KEY_BYTES)
        self._keys: HandedKeys | None = None
        self._come = asyncio.Event()
        self._path_keys = LeasePathKeys()
        self.seal = LeaseSealer(grant.tenant)
        encrypts = runtime.settings.blob_encryption == "on"
        self.blobs = EncryptedBlobs(runtime.blobs, self._path_keys, encrypts=encrypts)

    def take(self, sealed_keys: str) -> None:
        """Decrypt the keys that came for this lease. The first ones are kept."""
        if self._keys is not None:
            return
        try:
            keys = decode_keys(open_box(self._private_key, b64decode(sealed_keys)))
        except (SealBroken, ValueError, msgspec.MsgspecError) as error:
            log_event(LOG, logging.WARNING, "lease.keys_unreadable", why=error)
            return
        self._keys = keys
        if not keys.problem:
            self.seal.take(keys)
            hand_paths(keys, self._path_keys)
        self._come.set()

    async def fetch(self, is_unwanted: Callable[[], bool]) -> None:
        """Ask for the keys, and wait until they have come or the lease is unwanted.

        Raises KeysMissing.
        """
        request = RequestLeaseKeys(
            lease=self._grant.token.lease,
            incarnation=self._incarnation,
            public_key=public_key_of(self._private_key).hex(),
        )
        began_ms = self._clock.monotonic_ms()
        await self._reports.fact(request, self._grant.tenant)
        looks = max(1, round(WAIT_MS_MAX / 1_000 / LOOK_S))
        for _ in range(looks):
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK_S):
                    await self._come.wait()
            if self._come.is_set() or is_unwanted():
                break
        if is_unwanted():
            return
        if self._keys is None:
            raise KeysMissing(
                f"no keys came within {WAIT_MS_MAX // 1_000} s: is billing running, and has "
                "it the folders of keys (TUNERY_KEYSTORE_DIR, TUNERY_ROOTS_DIR)?"
            )
        if self._keys.problem:
            raise KeysMissing(self._keys.problem)
        waited_ms = self._clock.monotonic_ms() - began_ms
        log_event(LOG, logging.INFO, "lease.keys_opened", waited_ms=waited_ms)
