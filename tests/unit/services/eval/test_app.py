"""The hosts of the composition root: verdicts that are due are read from `job` and worked off."""

from schemas.topics import JOB, MODEL
from services.eval.app import TODOS, build
from tunery.platform.memory_servers import memory_servers
from tunery.runtime.hosts.effects import EffectHost
from tunery.runtime.hosts.projector import Projector


async def test_one_projection_of_jobs_and_stages_feeds_the_effect() -> None:
    runtime = (await memory_servers()).runtime("eval")
    hosts = await build(runtime)
    assert [type(host) for host in hosts] == [Projector, EffectHost]
    assert TODOS.streams == (JOB, MODEL)
