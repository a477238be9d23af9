"""Composition root: the only file of the service that names concrete parts."""

from collections.abc import Sequence

from schemas.topics import JOB
from services.eval.effect import verdict
from services.eval.project import project
from tunery.runtime.process import Host, Runtime
from tunery.runtime.work.effects import EffectHost
from tunery.runtime.work.projector import Projection, Projector


async def build(runtime: Runtime) -> Sequence[Host]:
    return (
        Projector(runtime, Projection(name="eval", version=1, streams=(JOB,), project=project)),
        EffectHost(runtime, (verdict(runtime.blobs),)),
    )
