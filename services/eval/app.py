"""Composition root: the only file of the service that names concrete parts."""

from collections.abc import Sequence
from typing import Final

from schemas.topics import JOB, MODEL
from services.eval.effect import verdict
from services.eval.project import DDL, EVALUATIONS, POLICIES, VERSIONS, project
from tunery.platform.ports import Runtime
from tunery.runtime.hosts.abstract import Host
from tunery.runtime.hosts.effects import EffectHost
from tunery.runtime.hosts.projector import Projection, Projector

TODOS: Final = Projection(
    name="eval",
    version=6,  # 6: looks; 5: what comes back; 4: further runs of the gate; 3: policies
    streams=(JOB, MODEL),
    project=project,
    ddl=DDL,
    tables=(VERSIONS, EVALUATIONS, POLICIES),
)


async def build(runtime: Runtime) -> Sequence[Host]:
    return (Projector(runtime, TODOS), EffectHost(runtime, (verdict(runtime),)))
