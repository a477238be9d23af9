"""A process of the release after this one, whose read models have another version:
`python -m tests.next_views services.gateway`.

It often looks for schemas without readers.
"""

import runpy
import sys

from schemas import access

assert "services" not in sys.modules, "the version comes before all that has read it"
VERSION = access.VIEWS_VERSION + 1
changed = {"gateway": access.ACCESS["gateway"]._replace(version=VERSION)}
vars(access).update(VIEWS_VERSION=VERSION, ACCESS={**access.ACCESS, **changed})

if __name__ == "__main__":
    from services.gateway.views.host import OldVersions

    OldVersions.every_ms = 1_000
    runpy.run_module(sys.argv.pop(1), run_name="__main__")
