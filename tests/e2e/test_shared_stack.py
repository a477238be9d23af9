"""One failed test must not make the rest of its file fail: the shared stack is made anew."""

from typing import Final

import pytest

from tests.e2e import outages
from tests.e2e.outages import SharedStack, is_ready

pytestmark = [pytest.mark.soak, pytest.mark.timeout(900)]  # of the tests themselves

BROKEN_S_MAX: Final = 2.0  # for which a stack that is broken is asked whether it is ready
BROKEN: Final = ("scheduler", "gateway", "kafka")


async def test_stack_that_a_test_left_broken_is_made_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    shared = SharedStack()
    try:
        first = await shared.ready()
        assert await shared.ready() is first, "one that is ready is used again"
        monkeypatch.setattr(outages, "READY_S_MAX", BROKEN_S_MAX)
        for name in BROKEN:
            first.stack.kill(name, restart=False)
        assert not await is_ready(first)
        monkeypatch.undo()
        second = await shared.ready()
        assert second is not first
        assert second.stack.folders.root != first.stack.folders.root
        assert not first.stack.folders.root.exists(), "nothing is left of the broken one"
        assert await is_ready(second)
        assert await shared.ready() is second
    finally:
        await shared.close()
