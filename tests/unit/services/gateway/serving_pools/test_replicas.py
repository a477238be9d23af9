"""Choice of the replica for a question, and of the next one."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any

import pytest

from services.gateway.serving_pools.replicas import ReplicaEngine
from services.gateway.views.tables.serving_pools import ReplicaRow
from services.gateway.web.domain.errors import ApiError, unavailable
from tests.unit.services.gateway.chat.scripted_engine import HELLO, QUESTION
from tunery.platform.memory_servers import memory_servers
from tunery.work.engine import BUSY, TENANT_BUSY, EngineReply, Question, QuestionRefused, TextAdded

FULL = QuestionRefused(BUSY, "all places are taken")


class Rows:
    """Implements what `ReplicaEngine` reads of `Views`."""

    def __init__(self, rows: Sequence[ReplicaRow]) -> None:
        self.rows = rows

    async def page(self, table: Any, where: Mapping[str, Any], **_: Any) -> Sequence[ReplicaRow]:
        assert where == {"tenant": "acme", "serving_pool_id": "spool-1"}
        return self.rows


class Script(ReplicaEngine):
    """Replicas that say what a test writes down; None: that one is away."""

    scripts: Mapping[str, Sequence[EngineReply] | None]
    asked: list[str]

    async def _ask(self, row: ReplicaRow, question: Question) -> AsyncGenerator[EngineReply, None]:
        self.asked.append(row.id)
        script = self.scripts[row.id]
        if script is None:
            raise unavailable("The replica")
        for reply in script:
            yield reply
        if not script or isinstance(script[-1], TextAdded):
            raise unavailable("The replica")


async def engine(caller: str, **scripts: Sequence[EngineReply] | None) -> Script:
    seal = (await memory_servers()).runtime("gateway").seal
    rows = [
        ReplicaRow(
            tenant="acme",
            id=name,
            serving_pool_id="spool-1",
            begun_at=1,
            draining=name.startswith("draining"),
            endpoint=None if name.startswith("starting") else seal.seal("acme", "{}", "endpoint"),
        )
        for name in scripts
    ]
    views: Any = Rows(rows)
    built = Script(views, seal, "acme", "spool-1", caller)
    object.__setattr__(built, "scripts", scripts)
    object.__setattr__(built, "asked", [])
    return built


async def said(built: Script) -> list[EngineReply]:
    return [reply async for reply in built.ask(QUESTION)]


async def test_a_caller_is_answered_by_the_same_replica_and_callers_by_all() -> None:
    firsts = set()
    for caller in map(str, range(12)):
        built = await engine(caller, a=HELLO, b=HELLO)
        assert await said(built) == list(HELLO)
        await said(built)
        assert len(built.asked) == 2
        assert len(set(built.asked)) == 1
        firsts.add(built.asked[0])
    assert firsts == {"a", "b"}


@pytest.mark.parametrize("caller", ["1", "2", "3"])
@pytest.mark.parametrize("first", [None, (FULL,)])
async def test_replicas_that_are_away_or_full_are_passed_over(
    first: Sequence[EngineReply] | None, caller: str
) -> None:
    built = await engine(caller, a=first, b=first, c=HELLO, draining=HELLO, starting=HELLO)
    assert await said(built) == list(HELLO)
    assert built.asked[-1] == "c"
    assert not {"draining", "starting"} & {*built.asked}


async def test_an_answer_that_has_begun_is_not_begun_again() -> None:
    for caller in map(str, range(4)):
        built = await engine(caller, a=HELLO[:1], b=HELLO[:1])
        with pytest.raises(ApiError):
            await said(built)
        assert len(built.asked) == 1


async def test_without_a_replica_the_refusal_has_a_retry_time() -> None:
    for scripts in ({}, {"a": None}, {"starting": HELLO}):
        with pytest.raises(ApiError) as away:
            await said(await engine("1", **scripts))
        assert (away.value.status, away.value.headers["retry-after"]) == (503, "5")
    assert await said(await engine("1", a=(FULL,), b=None)) == [FULL]
    own = QuestionRefused(TENANT_BUSY, "16 of your answers")
    assert await said(await engine("1", a=(own,), b=(own,))) == [own]
