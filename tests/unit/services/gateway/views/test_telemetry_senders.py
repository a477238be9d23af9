"""Telemetry counts if a node has signed it, about an attempt that is on it."""

from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from schemas.node import NodeKeysWithdrawn
from schemas.pool import NodeRegistered
from schemas.telemetry import LogLine
from schemas.topics import TELEMETRY
from services.gateway.views.reading import StoreViews
from services.gateway.views.telemetry_senders import TelemetrySenders
from tests.unit.services.gateway.jobs.job_events import JOB
from tests.unit.services.gateway.view_rows import FoldedStore, folded
from tests.unit.services.gateway.views.projections.test_placements import GRANTED
from tests.unit.services.gateway.views.projections.test_pool import NODE
from tests.unit.tunery.runtime.journal.memory_fixture import GARBAGE
from tunery.platform.bus.sender_keys import keys_of
from tunery.runtime.bus.abstract import Record
from tunery.runtime.bus.signing import SenderKeys
from tunery.runtime.telemetry.metrics import REJECTIONS

pytestmark = pytest.mark.security
SECRET = b"s" * 32
GATEWAY = keys_of(SECRET, "gateway", signed_since=1_000)
REGISTERED_B = NodeRegistered(node=replace(NODE, node_id="b"))
LINE = LogLine(tenant="acme", job_id=JOB, attempt=1, level="info", text="begun")


def signed(sender: str, secret: bytes = SECRET, **changes: Any) -> bytes:
    body = msgspec.json.encode(replace(LINE, **changes))
    return keys_of(secret, sender).sign(TELEMETRY.name, body)


def record(value: bytes, at: int = 2_000) -> Record:
    return Record(3, 7, at, b"key", value)


async def counts(value: bytes, *events: Any, at: int = 2_000, keys: SenderKeys = GATEWAY) -> bool:
    """Whether a record counts after events of the pool, beside another that does."""
    views = StoreViews(FoldedStore(folded("pool", *events, key="default")))
    own = record(signed("node.a"), at)
    (*others, last) = await TelemetrySenders(keys, views).counted([record(value, at), own])
    assert last == own
    return bool(others)


def refusals(code: str) -> float:
    return float(REJECTIONS.labels("telemetry", code)._value.get())


async def test_security_c2_what_the_node_of_an_attempt_has_signed_counts() -> None:
    assert await counts(signed("node.a"), GRANTED)
    assert await counts(signed("node.a", text="again"), GRANTED)


@pytest.mark.parametrize(
    ("value", "code"),
    [
        (msgspec.json.encode(LINE), "sender_unproven"),
        (signed("node.a").replace(b"begun", b"ended"), "sender_unproven"),
        (signed("node.a", b"t" * 32), "sender_unproven"),
        (signed("node.b"), "sender_not_node"),
    ],
)
async def test_security_c2_what_is_forged_is_refused_and_counted(value: bytes, code: str) -> None:
    before = refusals(code)
    assert not await counts(value, GRANTED)
    assert refusals(code) == before + 1


async def test_a_service_reports_about_no_job() -> None:
    of_gateway = SenderKeys("gateway", {}, {}, SECRET)
    value = of_gateway.sign(TELEMETRY.name, msgspec.json.encode(LINE))
    before = refusals("sender_not_permitted")
    assert not await counts(value, GRANTED)
    assert refusals("sender_not_permitted") == before + 1


async def test_what_a_withdrawn_key_has_signed_is_refused() -> None:
    withdrawn = NodeKeysWithdrawn(node_id="b", number=1)
    assert not await counts(signed("node.b"), REGISTERED_B, withdrawn)
    assert await counts(signed("node.b#2"), REGISTERED_B, withdrawn)


async def test_security_what_the_agent_of_a_flavors_node_has_signed_counts() -> None:
    (seat,) = GRANTED.members
    granted = replace(GRANTED, members=(replace(seat, node_id="k8s:h100"),))
    views = StoreViews(FoldedStore(folded("pool", granted, key="default")))
    senders = TelemetrySenders(GATEWAY, views)
    assert await senders.counted([record(signed("node.k8s"))])
    assert not await senders.counted([record(signed("node.a"))])
    withdrawn = NodeKeysWithdrawn(node_id="k8s:h100", number=1)
    registered = NodeRegistered(node=replace(NODE, node_id="k8s:h100"))
    views = StoreViews(FoldedStore(folded("pool", registered, granted, withdrawn, key="default")))
    senders = TelemetrySenders(GATEWAY, views)
    assert not await senders.counted([record(signed("node.k8s"))])
    assert await senders.counted([record(signed("node.k8s#2"))])


async def test_an_attempt_that_the_read_models_do_not_show_may_be_any_nodes() -> None:
    assert await counts(signed("node.b", attempt=2), GRANTED)
    assert await counts(signed("node.b"))


async def test_telemetry_of_before_the_keys_counts_and_without_a_key_all_does() -> None:
    assert await counts(msgspec.json.encode(LINE), GRANTED, at=999)
    earlier = SenderKeys("gateway", {"job": b"k"})
    assert await counts(msgspec.json.encode(LINE), GRANTED, keys=earlier)


@pytest.mark.parametrize("value", GARBAGE)
async def test_garbage_is_refused_and_stops_nothing(value: bytes) -> None:
    assert not await counts(value, GRANTED)


async def test_the_nodes_of_an_attempt_are_asked_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    store = FoldedStore(folded("pool", GRANTED, key="default"))
    senders = TelemetrySenders(GATEWAY, StoreViews(store))
    batch = [record(signed("node.a")) for _ in range(3)]
    assert len(await senders.counted(batch)) == 3
    asked = list[str]()
    rows = store.rows

    async def counting(table: str, where: Any = None) -> Any:
        asked.append(table)
        return await rows(table, where)

    monkeypatch.setattr(store, "rows", counting)
    assert len(await senders.counted(batch)) == 3
    assert "attempt_nodes" not in asked
