"""Prints facts of its process, says that it is ready, and ends as $TOY_END says."""

import json
import os
import sys
import time
from pathlib import Path

from prometheus_client import REGISTRY

facts = {
    "module": __name__,
    "loaded": "tests.unit.tunery.local.toy_service.app" in sys.modules,
    "arguments": sys.argv[1:],
    "variables": {name: text for name, text in os.environ.items() if name.startswith("TOY_")},
    "folder": str(Path.cwd()),
    "first": sys.path[0],
    "niceness": os.getpriority(os.PRIO_PROCESS, 0),
    "leads": os.getsid(0) == os.getpgid(0) == os.getpid(),
    "input": sys.stdin.buffer.read().decode(),
    "descriptors": len(os.listdir("/proc/self/fd")) - 1,  # noqa: PTH208  # its own is open
    "metrics": [m.name for m in REGISTRY.collect() if m.name.endswith(("_toys", "_neighbours"))],
}
print(json.dumps(facts), flush=True)
print('{"event":"process.ready"}', flush=True)
match os.environ.get("TOY_END"):
    case None:
        time.sleep(60)
    case "fail":
        raise ValueError("no toys")
    case "refuse":
        sys.exit("toys are refused")
    case code:
        sys.exit(int(code))
