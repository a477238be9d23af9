"""Module of a toy service, with its own metric."""

from typing import Final

from tunery.runtime.telemetry.catalogue import counter

TOYS: Final = counter("tunery_toys_total", "Toys, in tests")
