"""A node without a key store: what its leases are given, and what they cannot open."""

import asyncio
import os
from base64 import b64encode
from pathlib import Path

import msgspec
import pytest

from schemas import pool
from schemas.lease_keys import LeaseKeysRequested, LeaseKeysSealed, RequestLeaseKeys
from services.trainer.effect import lease_keys
from services.trainer.effect.lease_keys import KeysMissing, LeaseKeys
from tests.log_lines import logged
from tests.unit.services.trainer.domain.test_evolve import grant
from tests.unit.services.trainer.effect.machines import Script, node
from tests.unit.services.trainer.effect.test_attempt import KeptReports
from tunery.platform.memory_servers import MemoryServers, memory_servers
from tunery.platform.seal.abstract import KeyStoreBroken
from tunery.platform.seal.boxes import KEY_BYTES, public_key_of, seal_to
from tunery.platform.seal.handed import HandedKeys, encode_keys
from tunery.platform.seal.sealer import Sealer

pytestmark = pytest.mark.security


def wanted() -> bool:
    return False


async def asking(
    world: MemoryServers, monkeypatch: pytest.MonkeyPatch, wait_ms: int = 1_000
) -> tuple[LeaseKeys, KeptReports]:
    monkeypatch.setattr(lease_keys, "LOOK_S", 0.01)
    monkeypatch.setattr(lease_keys, "WAIT_MS_MAX", wait_ms)
    runtime = world.runtime("trainer")
    reports = KeptReports(runtime, "default")
    reports.facts = []
    return LeaseKeys(grant(), "a1", runtime, reports), reports


def sealed_for(reports: KeptReports, keys: HandedKeys) -> str:
    (request,) = reports.facts
    assert isinstance(request, RequestLeaseKeys)
    return b64encode(
        seal_to(bytes.fromhex(request.public_key), encode_keys(keys), bytes(32))
    ).decode()


def of_services(seal: Sealer) -> HandedKeys:
    own = seal.scoped_key("acme", "job1/1")
    return HandedKeys(seal_id=own.key_id, seal_secret=own.secret)


async def test_a_lease_goes_on_once_its_keys_have_come(monkeypatch: pytest.MonkeyPatch) -> None:
    world = await memory_servers()
    keys, reports = await asking(world, monkeypatch)
    waiting = asyncio.create_task(keys.fetch(wanted))
    while not reports.facts:  # noqa: ASYNC110  # a list
        await asyncio.sleep(0.01)
    assert not waiting.done()
    keys.take("what is no Base64")
    keys.take("AAAA")
    services = Sealer(world.keys)
    keys.take(sealed_for(reports, of_services(services)))
    await waiting
    sealed = keys.seal.seal("acme", "it failed", "detail")
    assert services.open(sealed, "detail") == "it failed"
    keys.take(sealed_for(reports, HandedKeys(problem="told twice")))
    await keys.fetch(wanted)


async def test_security_m3_keys_on_the_log_open_for_no_later_agent_of_the_lease(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = await memory_servers()
    keys, _ = await asking(world, monkeypatch)
    other, reports = await asking(world, monkeypatch, wait_ms=1)
    with pytest.raises(KeysMissing):
        await other.fetch(wanted)
    with logged() as lines:
        keys.take(sealed_for(reports, of_services(Sealer(world.keys))))
    assert lines.of("lease.keys_unreadable")
    with pytest.raises(KeyStoreBroken):
        keys.seal.seal("acme", "text", "detail")


async def test_keys_that_do_not_come_are_named_with_the_fix(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    keys, _ = await asking(await memory_servers(), monkeypatch, wait_ms=20)
    with pytest.raises(KeysMissing, match="is billing running"):
        await keys.fetch(wanted)


async def test_a_lease_that_is_not_wanted_any_more_waits_no_longer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    keys, reports = await asking(await memory_servers(), monkeypatch, wait_ms=600_000)
    await asyncio.wait_for(keys.fetch(lambda: True), 60)
    assert [type(fact) for fact in reports.facts] == [RequestLeaseKeys]


async def test_a_lease_without_keys_has_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    keys, reports = await asking(await memory_servers(), monkeypatch)
    waiting = asyncio.create_task(keys.fetch(wanted))
    while not reports.facts:  # noqa: ASYNC110  # a list
        await asyncio.sleep(0.01)
    keys.take(sealed_for(reports, HandedKeys(problem="the root refuses")))
    with pytest.raises(KeysMissing, match="the root refuses"):
        await waiting


async def test_through_pool_and_billing_a_lease_gets_its_keys(tmp_path: Path) -> None:
    async with node(await memory_servers(), tmp_path, lambda _: Script()) as here:
        await here.request("job1")
        events = await here.until(pool.MemberFreed)
    (asked,) = (event for event in events if isinstance(event, LeaseKeysRequested))
    (sealed,) = (event for event in events if isinstance(event, LeaseKeysSealed))
    assert (asked.holder.tenant, asked.holder.node_id) == ("acme", "a")
    assert asked.needs.writes == ("t/acme/scores/job1/1/",)
    assert sealed.holder == asked.holder
    order = [type(event) for event in events]
    assert order.index(LeaseKeysSealed) < order.index(pool.LeaseStarted)


async def test_security_m3_the_private_half_is_in_no_file_and_on_no_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[bytes] = []
    draw = os.urandom

    def note(count: int) -> bytes:
        drawn.append(draw(count))
        return drawn[-1]

    monkeypatch.setattr(os, "urandom", note)
    script = Script(then="time.sleep(60)")
    async with node(await memory_servers(), tmp_path, lambda _: script) as here:
        await here.request("job1")
        events = await here.until(pool.LeaseStarted)
        asked = next(event for event in events if isinstance(event, LeaseKeysRequested))
        (private,) = (
            key
            for key in drawn
            if len(key) == KEY_BYTES and public_key_of(key).hex() == asked.public_key
        )
        written = [file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()]
        await here.close("job1", "kill")
        events = await here.until(pool.MemberFreed)
    forms = (private, private.hex().encode(), b64encode(private))
    for content in (*written, *map(msgspec.json.encode, events)):
        assert not any(form in content for form in forms)


async def test_a_lease_without_keys_fails_as_the_platforms_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease_keys, "WAIT_MS_MAX", 100)
    world = await memory_servers()
    async with node(world, tmp_path, lambda _: Script(), gives_keys=False) as here:
        await here.request("job1")
        events = await here.until(pool.MemberFreed)
    (closed,) = (event for event in events if isinstance(event, pool.PlacementClosed))
    assert (closed.end.outcome, closed.end.cause) == ("failed", "platform")
    assert (closed.end.reason.code, closed.end.detail) == ("keys_missing", None)
    assert not any(isinstance(event, pool.LeaseStarted) for event in events)
