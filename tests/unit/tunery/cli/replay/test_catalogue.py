"""A replay knows of every kind of to-do row whether the log tells when it ends."""

import hashlib

import pytest

from services.billing import app as billing
from services.eval import app as evaluation
from services.gateway import app as gateway
from services.ingest import app as ingest
from services.notifier import app as notifier
from services.registry import app as registry
from tunery.cli.replay.catalogue import PROJECTIONS, UNRECORDED
from tunery.platform.memory_servers import memory_servers
from tunery.runtime.hosts.effects import EffectHost

SERVICES = {
    "billing": billing,
    "eval": evaluation,
    "gateway": gateway,
    "ingest": ingest,
    "notifier": notifier,
    "registry": registry,
}


async def test_first_hour2_u21_kinds_that_end_without_an_event_are_those_that_effects_declare(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TUNERY_ADMIN_KEY_SHA256", hashlib.sha256(b"admin").hexdigest())
    monkeypatch.setattr(billing, "pool_of", lambda store: None)  # the books need SQL
    servers = await memory_servers()
    assert SERVICES.keys() == PROJECTIONS.keys()
    effects = [
        effect
        for name, service in SERVICES.items()
        for host in await service.build(servers.runtime(name))
        if isinstance(host, EffectHost)
        for effect in host._effects
    ]
    assert {"close", "publish", "validate", "verdict", "wandb"} <= {e.kind for e in effects}
    assert {effect.kind for effect in effects if effect.unrecorded} == {*UNRECORDED}
