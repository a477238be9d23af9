"""Play seeds of all scenarios: `python -m simulator` or `make sim`."""

import sys

from simulator.artifacts.scenario import ARTIFACTS
from simulator.control_plane.coverage import table
from simulator.control_plane.scenario import CONTROL_PLANE
from simulator.engine.command_line import main
from simulator.event_core.scenario import EVENT_CORE

if __name__ == "__main__":
    sys.exit(main(None, (EVENT_CORE, CONTROL_PLANE, ARTIFACTS), table))
