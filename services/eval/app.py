"""Composition root: the only file of the service that names concrete parts."""

from collections.abc import Sequence
from typing import Final

from schemas.topics import JOB
from services.eval.effect import verdict
from services.eval.project import project
from tunery.runtime.hosts.abstract import Host
from tunery.runtime.hosts.effects import EffectHost
from tunery.runtime.hosts.projector import Projection, Projector
from tunery.runtime.ports import Runtime

TODOS: Final = Projection(name="eval", version=1, streams=(JOB,), project=project)


async def build(runtime: Runtime) -> Sequence[Host]:
    return (Projector(runtime, TODOS), EffectHost(runtime, (verdict(runtime.blobs, runtime.seal),)))
