import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest
from prometheus_client import REGISTRY

from examples.first_stream import SEATS, HoldSeats, ReleaseSeats, SeatsHeld
from tests.hosts import running
from tests.log_lines import Lines, logged
from tests.unit.tunery.runtime.hosts.toy_service import HELD, Toy, give_back, toy, until
from tests.virtual_time import on_virtual_time
from tunery.platform.seal.abstract import KeyAbsent, RootUnavailable
from tunery.runtime.blobs.abstract import BlobsUnavailable
from tunery.runtime.bus.partitioner import partition_of
from tunery.runtime.hosts import effects
from tunery.runtime.hosts.effects import EffectHost, outcome_id
from tunery.runtime.hosts.projector import Projector
from tunery.runtime.journal.codec import decode_envelope
from tunery.runtime.store.abstract import LeasedRow
from tunery.runtime.telemetry.logs import JsonFormatter
from tunery.runtime.telemetry.trail import Trail, trail_context
from tunery.runtime.verbs import RETRIES, Effect, GoOnLater, RetryLater, Send


@pytest.fixture(autouse=True)
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(effects, "OUTAGE_MS", 10)
    monkeypatch.setattr(effects, "POLL_MS", 20)


@asynccontextmanager
async def serving(effect: Effect[SeatsHeld]) -> AsyncIterator[Toy]:
    async with (
        toy() as service,
        running(Projector(service.runtime, HELD), EffectHost(service.runtime, (effect,))),
    ):
        yield service


async def gone(service: Toy) -> None:
    """Until the row that the effect is to remove has come and gone."""

    async def nothing_left() -> bool:
        return not await service.runtime.store.rows("held")

    await until(nothing_left)


@on_virtual_time
async def test_the_outcome_of_an_effect_ends_its_row() -> None:
    seen: list[tuple[int, str]] = []
    async with serving(
        give_back(lambda body, tenant: seen.append((body.seats, tenant)))
    ) as service:
        await service.send("a", HoldSeats(seats=3))

        async def ran() -> bool:
            return bool(seen)

        await until(ran)
        await gone(service)
        await asyncio.sleep(0.1)
        assert seen == [(3, "a")]
        assert await service.runtime.store.lease_rows("give", 1, 10) == []


@on_virtual_time
async def test_failed_effect_is_tried_again() -> None:
    failures = [ValueError("one"), BlobsUnavailable("away"), ValueError("two")]

    def fail_at_first(body: SeatsHeld, tenant: str) -> None:
        if failures:
            raise failures.pop(0)

    async with serving(give_back(fail_at_first, tries_max=3)) as service:
        await service.send("a", HoldSeats(seats=1))

        async def tried() -> bool:
            return not failures

        await until(tried)
        await gone(service)


@on_virtual_time
async def test_exhausted_effect_sends_its_last_failure() -> None:
    failures: list[str] = []
    attempts: list[int] = []

    def fail(body: SeatsHeld, tenant: str) -> None:
        attempts.append(1)
        raise ValueError("it never works")

    def exhausted(body: SeatsHeld, tenant: str, failure: str) -> Send:
        failures.append(failure)
        return Send("seats", tenant, tenant, ReleaseSeats(seats=body.seats))

    effect = replace(give_back(fail, tries_max=3), exhausted=exhausted)
    async with serving(effect) as service:
        await service.send("a", HoldSeats(seats=1))

        async def is_exhausted() -> bool:
            return bool(failures)

        await until(is_exhausted)
        await gone(service)
    assert failures == ["ValueError: it never works"]
    assert len(attempts) == 3


@on_virtual_time
async def test_try_that_never_ends_is_a_failed_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(effects, "RUN_MS_MAX", 30)
    tries: list[int] = []
    quick = give_back(lambda body, tenant: None)

    async def hang_once(body: SeatsHeld, tenant: str, try_number: int = 1) -> Send | None:
        tries.append(try_number)
        if try_number == 1:
            await asyncio.Event().wait()
        return await quick.run(body, tenant, try_number)

    async with serving(replace(quick, run=hang_once, tries_max=3)) as service:
        await service.send("a", HoldSeats(seats=1))

        async def tried_again() -> bool:
            return tries == [1, 2]

        await until(tried_again)
        await gone(service)


@pytest.mark.parametrize(
    "outage", [BlobsUnavailable("away"), KeyAbsent("acme", "keystore"), RootUnavailable("away")]
)
@on_virtual_time
async def test_outage_uses_up_no_try(outage: Exception) -> None:
    attempts: list[int] = []

    def away_for_long(body: SeatsHeld, tenant: str) -> None:
        attempts.append(1)
        if len(attempts) < 8:
            raise outage

    async with serving(give_back(away_for_long, tries_max=1)) as service:
        await service.send("a", HoldSeats(seats=1))

        async def enough() -> bool:
            return len(attempts) == 8

        await until(enough)
        await gone(service)


@on_virtual_time
async def test_work_that_kills_its_process_is_exhausted() -> None:
    """Every lease counts, so a row whose work never ends in an answer is given up."""
    failures: list[str] = []

    async def never(body: SeatsHeld, tenant: str, _: int = 1) -> Send | None:
        raise AssertionError("attempts are used up")

    def exhausted(body: SeatsHeld, tenant: str, failure: str) -> Send:
        failures.append(failure)
        return Send("seats", tenant, tenant, ReleaseSeats(seats=body.seats))

    async with toy() as service, running(Projector(service.runtime, HELD)):
        await service.send("a", HoldSeats(seats=1))

        async def dies() -> bool:
            return bool(await service.runtime.store.lease_rows("give", 1, 10))

        for _ in range(2):
            await until(dies)
        await asyncio.sleep(0.02)
        host = EffectHost(
            service.runtime,
            (Effect("give", SeatsHeld, never, exhausted, row_lease_ms=1_000, tries_max=2),),
        )
        labels = {"kind": "give", "outcome": "exhausted"}
        begun_at = REGISTRY.get_sample_value("tunery_effects_ended_total", labels)
        assert begun_at is not None, "there before it happens, so that an alert sees it grow"
        async with running(host):

            async def is_exhausted() -> bool:
                return bool(failures)

            await until(is_exhausted)
            await gone(service)
    assert failures == ["the work on it was cut off 2 times"]


@on_virtual_time
async def test_long_work_keeps_its_row_lease_and_is_cancelled_when_its_row_goes() -> None:
    begun, ended = asyncio.Event(), asyncio.Event()

    async def long_work(body: SeatsHeld, tenant: str, _: int = 1) -> Send | None:
        begun.set()
        try:
            await asyncio.sleep(60)
        finally:
            ended.set()
        return None

    effect = replace(give_back(lambda *_: None), run=long_work, row_lease_ms=90)
    async with serving(effect) as service:
        await service.send("a", HoldSeats(seats=1))
        await begun.wait()
        await asyncio.sleep(0.2)
        assert await service.runtime.store.lease_rows("give", 1, 10) == []
        await service.send("a", ReleaseSeats(seats=1))
        async with asyncio.timeout(180):
            await ended.wait()


@on_virtual_time
async def test_a_process_that_stops_gives_its_rows_back_at_once() -> None:
    begun = asyncio.Event()

    async def long_work(body: SeatsHeld, tenant: str, _: int = 1) -> Send | None:
        begun.set()
        await asyncio.sleep(60)
        return None

    effect = replace(give_back(lambda *_: None), run=long_work)
    async with toy() as service, running(Projector(service.runtime, HELD)):
        async with running(EffectHost(service.runtime, (effect,))):
            await service.send("a", HoldSeats(seats=1))
            await begun.wait()
        (row,) = await service.runtime.store.lease_rows("give", 1, 1_000)
        assert row.try_number == 1


@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.parametrize("unrecorded", [False, True])
@on_virtual_time
async def test_first_hour2_u21_a_row_goes_without_a_command_only_where_the_log_need_not_know(
    fails: bool, unrecorded: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A replay has the row of every other effect again, so its live row must not be gone."""
    monkeypatch.setattr(effects, "SETTLE_MS", 10)
    monkeypatch.setattr(effects, "EXHAUSTED_MS", 10)
    ran: list[str] = []

    async def silent(body: SeatsHeld, tenant: str, _: int = 1) -> Send | None:
        ran.append(tenant)
        if fails:
            raise ValueError("it never works")
        return None

    effect = Effect("give", SeatsHeld, silent, unrecorded=unrecorded, tries_max=1)
    async with serving(effect) as service:
        await service.send("a", HoldSeats(seats=1))

        async def is_over() -> bool:
            return len(ran) >= (1 if unrecorded else 3)

        await until(is_over)
        await asyncio.sleep(0.05)
        assert ran == ["a"] if unrecorded else len(ran) >= 3, (
            "it is done again until the log ends it"
        )


@on_virtual_time
async def test_no_more_rows_at_a_time_than_allowed() -> None:
    now, most = 0, 0

    async def count(body: SeatsHeld, tenant: str, _: int = 1) -> Send | None:
        nonlocal now, most
        now += 1
        most = max(most, now)
        await asyncio.sleep(0.02)
        now -= 1
        return Send("seats", tenant, tenant, ReleaseSeats(seats=body.seats))

    effect = replace(give_back(lambda *_: None), run=count, concurrency=3)
    async with serving(effect) as service:
        for number in range(12):
            await service.send(f"k{number}", HoldSeats(seats=1))

        async def all_taken() -> bool:
            return len(await service.runtime.store.rows("held")) > 0

        await until(all_taken)
        await gone(service)
    assert most == 3


def test_same_try_is_the_same_command() -> None:
    row = LeasedRow("scan", "1", "a", "a", 1, "t", b"")
    assert outcome_id("ingest", row) == outcome_id("ingest", replace(row, token="other"))
    assert outcome_id("ingest", row) != outcome_id("ingest", replace(row, try_number=2))


def test_retries_without_a_schedule_of_their_own_grow_to_a_limit() -> None:
    effect = replace(give_back(lambda *_: None), delay_ms=RETRIES.delay_ms)
    assert [effect.delay_ms(tries) for tries in (1, 2, 3, 99)] == [1_000, 2_000, 4_000, 60_000]


@on_virtual_time
async def test_a_try_that_is_to_be_repeated_later_waits_as_long_as_it_asks() -> None:
    tries: list[tuple[int, int]] = []

    async def ask_for_a_pause(body: SeatsHeld, tenant: str, try_number: int = 1) -> Send | None:
        tries.append((try_number, round(1_000 * asyncio.get_running_loop().time())))
        if try_number == 1:
            raise RetryLater("too many requests", delay_ms_min=300)
        return Send("seats", tenant, tenant, ReleaseSeats(seats=body.seats))

    async with serving(replace(give_back(lambda *_: None), run=ask_for_a_pause)) as service:
        await service.send("a", HoldSeats(seats=1))

        async def tried_twice() -> bool:
            return len(tries) == 2

        await until(tried_twice)
        await gone(service)
    (first, first_ms), (second, second_ms) = tries
    assert (first, second) == (1, 2)
    assert second_ms - first_ms >= 300


@pytest.mark.parametrize(("counts", "numbers"), [(False, [1, 1, 1]), (True, [1, 2, 3])])
@on_virtual_time
async def test_work_that_goes_on_later_is_no_failed_try(counts: bool, numbers: list[int]) -> None:
    tries: list[int] = []

    async def go_on_twice(body: SeatsHeld, tenant: str, try_number: int = 1) -> Send | None:
        tries.append(try_number)
        if len(tries) < 3:
            raise GoOnLater(delay_ms=10, counts=counts)
        return Send("seats", tenant, tenant, ReleaseSeats(seats=body.seats))

    effect = replace(give_back(lambda *_: None, tries_max=1 + 2 * counts), run=go_on_twice)
    async with serving(effect) as service:
        await service.send("a", HoldSeats(seats=1))

        async def ended() -> bool:
            return len(tries) == 3

        await until(ended)
        await gone(service)
    assert tries == numbers


@on_virtual_time
async def test_log_lines_of_an_effect_carry_the_row_and_its_tenant(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.handler.setFormatter(JsonFormatter("toy"))

    def fail_at_first(body: SeatsHeld, tenant: str) -> None:
        if not caplog.records:
            raise ValueError("the first try fails")

    async with serving(give_back(fail_at_first)) as service:
        await service.send("a", HoldSeats(seats=1))

        async def failed() -> bool:
            return bool(caplog.records)

        await until(failed)
        await gone(service)
    (line,) = [json.loads(text) for text in caplog.text.splitlines() if "effect.failed" in text]
    assert (line["kind"], line["tenant"], line["try_number"]) == ("give", "a", 1)
    assert line["error"] == "ValueError"


@on_virtual_time
async def test_what_an_effect_says_and_sends_follows_from_the_request_of_its_row() -> None:
    trail = Trail("req_1", f"00-{'a' * 32}-{'b' * 16}-01")
    with logged() as lines:
        async with serving(give_back(lambda body, tenant: None)) as service:
            with trail_context(trail):
                await service.send("a", HoldSeats(seats=3))
            await until(lambda: _has_ended(lines))
            await gone(service)
            records = service.runtime.log.topics[SEATS.commands.name]  # type: ignore[attr-defined]  # in memory
            asked, outcome = (
                decode_envelope(record.value) for record in records[partition_of(b"a")].records
            )
    assert (asked.correlation, outcome.correlation) == ("req_1", "req_1")
    assert outcome.traceparent == trail.traceparent
    (ended,) = lines.of("effect.ended")
    assert (ended["request_id"], ended["trace_id"], ended["tenant"]) == ("req_1", "a" * 32, "a")
    assert (ended["kind"], ended["outcome"]) == ("give", "sent")
    held, released = lines.of("decision.settled")
    assert (held["events"], released["events"]) == ("SeatsHeld", "SeatsReleased")
    assert held["request_id"] == released["request_id"] == "req_1"


async def _has_ended(lines: Lines) -> bool:
    return bool(lines.of("effect.ended"))


@on_virtual_time
async def test_a_decision_that_no_request_led_to_is_not_logged() -> None:
    with logged() as lines:
        async with serving(give_back(lambda body, tenant: None)) as service:
            await service.send("a", HoldSeats(seats=3))
            await until(lambda: _has_ended(lines))
            await gone(service)
    assert lines.of("decision.settled") == []
