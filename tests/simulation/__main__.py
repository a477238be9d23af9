"""python -m tests.simulation: seeds of the event core and of the town (`make sim`)."""

import sys

from tests.simulation.town.scenario import TOWN
from tunery.runtime.testing.event_core import CORE
from tunery.runtime.testing.sim import main

if __name__ == "__main__":
    sys.exit(main(None, (CORE, TOWN)))
