"""The simulator's doors, without faults, keep what every log, store and object storage promises."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest

from simulator.engine.broker import Broker
from simulator.engine.faults import Faults, Tally
from simulator.engine.faulty_port import Door
from simulator.engine.stores import Database, DoorBlobs, DoorStore, Storage
from simulator.engine.virtual_loop import run_virtual
from tests.contract.blobs_suite import BlobsSuite
from tests.contract.bus_suite import BusSuite
from tests.contract.store_suite import StoreSuite


def door() -> Door:
    return Door(Broker(Random(1), Faults(), Tally(), {}), "p1", Random(2))


def store() -> DoorStore:
    one = door()
    return DoorStore(one, Database(one.broker))


def blobs() -> DoorBlobs:
    return DoorBlobs(door(), Storage())


SUITES: dict[type[Any], Callable[[], Any]] = {BusSuite: door, StoreSuite: store, BlobsSuite: blobs}
TESTS = [(suite, name) for suite in SUITES for name in vars(suite) if name.startswith("test_")]


@pytest.mark.parametrize(("suite", "name"), TESTS, ids=lambda one: getattr(one, "__name__", one))
def test_a_door_keeps_the_contract(suite: type[Any], name: str, tmp_path: Path) -> None:
    test = getattr(suite(), name)
    unnoticed: list[Any] = []

    async def play() -> None:
        given = {"tmp_path": tmp_path} if "tmp_path" in test.__annotations__ else {}
        asyncio.get_running_loop().set_exception_handler(lambda _, what: unnoticed.append(what))
        await test(SUITES[suite](), **given)

    run_virtual(play())
    assert not unnoticed
