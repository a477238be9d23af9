"""python -m tunery.runtime.testing: seeds of the core's scenario alone."""

import sys

from tunery.runtime.testing.event_core import CORE
from tunery.runtime.testing.sim import main

if __name__ == "__main__":
    sys.exit(main(None, (CORE,)))
