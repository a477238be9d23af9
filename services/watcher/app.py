"""Composition root: the only file of the service that names concrete parts."""

from collections.abc import Sequence

from services.watcher.host import WatcherHost
from services.watcher.settings import WatcherSettings
from tunery.runtime.hosts.abstract import Host
from tunery.runtime.ports import Runtime
from tunery.runtime.settings import load


async def build(runtime: Runtime) -> Sequence[Host]:
    """The one host of the service. Raises SettingsError."""
    host = WatcherHost(runtime, load(WatcherSettings))
    runtime.figures.add(host.figures)
    return (host,)
