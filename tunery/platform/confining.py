"""The operator's choice of confinement, checked against the machine when a service starts."""

import asyncio
import logging
import subprocess
from typing import Final

from tunery.confinement.confined import REQUIRED, Confinement
from tunery.confinement.support import missing_walls
from tunery.platform.ports import Runtime
from tunery.platform.settings import SettingsError
from tunery.runtime.telemetry.logs import log_event
from tunery.runtime.telemetry.metrics import CONFINED

LOG: Final = logging.getLogger(__name__)


async def confinement_of(runtime: Runtime) -> Confinement:
    """How this service confines the processes that read what tenants upload.

    What is missing is logged, counted and shown by `/readyz`.
    Raises SettingsError where the operator requires more than the machine has.
    """
    mode = runtime.settings.confine
    try:
        missing = dict(await asyncio.to_thread(missing_walls))
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        missing = dict.fromkeys(REQUIRED, f"{type(error).__name__}: {error}")
    if mode == "off":
        missing = dict.fromkeys((*REQUIRED, *missing), "TUNERY_CONFINE=off")
    elif mode == "require" and (lacking := missing.keys() & set(REQUIRED)):
        said = "; ".join(f"{name}: {missing[name]}" for name in sorted(lacking))
        raise SettingsError(
            f"processes that read tenants' files cannot be confined here ({said}): use a kernel "
            "with Landlock and seccomp (`tunery doctor` checks it), or set TUNERY_CONFINE=prefer"
        )
    for name, why in missing.items():
        log_event(LOG, logging.WARNING, "confinement.missing", wall=name, why=why)
    runtime.health.unconfined = missing
    CONFINED.set(0 if missing else 1)
    return Confinement(mode)
