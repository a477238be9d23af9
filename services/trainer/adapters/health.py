"""Faults of this machine's slots: of their devices, and of the disk that all share."""

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from schemas.node import DeviceFault
from schemas.reasons import device_fault
from services.trainer.adapters.nvml import DeviceWatch

HYSTERESIS: Final = 1.25  # times the limit; between the two it stays as it was


@dataclass
class MachineHealth:
    """Faults of this machine's slots."""

    slots: int
    folder: Path  # work folder of the node
    disk_bytes_min: int  # what its disk has to have left; 0: whatever it has
    # the devices of the slots, in the order of their numbers; None: processors
    devices: DeviceWatch | None = None
    _is_full: bool = False

    def faults(self) -> tuple[DeviceFault, ...]:
        """Return a fault for each slot that gets no new leases, by its number."""
        reasons = {} if self.devices is None else dict(self.devices.faults())
        if self._lacks_disk():
            full = device_fault("disk_full", limit_bytes=self.disk_bytes_min)
            reasons = {number: reasons.get(number, full) for number in range(self.slots)}
        return tuple(
            DeviceFault(device=number, reason=reason)
            for number, reason in sorted(reasons.items())
            if number < self.slots
        )

    def _lacks_disk(self) -> bool:
        limit = self.disk_bytes_min * (HYSTERESIS if self._is_full else 1)
        try:
            self._is_full = shutil.disk_usage(self.folder).free < limit
        except OSError:  # a disk that is not read is of no use either
            self._is_full = True
        return self._is_full
