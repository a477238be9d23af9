"""Module of another toy service, with its own metric."""

from typing import Final

from tunery.runtime.telemetry.catalogue import counter

NEIGHBOURS: Final = counter("tunery_neighbours_total", "Neighbours of toys, in tests")
