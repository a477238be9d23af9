"""Composition root: the only file of the service that names concrete parts."""

from collections.abc import Sequence

from services.exporter.host import ExportHost
from services.exporter.settings import ExporterSettings
from tunery.runtime.hosts.abstract import Host
from tunery.runtime.ports import Runtime
from tunery.runtime.settings import load


async def build(runtime: Runtime) -> Sequence[Host]:
    """The one host of the service. Raises SettingsError."""
    return (ExportHost(runtime, load(ExporterSettings)),)
