"""The process of a replica: ready, alive, drained; what its agent hears when it cannot answer."""

import asyncio
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from services.trainer.adapters.processes import ProcessGroup, ProcessGroups, Walls
from services.trainer.effect.environment import environment_on
from services.trainer.effect.program import access_of
from tests.bases import tiny_base
from tests.unit.services.engine.adapters import tiny_models
from tunery.confinement.confined import Confinement
from tunery.platform.answer_files import spool_files, uses_of
from tunery.platform.local_socket import connect_to
from tunery.work.codec import decode_event, encode_spec
from tunery.work.engine import AnswerEnded, Asker, Question, Sampling, decode_reply, encode_line
from tunery.work.events import Failed, Preempted, ReplicaReady
from tunery.work.exits import ExitCode
from tunery.work.replica import ReplicaSpec, decode_replica_spec

pytestmark = pytest.mark.train
READY_S_MAX = 480


def spec(folder: Path, **changes: object) -> Path:
    """The spec of a replica of the tiny base model, written to a folder."""
    written = ReplicaSpec(
        base=replace(tiny_models.engine_model(), context_length=0),
        socket=str(folder / "replica.socket"),
        files_socket=str(folder / "files.socket"),
        models_dir=str(tiny_models.folder() / "engine"),
        answers_dir=str(folder / "answers"),
        threads=1,
    )
    path = folder / "spec.json"
    path.write_bytes(encode_spec(replace(written, **changes)))
    return path


async def started(path: Path) -> ProcessGroup:
    """A replica behind the walls of an agent."""
    access = access_of(decode_replica_spec(path.read_bytes()))
    argv = (sys.executable, "-m", "services.engine.replica", str(path))
    groups = ProcessGroups(str(path), Walls(Confinement()))
    return await groups.start_one(argv, environment_on(()), path.parent, access)


async def said(process: ProcessGroup) -> object:
    async with asyncio.timeout(READY_S_MAX):
        async for line in process.lines():
            return decode_event(line)
    raise AssertionError(f"status {await process.wait()}: {process.error_tail()}")


async def test_a_replica_converts_answers_counts_and_ends_on_request(
    tmp_path: Path,
) -> None:
    process = await started(spec(tmp_path, models_dir=str(tmp_path / "models")))
    assert isinstance(await said(process), ReplicaReady)
    model = tiny_models.engine_model()
    sampling = Sampling(temperature=0, tokens_max=4)
    asker = Asker("acme", "key_1", "tiny")
    question = Question(model, tuple(tiny_models.ASKED), sampling, asker=asker)
    connection = connect_to(tmp_path / "replica.socket")
    connection.setblocking(False)
    reader, writer = await asyncio.open_unix_connection(sock=connection)
    writer.write(encode_line(question))
    async with asyncio.timeout(READY_S_MAX):
        while not isinstance(reply := decode_reply(await reader.readline()), AnswerEnded):
            pass
    assert reply.completion_tokens == 4
    process.signal(signal.SIGTERM)
    while not isinstance(event := await said(process), Preempted):
        assert not isinstance(event, Failed)
    assert await process.wait() == ExitCode.PREEMPTED
    uses = [uses_of(path)["acme"][0] for path in spool_files(tmp_path / "answers")[:-1]]
    assert sum(use.completion_tokens for use in uses) == 4
    writer.close()


async def test_a_base_model_whose_files_changed_is_the_fault_of_the_node(tmp_path: Path) -> None:
    base = replace(tiny_models.engine_model(), base_sha256="0" * 64)
    process = await started(spec(tmp_path, base=base))
    failed = await said(process)
    assert isinstance(failed, Failed)
    assert (failed.cause, await process.wait()) == ("bad_node", ExitCode.BAD_NODE)
    assert tiny_base().dir.exists()


async def test_a_replica_ends_when_its_agent_is_gone(tmp_path: Path) -> None:
    process = await started(spec(tmp_path))
    assert isinstance(await said(process), ReplicaReady)
    started_anew: Any = process._process
    started_anew._transport.get_pipe_transport(1).close()
    async with asyncio.timeout(READY_S_MAX):
        assert await process.wait() == ExitCode.ORPHANED


async def test_a_replica_that_cannot_listen_ends_and_says_why(tmp_path: Path) -> None:
    process = await started(spec(tmp_path, socket=str(tmp_path / "missing" / "replica.socket")))
    async with asyncio.timeout(READY_S_MAX):
        assert await process.wait() == 1
    assert "FileNotFoundError" in process.error_tail()
