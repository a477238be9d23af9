"""The event core's toy stream as a service of its own process: `python toy_process.py`."""

from collections.abc import Sequence
from dataclasses import replace

from examples.first_stream import SEATS, SEATS_AGGREGATE, SeatsHeld
from schemas.topics import PARTITIONS
from simulator.event_core.streams import STREAMS
from tests.unit.tunery.runtime.hosts.toy_service import HELD, give_back
from tunery.runtime.bus.sender import Sender
from tunery.runtime.hosts.abstract import Host
from tunery.runtime.hosts.aggregate import AggregateHost
from tunery.runtime.hosts.effects import EffectHost
from tunery.runtime.hosts.process import main
from tunery.runtime.hosts.projector import Projector
from tunery.runtime.ports import Runtime

DDL = "CREATE TABLE IF NOT EXISTS held (key text PRIMARY KEY, seats bigint, at bigint)"


def patience(body: SeatsHeld, tenant: str) -> None:
    """Tenants called keep-… hold for ever."""
    if tenant.startswith("keep-"):
        raise ValueError("this one is kept")


async def build(runtime: Runtime) -> Sequence[Host]:
    await runtime.log.create((SEATS.commands, SEATS.journal), PARTITIONS)
    mine = replace(runtime, sender=Sender(runtime.log, STREAMS))
    return (
        AggregateHost(mine, SEATS_AGGREGATE),
        Projector(mine, replace(HELD, ddl=DDL)),
        EffectHost(mine, (give_back(patience, tries_max=1_000),)),
    )


if __name__ == "__main__":
    main("toyprocess", build)
