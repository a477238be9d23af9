"""The scheduler of production, which stops leases for earlier lanes at once.

    python -m tests.e2e.shared.hasty_scheduler

Production lets a lease run for ten minutes first, and counts three for its next start.
"""

from dataclasses import replace
from unittest.mock import patch

from services.scheduler.app import build
from services.scheduler.domain.pool import planned_pool
from tunery.platform.process import main

HASTY = replace(planned_pool.POLICY, ran_ms_min=0, restart_ms=0)

if __name__ == "__main__":
    with patch.object(planned_pool, "POLICY", HASTY):
        main("scheduler", build)
