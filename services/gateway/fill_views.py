"""`python -m services.gateway.fill_views`: fills the read models, where gateways do not.

It uses the gateway's accounts, and opens no texts.
"""

from collections.abc import Sequence

from services.gateway.settings import GatewaySettings
from services.gateway.views.host import view_hosts
from services.gateway.views.reading import views_of
from tunery.platform.ports import Runtime
from tunery.platform.process import main
from tunery.platform.settings import load
from tunery.runtime.hosts.abstract import Host


async def build(runtime: Runtime) -> Sequence[Host]:
    """The hosts of the process."""
    return view_hosts(runtime, views_of(runtime.store), load(GatewaySettings).days_kept)


main("views", build)
