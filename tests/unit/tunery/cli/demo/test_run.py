"""Services of the demo, the order of its steps, and the stack that it leaves running."""

import asyncio
import io
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from tunery.cli.demo import run
from tunery.cli.demo.display import Display
from tunery.cli.demo.run import STEPS, services
from tunery.local.stack import ServiceSpec


def test_the_demo_starts_its_agents_itself_and_its_notifier_may_call_it() -> None:
    specs = {spec.name: spec for spec in services() if isinstance(spec, ServiceSpec)}
    names = [spec.name if isinstance(spec, ServiceSpec) else spec for spec in services()]
    assert "trainer" not in names
    assert len(names) == len(set(names))
    assert specs["notifier"].env == {"TUNERY_NOTIFIER_ALLOW_PRIVATE": "1"}


def test_a_job_is_estimated_before_it_is_submitted_and_billed_after_its_node_was_killed() -> None:
    names = [step.__name__ for step in STEPS]
    wanted = ["estimate", "submit", "train_and_kill", "resume", "gate", "bill"]
    assert [name for name in names if name in wanted] == wanted


async def test_it_prints_the_address_of_the_console_and_stays_up_until_it_is_stopped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(run, "new_code", lambda site, key: {"path": f"/console/{key}"})
    written, display = io.StringIO(), Display(to_stderr=False)
    display.console = Console(file=written, width=40)
    stack = SimpleNamespace(api_url="http://127.0.0.1:1", admin_key="[admin]")
    context: Any = SimpleNamespace(stack=stack, display=display)
    staying = asyncio.create_task(run.stay_up(context))
    async with asyncio.timeout(60):
        while "Ctrl-C" not in written.getvalue():  # noqa: ASYNC110  # a thread gets the code
            await asyncio.sleep(0.01)
    assert "http://127.0.0.1:1/console/[admin] " in written.getvalue()
    assert display.recorded == [[]], "a recording has no address that works once"
    assert not staying.done()
    staying.cancel()
    await staying  # the demo ends as one whose claims held
