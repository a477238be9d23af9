"""`python -m services.gateway.inference`: answers questions to models beside the API.

The gateway starts it, and gives it connections over standard input (`web/handover.py`). It uses
the gateway's accounts.
"""

import socket
from collections.abc import Sequence
from functools import partial

from services.gateway.api import create_app
from services.gateway.app import deps_of
from services.gateway.settings import GatewaySettings
from services.gateway.web.command_results import CommandResults
from services.gateway.web.handover import API, end_with_api, tell_request
from services.gateway.web.server import HandoverServer
from tunery.platform.ports import Runtime
from tunery.platform.process import main
from tunery.platform.settings import load
from tunery.runtime.hosts.abstract import Host


async def build(runtime: Runtime) -> Sequence[Host]:
    """The hosts of the process."""
    settings = load(GatewaySettings)
    command_results = CommandResults(runtime.store)
    deps = deps_of(runtime, settings, command_results)
    api = socket.socket(fileno=API)
    app = create_app(deps, partial(tell_request, api))
    server = HandoverServer(app, api, list(map(str, settings.trusted_proxies)))
    return (server, command_results, deps.traffic, deps.audit)


if __name__ == "__main__":
    end_with_api()
    main("gateway", build)
