"""A stack on three brokers with Kafka's own settings, which die one by one: nothing is lost."""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import pytest

from tests.bases import tiny_base
from tests.e2e.stories import TINY, TRAINING, Api, client, replayed, rows, tunery
from tests.kafka_brokers import StockBrokers, stock_brokers
from tests.stacks import sweep, temporary_data_dir
from tunery.local import initial_setup
from tunery.local.events import Event, Notice
from tunery.local.stack import ServiceSpec, Stack, stack

pytestmark = pytest.mark.timeout(900)

#: what decides, stores and answers; nothing trains
SERVICES: Final = ("gateway", "scheduler", "billing", "ingest", "registry", "eval", "notifier")
TWINS: Final = ("scheduler", "billing")
OUTAGE_S: Final = 4.0
SUBMIT_PAUSE_S: Final = 1.0
JOBS_MAX: Final = 19  # of a tenant of this plan, waiting at once


@asynccontextmanager
async def stack_on(brokers: StockBrokers, notes: list[Event]) -> AsyncIterator[Stack]:
    """The services with a second process of some, as the same principals."""
    environ = {"TUNERY_KAFKA_BOOTSTRAP": brokers.bootstrap}
    with temporary_data_dir() as data_dir:
        async with stack(data_dir, SERVICES, environ=environ, listen=notes.append) as running:
            await running.add(
                *(
                    ServiceSpec(f"{name}-b", f"services.{name}", running.settings.environment(name))
                    for name in TWINS
                )
            )
            await initial_setup.run_setup_steps(
                running, lambda _line: None, (initial_setup.create_tenant,)
            )
            yield running


async def test_review2_p1_brokers_with_their_own_settings_die_one_by_one_and_nothing_is_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sweep()
    tiny = await asyncio.to_thread(tiny_base)
    notes: list[Event] = []
    with temporary_data_dir() as folder:
        async with stock_brokers(folder) as brokers, stack_on(brokers, notes) as running:
            monkeypatch.setenv("TUNERY_KAFKA_BOOTSTRAP", brokers.bootstrap)  # for commands
            assert any(
                isinstance(note, Notice) and "auto.create.topics.enable=false" in note.text
                for note in notes
            ), "what would be better is said"
            async with client(running.api_url, running.admin_key) as http:
                api = Api(http)
                await api.post("/bases", {"id": TINY, "path": str(tiny.dir)})
                body = {"model": TINY, "training_file": await api.upload(rows(12)), **TRAINING}
                submitted, waits = dict[str, str](), dict[str, float]()
                ending = asyncio.Event()

                async def submit_all() -> None:
                    while not ending.is_set() and len(submitted) < JOBS_MAX:
                        key, began = f"job-{len(submitted)}", time.monotonic()
                        submitted[key] = await api.submit({**body, "suffix": key}, key)
                        waits[key] = time.monotonic() - began
                        await asyncio.sleep(SUBMIT_PAUSE_S)

                submitting = asyncio.create_task(submit_all())
                for name in brokers.names:
                    brokers.supervisor.kill(name, restart=False)
                    await asyncio.sleep(OUTAGE_S)
                    await brokers.supervisor.restart(name)
                    await asyncio.sleep(OUTAGE_S)
                for name in TWINS:
                    running.kill(name, restart=False)
                await asyncio.sleep(OUTAGE_S)
                ending.set()
                await submitting
                for key, job_id in submitted.items():  # the same key, the same job
                    assert await api.submit({**body, "suffix": key}, key) == job_id
                listed = await api.get("/fine_tuning/jobs", limit=100)
                print(f"{len(submitted)} jobs, longest waits {sorted(waits.values())[-5:]}")
            assert sorted(job["id"] for job in listed["data"]) == sorted(submitted.values())
            report = await replayed(running.folders.root)
            assert report["equal"], report
            status, said = await tunery(running.folders.root, "journal", "verify", "--json")
            assert status == 0, said
            assert json.loads(said)
