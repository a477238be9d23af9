"""Ports of the simulator, without faults, keep the contracts of log, store and object storage."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest

from simulator.engine.broker import Broker
from simulator.engine.faults import Faults, FaultTally
from simulator.engine.faulty_port import FaultyPort
from simulator.engine.stores import Database, FaultyBlobs, FaultyStore, Storage
from simulator.engine.virtual_loop import run_virtual
from tests.contract.blobs_suite import BlobsSuite
from tests.contract.bus_suite import BusSuite
from tests.contract.store_suite import StoreSuite


def port() -> FaultyPort:
    return FaultyPort(Broker(Random(1), Faults(), FaultTally(), {}), "p1", Random(2))


def store() -> FaultyStore:
    shared = port()
    return FaultyStore(shared, Database(shared.broker))


def blobs() -> FaultyBlobs:
    return FaultyBlobs(port(), Storage())


SUITES: dict[type[Any], Callable[[], Any]] = {BusSuite: port, StoreSuite: store, BlobsSuite: blobs}
TESTS = [(suite, name) for suite in SUITES for name in vars(suite) if name.startswith("test_")]


@pytest.mark.parametrize(
    ("suite", "name"), TESTS, ids=lambda value: getattr(value, "__name__", value)
)
def test_a_port_without_faults_keeps_the_contract(
    suite: type[Any], name: str, tmp_path: Path
) -> None:
    test = getattr(suite(), name)
    unnoticed: list[Any] = []

    async def play() -> None:
        fixtures = {"tmp_path": tmp_path} if "tmp_path" in test.__annotations__ else {}
        asyncio.get_running_loop().set_exception_handler(lambda _, what: unnoticed.append(what))
        await test(SUITES[suite](), **fixtures)

    run_virtual(play())
    assert not unnoticed
