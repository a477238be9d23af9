"""A role that this agent has no program for."""

from pathlib import Path

import pytest

from services.trainer.effect.serving import UnknownRole
from tests.unit.services.trainer.effect.test_evaluation import evaluation
from tunery.work.events import ScoringStarted
from tunery.work.exits import WorkError


async def test_a_lease_in_an_unknown_role_fails_without_a_process(tmp_path: Path) -> None:
    known, _ = await evaluation(tmp_path, 0)
    program = UnknownRole(known.grant, known.tools, known.settings)
    with pytest.raises(WorkError, match="no program for the role") as failed:
        await program.prepare(tmp_path)
    assert failed.value.cause == "platform"
    assert await program.handle(ScoringStarted(items=1, prompts=0)) is None
    with pytest.raises(FileNotFoundError):
        await program.result()
