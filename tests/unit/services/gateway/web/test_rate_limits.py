"""Limits in this process, and what happens while Valkey is gone."""

import asyncio

import pytest

from services.gateway.web import rate_limits as rates_module
from services.gateway.web.domain.token_bucket import MINUTE_US, Allowance
from services.gateway.web.rate_limits import MISSES_MAX, FallbackRates, LocalRates, rates_of
from tests.unit.services.gateway.control_plane import ControlPlane


class Shared:
    """A server that can go away."""

    def __init__(self) -> None:
        self.local, self.away, self.asked = LocalRates(), False, 0

    async def take(self, name: str, limit: int, window_us: int = MINUTE_US) -> Allowance:
        self.asked += 1
        if self.away:
            raise ConnectionError("gone")
        return await self.local.take(name, limit, window_us)

    async def close(self) -> None:
        return


async def test_without_valkey_each_process_counts_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shared = Shared()
    patient = FallbackRates(shared, LocalRates())
    assert (await patient.take("k", 1)).allowed
    assert not (await patient.take("k", 1)).allowed
    shared.away = True
    assert (await patient.take("k", 1)).allowed  # fails open: the local bucket is full
    for _ in range(10):
        assert not (await patient.take("k", 1)).allowed  # and is a limit all the same
    assert shared.asked == 2 + MISSES_MAX  # it is left alone for a while
    monkeypatch.setattr(rates_module, "AWAY_MS", 0)
    shared.away = False
    patient._away_until = 0.001
    assert not (await patient.take("k", 1)).allowed  # the shared bucket counts again


async def test_review2_p21_a_late_answer_makes_one_request_local_and_no_other(
    caplog: pytest.LogCaptureFixture,
) -> None:
    shared = Shared()
    patient = FallbackRates(shared, LocalRates())
    for late in (True, False, True, True, False, False):
        shared.away = late
        await patient.take("k", 100)
    assert shared.asked == 6
    assert "valkey.unavailable" not in caplog.messages


async def test_an_unreachable_valkey_fails_no_request() -> None:
    rates = rates_of("redis://127.0.0.1:1/0")
    allowances = [await rates.take("k", 2) for _ in range(3)]
    assert [item.allowed for item in allowances] == [True, True, False]
    await rates.close()


async def test_a_valkey_that_breaks_off_in_an_answer_fails_no_request() -> None:
    """Its client raises ValueError then: what it read is no number."""

    async def say_half(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await reader.read(4_096):
            writer.write(b"*2\r\n:5\r\n:0+OK\r\n")
        writer.close()

    async with await asyncio.start_server(say_half, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        bare = rates_module.ValkeyRates(f"redis://127.0.0.1:{port}/0")
        with pytest.raises(ValueError, match="invalid literal"):
            await bare.take("k", 2)
        await bare.close()
        rates = rates_of(f"redis://127.0.0.1:{port}/0")
        allowances = [await rates.take("k", 2) for _ in range(3)]
        assert [item.allowed for item in allowances] == [True, True, False]
        await rates.close()


async def test_only_so_many_buckets_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rates_module, "BUCKETS_MAX", 2)
    local = LocalRates()
    for name in ("a", "b", "c"):
        await local.take(name, 1)
    assert (await local.take("a", 1)).allowed  # forgotten, so full again
    assert not (await local.take("c", 1)).allowed


async def test_responses_have_rate_limit_headers_and_retry_after(api: ControlPlane) -> None:
    client = await api.tenant()
    path = f"/v1/tenants/{client.headers['x-tenant']}/keys"
    created = (await api.api.post(path, json={"requests_per_minute": 2})).json()
    key = api.client(created["key"])
    answers = [await key.get("/v1/files") for _ in range(3)]
    assert [item.status_code for item in answers] == [200, 200, 429]
    left = [item.headers["x-ratelimit-remaining-requests"] for item in answers]
    assert left == ["1", "0", "0"]
    refused = answers[2]
    assert refused.headers["x-ratelimit-limit-requests"] == "2"
    assert refused.json()["error"]["type"] == "rate_limit_error"
    assert refused.json()["error"]["code"] == "rate_limit_exceeded"
    assert 0 < int(refused.headers["retry-after"]) <= 30
    assert refused.headers["x-should-retry"] == "true"
    assert (await client.get("/v1/files")).status_code == 200
