"""All services are loaded in one process, as it is before it forks them."""

import json
import os
import subprocess
import sys
from typing import Final

from tunery.confinement.forking import ONE_THREAD
from tunery.local.stack import LOADED

LOADS: Final = """
import json, os, sys
from pathlib import Path
from tunery.local.preloaded import METRICS, warm
for service in sys.argv[1:]:
    warm(Path(f"{service}.app"))
metrics = {service: sorted(m._name for m in own) for service, own in METRICS.items()}
print(json.dumps([len(os.listdir("/proc/self/task")), metrics]))
"""


def test_all_services_load_without_a_thread_and_each_has_metrics_of_its_own() -> None:
    """A thread would be lost in a fork, so every service would start anew."""
    done = subprocess.run(
        [sys.executable, "-c", LOADS, *LOADED],
        env={**os.environ, **ONE_THREAD},
        stdout=subprocess.PIPE,
        check=True,
    )
    threads, metrics = json.loads(done.stdout)
    assert threads == 1
    assert metrics.keys() == set(LOADED)
    assert "tunery_http_requests" in metrics["services.gateway"]
    assert "tunery_deliveries_ended" in metrics["services.notifier"]
    named = [name for own in metrics.values() for name in own]
    assert len(named) == len(set(named))
    assert "tunery_rejections" not in named, "it is of all services"
