"""Composition root: the only file of the service that names concrete parts."""

from collections.abc import Sequence

from services.watcher.ends import EndsHost
from services.watcher.host import WatcherHost
from services.watcher.settings import WatcherSettings
from tunery.platform.ports import Runtime
from tunery.platform.settings import load
from tunery.runtime.hosts.abstract import Host


async def build(runtime: Runtime) -> Sequence[Host]:
    """The hosts of the service. Raises SettingsError."""
    host = WatcherHost(runtime, load(WatcherSettings))
    runtime.figures.add(host.figures)
    return (host, EndsHost(runtime))
