"""One service, forked from a process that has loaded all of them. Started by `forks`.

For `tunery.confinement.fork_server`. What differs between services comes after the fork, by the
standard input: their variables, of which some are passwords, never pass through the server.
"""

import importlib
import json
import os
import runpy
import sys
import time
from pathlib import Path
from typing import Final, TypeAlias

from prometheus_client import REGISTRY
from setproctitle import setproctitle

import tunery.platform.process  # noqa: F401  # what `__main__` of each service loads
from tunery.platform.blobs.s3 import S3Settings, connect
from tunery.runtime.telemetry.catalogue import Counter, Gauge, Histogram

Metric: TypeAlias = Counter | Gauge | Histogram
#: metrics by the service that declares them
METRICS: Final[dict[str, set[Metric]]] = {}
# The first call finds where the name is, which it cannot once variables have changed.
setproctitle(f"{sys.executable} -m {__name__}")
# boto3 reads descriptions of S3 with its first client, and keeps them for the next ones.
connect(S3Settings("http://localhost", "none", "none", "none"))


def warm(app: Path) -> None:
    """Load the `app` of a service, by its name, and note which metrics are its own."""
    importlib.import_module(app.name)
    METRICS[app.stem] = metrics_in(app.stem) - metrics_in("tunery")


def metrics_in(package: str) -> set[Metric]:
    """Metrics that modules of a package name."""
    return {
        value
        for name, module in sys.modules.items()
        if name.startswith(f"{package}.")
        for value in vars(module).values()
        if isinstance(value, Metric)
    }


def run(module: str) -> None:
    """Run a service until it ends, as `python -m` does. Raises SystemExit."""
    text = sys.stdin.read()
    if not text:
        sys.exit("the supervisor ended before it sent the variables of this service")
    start = json.loads(text)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, sys.stdin.fileno())
    os.close(null)
    os.chdir(start["cwd"])
    sys.path[0] = start["cwd"]
    os.environ.clear()
    os.environ.update(start["env"])
    time.tzset()
    setproctitle(f"{sys.executable} -m {module}")
    for metric in set().union(*METRICS.values()) - METRICS[module]:
        REGISTRY.unregister(metric)
    sys.argv = [module]
    runpy.run_module(module, run_name="__main__", alter_sys=True)
