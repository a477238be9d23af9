"""Composition root: the only file of the service that names concrete parts."""

import random
from collections.abc import Sequence

from schemas.topics import ACCOUNT
from services.notifier.adapters.http import HttpOutbound
from services.notifier.domain.schedule import JITTER_PPM
from services.notifier.effect import deliver
from services.notifier.project import DDL, SECRETS, project
from services.notifier.settings import NotifierSettings
from tunery.runtime.hosts.abstract import Host
from tunery.runtime.hosts.effects import EffectHost
from tunery.runtime.hosts.projector import Projection, Projector
from tunery.runtime.ports import Runtime
from tunery.runtime.settings import load

DELIVERIES = Projection(
    name="notifier",
    version=2,  # 2: the secrets in force when a message is sent
    streams=(ACCOUNT,),
    project=project,
    ddl=DDL,
    tables=(SECRETS,),
)


async def build(runtime: Runtime) -> Sequence[Host]:
    settings = load(NotifierSettings)
    outbound = HttpOutbound(allow_private=settings.allow_private, timeout_ms=settings.timeout_ms)
    draw = random.SystemRandom()
    delivery = deliver(runtime, outbound, settings.concurrency, lambda: draw.randint(0, JITTER_PPM))
    return (
        Projector(runtime, DELIVERIES),
        EffectHost(runtime, (delivery,)),
    )
