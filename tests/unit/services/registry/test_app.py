"""The hosts of the composition root: the owner of `model`, and what follows from its journal."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from schemas.model import AddBase, BaseAdded
from schemas.streams import GLOBAL
from schemas.topics import MODEL
from services.registry.app import MODELS, build
from simulator.control_plane.samples import BASE
from tests.hosts import running
from tunery.platform.memory_servers import memory_servers
from tunery.platform.settings import SettingsError
from tunery.runtime.hosts.aggregate import AggregateHost
from tunery.runtime.hosts.digests import Digests
from tunery.runtime.hosts.effects import EffectHost
from tunery.runtime.hosts.projector import Projector
from tunery.runtime.hosts.reactor import Reactor
from tunery.runtime.journal.history import read_history

WAIT_S = 180


async def test_the_owner_decides_and_the_others_follow_its_journal() -> None:
    there = await memory_servers()
    runtime = there.runtime("registry")
    hosts = await build(runtime)
    assert [type(host) for host in hosts] == [
        AggregateHost,
        Digests,
        Reactor,
        Projector,
        EffectHost,
    ]
    async with running(*hosts), asyncio.timeout(WAIT_S):
        await runtime.sender.send(MODEL, GLOBAL, GLOBAL, AddBase(base=BASE), partition=0)
        events: list[object] = []
        while not events:
            await asyncio.sleep(0.01)
            read = [entry async for entry in read_history(there.log, MODEL, (0,))]
            events = [event for entry in read for event in entry.events]
    (added,) = events
    assert isinstance(added, BaseAdded)
    assert added.base.base_id == BASE.base_id
    assert MODELS.stream is MODEL


async def test_a_key_that_cannot_sign_is_named_at_the_start(tmp_path: Path) -> None:
    (tmp_path / "key.pem").write_text("no key")
    runtime = (await memory_servers()).runtime("registry")
    settings = runtime.settings.model_copy(update={"signing_dir": tmp_path})
    with pytest.raises(SettingsError, match=r"key\.pem is no private key as PEM; restore it"):
        await build(replace(runtime, settings=settings))
