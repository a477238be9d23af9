"""Composition root: the only file of the service that names concrete parts."""

from collections.abc import Sequence

from services.exporter.host import ExportHost
from services.exporter.settings import ExporterSettings
from tunery.platform.ports import Runtime
from tunery.platform.settings import load
from tunery.runtime.hosts.abstract import Host


async def build(runtime: Runtime) -> Sequence[Host]:
    """The one host of the service. Raises SettingsError."""
    return (ExportHost(runtime, load(ExporterSettings)),)
