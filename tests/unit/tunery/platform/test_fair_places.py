"""Whose turn it is at a model."""

import asyncio

from tunery.platform.fair_places import FairPlaces


async def in_turn(fair_places: FairPlaces, tenant: str, order: list[str]) -> None:
    async with fair_places.take(tenant):
        order.append(tenant)
        await asyncio.sleep(0)


async def test_a_tenant_with_one_question_does_not_wait_for_all_of_another() -> None:
    fair_places, order = FairPlaces(2), list[str]()
    tenants = ["acme"] * 6 + ["beta", "corp"]
    await asyncio.gather(*(in_turn(fair_places, tenant, order) for tenant in tenants))
    assert sorted(order) == sorted(tenants)
    assert max(map(order.index, ("beta", "corp"))) <= 4


async def test_who_stops_waiting_loses_no_place() -> None:
    fair_places, order = FairPlaces(1), list[str]()
    async with fair_places.take("acme"):
        waiting = [
            asyncio.create_task(in_turn(fair_places, name, order)) for name in ("beta", "corp")
        ]
        await asyncio.sleep(0)
        waiting[0].cancel()
        await asyncio.sleep(0)
    await waiting[1]
    async with asyncio.timeout(180):
        await in_turn(fair_places, "dora", order)
    assert order == ["corp", "dora"]


async def test_a_place_that_was_given_to_who_leaves_goes_on() -> None:
    fair_places, order = FairPlaces(1), list[str]()
    async with fair_places.take("acme"):
        waiting = asyncio.create_task(in_turn(fair_places, "beta", order))
        await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.wait((waiting,))
    async with asyncio.timeout(180):
        await in_turn(fair_places, "corp", order)
    assert order == ["corp"]


async def test_security_m2_a_tenant_leaves_places_for_others() -> None:
    fair_places, order = FairPlaces(2, of_tenant_max=1), list[str]()
    async with fair_places.take("acme"):
        waiting = asyncio.create_task(in_turn(fair_places, "acme", order))
        await asyncio.sleep(0)
        await in_turn(fair_places, "beta", order)
        assert order == ["beta"], "the second place is not for the tenant that holds one"
    await waiting
    assert order == ["beta", "acme"]


async def test_low_priority_comes_last_and_leaves_a_place_free() -> None:
    fair_places, order = FairPlaces(2), list[str]()

    async def low() -> None:
        async with fair_places.take("acme", low=True):
            order.append("low")
            await asyncio.sleep(0)

    async with fair_places.take("beta"):
        waiting = [asyncio.create_task(low()), asyncio.create_task(low())]
        await asyncio.sleep(0)
        assert order == []  # the place that is free is for others
        async with fair_places.take("corp"):
            others = asyncio.create_task(in_turn(fair_places, "dora", order))
            await asyncio.sleep(0)
        await others
        await asyncio.sleep(0)
    await asyncio.gather(*waiting)
    assert order == ["dora", "low", "low"]


async def test_low_priority_gets_the_only_place() -> None:
    fair_places, order = FairPlaces(1), list[str]()
    async with asyncio.timeout(180), fair_places.take("acme", low=True):
        order.append("low")
    assert order == ["low"]
