"""The stream of the first-stream tutorial as a service: `python toy_process.py`."""

from collections.abc import Sequence
from dataclasses import replace

from examples.first_stream import SEATS, SEATS_AGGREGATE, SeatsHeld
from schemas.streams import PARTITIONS
from simulator.event_core.streams import STREAMS
from tests.unit.tunery.runtime.hosts.toy_service import HELD, give_back
from tunery.platform.ports import Runtime
from tunery.platform.process import main
from tunery.runtime.bus.sender import Sender
from tunery.runtime.hosts.abstract import Host
from tunery.runtime.hosts.aggregate import AggregateHost
from tunery.runtime.hosts.effects import EffectHost
from tunery.runtime.hosts.projector import Projector

DDL = "CREATE TABLE IF NOT EXISTS held (key text PRIMARY KEY, seats bigint, at bigint)"


def fail_for_keep_tenants(body: SeatsHeld, tenant: str) -> None:
    """Fail for tenants named `keep-…`, so that their seats stay held."""
    if tenant.startswith("keep-"):
        raise ValueError("seats of this tenant are never released")


async def build(runtime: Runtime) -> Sequence[Host]:
    await runtime.log.create((SEATS.commands, SEATS.journal), PARTITIONS)
    mine = replace(runtime, sender=Sender(runtime.log, STREAMS, keys=runtime.keys))
    return (
        AggregateHost(mine, SEATS_AGGREGATE),
        Projector(mine, replace(HELD, ddl=DDL)),
        EffectHost(mine, (give_back(fail_for_keep_tenants, tries_max=1_000),)),
    )


if __name__ == "__main__":
    main("toyprocess", build)
