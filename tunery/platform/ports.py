"""The ports that a service is given: real ones by `connections`, in memory by `memory_servers`."""

from dataclasses import dataclass

from tunery.platform.seal.sealer import Sealer
from tunery.platform.settings import RuntimeSettings
from tunery.runtime.ports import Ports


@dataclass(frozen=True, kw_only=True)
class Runtime(Ports):
    """The ports of hosts, with the settings of the process and the keys of tenants."""

    settings: RuntimeSettings
    seal: Sealer
