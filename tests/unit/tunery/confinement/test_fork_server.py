"""A forked worker has the rights of its task, and no more than one that starts anew."""

import json
from pathlib import Path
from typing import Any, Final

import pytest

from tests.unit.tunery.confinement import toy_worker
from tunery.confinement.confined import Confinement, private_environment
from tunery.confinement.policy import ConfinementPolicy
from tunery.platform.confined_workers import ConfinedWorkers, Work

pytestmark = pytest.mark.security

FACTS: Final = {"NoNewPrivs": "1", "Seccomp": "2", "Threads": "1"}
REFUSALS: Final = {"PermissionError", "BlockingIOError", "OSError"}
WORK_MS_MAX: Final = 60_000


@pytest.fixture
def scratch(tmp_path: Path) -> Path:
    for name in ("own", "other"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "rows").write_text(f"rows of {name}")
    return tmp_path


async def said_by(scratch: Path, *arguments: str, forks: bool, **policy: Any) -> Any:
    """The answer of a worker that may write to its own folder, and stands back by 3."""
    own = scratch / "own"
    workers = ConfinedWorkers(
        toy_worker.MODULE,
        confinement=Confinement(),
        environment={"PYTHONPATH": toy_worker.FOLDER},
        read=(toy_worker.FOLDER,),
        write=(str(scratch),),
        forks=forks,
    )
    work = Work(
        arguments=arguments,
        policy=ConfinementPolicy(read=(toy_worker.FOLDER,), write=(str(own),), **policy),
        niceness=3,
        ms_max=WORK_MS_MAX,
        environment=private_environment(own),
    )
    finished = await workers.run(work)
    assert (workers.server_pid is not None) == forks
    assert finished.code == 0, finished.errors
    return json.loads(finished.answer)


async def test_security_h1_a_forked_worker_reaches_nothing_of_others(scratch: Path) -> None:
    """Beside it, below the folder that the server may write to, are files of other tenants."""
    names = (str(scratch / "own"), str(scratch / "other"))
    said = await said_by(scratch, "probe", *names, forks=True)
    assert {name: said.pop(name) for name in FACTS} == FACTS
    assert int(said.pop("CapEff"), 16) == int(said.pop("CapBnd"), 16) == 0
    assert said.pop("own") == "1"
    assert set(said.values()) <= REFUSALS, said
    assert len(said) > 12, "it tried"
    assert sorted(path.name for path in (scratch / "other").iterdir()) == ["rows"]


async def test_security_h1_a_forked_worker_is_refused_what_a_program_is_refused(
    scratch: Path,
) -> None:
    names = (str(scratch / "own"), str(scratch / "other"))
    forked = await said_by(scratch, "probe", *names, forks=True)
    assert forked == await said_by(scratch, "probe", *names, forks=False)


async def test_a_forked_worker_begins_as_a_program_does(scratch: Path) -> None:
    """With three descriptors, one thread, and the environment, priority and limits of its task."""
    limits = {"memory_bytes_max": 1 << 30, "cpu_s_max": 60}
    forked = await said_by(scratch, "describe", "a", forks=True, **limits)
    executed = await said_by(scratch, "describe", "a", forks=False, **limits)
    assert forked["descriptors"] == 3
    assert forked["home"] == str(scratch / "own" / "tmp")
    assert not forked["interrupt"]
    assert forked == executed | {"interrupt": False}  # a program ignores what its parent does
