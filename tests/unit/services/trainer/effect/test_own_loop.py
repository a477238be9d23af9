"""The commands of a session reach its process once, in order, and its answers reach the log."""

from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from schemas.session import (
    AnswerCommand,
    CommandAnswered,
    CommandTaken,
    SessionCommand,
    SessionCommandKind,
    SessionEnding,
    SessionLeased,
)
from schemas.topics import POOL, SESSION
from schemas.training import BlobFile
from services.trainer.effect import own_loop as own_loop_module
from services.trainer.effect.own_loop import COMMANDS, SAVED_AGAIN_MS, WEIGHTS, OwnLoop
from simulator.control_plane.samples import checkpoint
from tests.unit.services.trainer.effect.test_training import under_lease
from tunery.platform.memory_servers import MemoryServers
from tunery.runtime.blobs.memory import MemoryBlobs
from tunery.runtime.bus.partitioner import partition_of
from tunery.runtime.journal.codec import codec_of, decode_envelope
from tunery.work.events import CommandDone, FileDigest, SessionWaits
from tunery.work.session import END, decode_handed

CONTENT = b"body"
BODY = BlobFile(
    name="body", blob="t/acme/sessions/1", sha256=sha256(CONTENT).hexdigest(), bytes=len(CONTENT)
)
LEASED = SessionLeased(attempt=1, node_ids=("a",))


def command_taken(
    seq: int, kind: SessionCommandKind = "optim_step", **changes: Any
) -> CommandTaken:
    return CommandTaken(command=SessionCommand(seq=seq, kind=kind, body=BODY, **changes))


async def own_loop(folder: Path) -> tuple[OwnLoop, MemoryServers]:
    blobs = MemoryBlobs()
    await blobs.put(BODY.blob, CONTENT)
    training, servers = await under_lease(blobs, folder)
    (folder / COMMANDS).mkdir()
    program = OwnLoop(training.grant, training._work, training.tools, training.settings)
    program.folder = folder
    return program, servers


async def handed(program: OwnLoop, *events: Any) -> list[str]:
    """Names of the commands that the process finds after these events, in its order."""
    program._feed.fold(events)
    await program._hand_over()
    folder = program.folder / COMMANDS
    contents = [(folder / name).read_bytes() for name in sorted(map(_name, folder.iterdir()))]
    return ["END" if content == END else decode_handed(content).name for content in contents]


def _name(path: Path) -> str:
    return path.name


async def test_commands_are_handed_over_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    program, _ = await own_loop(tmp_path)
    assert await handed(program, command_taken(2)) == []
    assert await handed(program, command_taken(1), command_taken(7, "sample", sampler="s")) == [
        "1",
        "2",
        "s:7",
    ]
    assert await handed(program, SessionEnding(why="client")) == ["1", "2", "s:7", "END"]
    assert await handed(program, SessionEnding(why="client")) == ["1", "2", "s:7", "END"]


async def test_a_restored_process_takes_again_what_changes_weights_alone(tmp_path: Path) -> None:
    program, _ = await own_loop(tmp_path)
    events = (
        command_taken(1, "forward_backward"),
        command_taken(2, "forward"),
        command_taken(3, "optim_step"),
        command_taken(4, "save_state"),
        command_taken(0, "sample", sampler="s"),
    )
    answers = [CommandAnswered(name=name, answer=BODY) for name in ("1", "2", "3", "4", "s:0")]
    assert await handed(program, *events, *answers) == ["1", "3"]


async def test_weights_are_fetched_once_for_the_commands_that_begin_with_them(
    tmp_path: Path,
) -> None:
    program, _ = await own_loop(tmp_path)
    await handed(program, *(command_taken(seq, "load_state", weights=(BODY,)) for seq in (1, 2)))
    folders = {
        decode_handed((tmp_path / COMMANDS / name).read_bytes()).weights_dir for name in "12"
    }
    (folder,) = folders
    assert (Path(folder) / BODY.name).read_bytes() == CONTENT


async def test_weights_with_the_same_settings_are_not_mistaken_for_each_other(
    tmp_path: Path,
) -> None:
    program, _ = await own_loop(tmp_path)
    other = b"other weights"
    await program.tools.runtime.blobs.put("t/acme/sessions/2", other)
    newer = BlobFile(
        name="weights", blob="t/acme/sessions/2", sha256=sha256(other).hexdigest(), bytes=len(other)
    )
    config = replace(BODY, name="config")
    saved = ((config, replace(BODY, name="weights")), (config, newer))
    await handed(
        program, *(command_taken(seq, "sample", sampler="s", weights=saved[seq]) for seq in (0, 1))
    )
    folders = [decode_handed((tmp_path / COMMANDS / n).read_bytes()).weights_dir for n in "12"]
    assert [(Path(each) / "weights").read_bytes() for each in folders] == [CONTENT, other]


async def test_weights_that_were_sampled_from_long_ago_leave_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A loop that learns by rewards saves weights at each of its steps."""
    monkeypatch.setattr(own_loop_module, "WEIGHTS_KEPT", 2)
    program, _ = await own_loop(tmp_path)
    saved = list[tuple[BlobFile, ...]]()
    for seq in range(5):
        content, blob = f"weights {seq}".encode(), f"t/acme/sessions/weights-{seq}"
        await program.tools.runtime.blobs.put(blob, content)
        digest = sha256(content).hexdigest()
        saved.append((BlobFile(name=f"weights-{seq}", blob=blob, sha256=digest, bytes=9),))

    def sample(seq: int) -> CommandTaken:
        return command_taken(seq, "sample", sampler="s", weights=saved[seq])

    def kept() -> set[str]:
        return {path.name for path in (tmp_path / WEIGHTS).glob("*/*")}

    await handed(program, *map(sample, range(4)))
    assert kept() == {f"weights-{seq}" for seq in range(4)}  # all are waited for
    done = FileDigest(name="answer", sha256=BODY.sha256, bytes=BODY.bytes)
    program._feed.answered |= {f"s:{seq}" for seq in range(1, 4)}
    for seq in range(1, 4):
        await program._report_answer(CommandDone(name=f"s:{seq}", dir="", answer=done))
    await handed(program, sample(4))
    # the first is waited for still, the newest two are kept for what may come
    assert kept() == {f"weights-{seq}" for seq in (0, 2, 3, 4)}


async def test_what_waits_says_now_and_then_that_its_checkpoint_has_all(tmp_path: Path) -> None:
    program, servers = await own_loop(tmp_path)
    clock = program.tools.runtime.clock
    program._started_monotonic_ms = clock.monotonic_ms()
    await program.handle(SessionWaits(saved=True))  # before there is one
    await program._report_checkpoint(checkpoint(1, captured_ms=0))
    for saved in (True, False, True, True):
        await program.handle(SessionWaits(saved=saved))
        await clock.sleep(SAVED_AGAIN_MS)
    log = await reports_of(servers, POOL, program.grant.token.pool)
    captured = [each.checkpoint.captured_ms // SAVED_AGAIN_MS for each in log]
    assert captured == [0, 2, 3]
    assert len({each.checkpoint.manifest_sha256 for each in log}) == 1


async def reports_of(servers: MemoryServers, stream: Any, key: str) -> list[Any]:
    """The commands of a stream in the partition of a key."""
    partition = partition_of(key.encode())
    reader = await servers.log.reader(stream.commands.name, {partition: 0})
    records = await reader.poll(10, 100)
    await reader.close()
    return [codec_of(stream).command(decode_envelope(record.value)) for record in records]


async def test_an_answer_is_stored_and_sent_once(tmp_path: Path) -> None:
    program, servers = await own_loop(tmp_path)
    (tmp_path / "answers").mkdir()
    (tmp_path / "answers" / "1").write_bytes(CONTENT)
    file = FileDigest(name="1", sha256=BODY.sha256, bytes=len(CONTENT))
    done = CommandDone(
        name="1", dir=str(tmp_path / "answers"), answer=file, failed=False, saved_dir="", saved=()
    )
    await program.handle(done)
    program._feed.fold((LEASED, CommandAnswered(name="1", answer=BODY)))
    await program.handle(done)
    (sent,) = await reports_of(servers, SESSION, program.grant.job_id)
    assert isinstance(sent, AnswerCommand)
    assert (sent.name, sent.answer.sha256) == ("1", BODY.sha256)
    assert await servers.blobs.get(sent.answer.blob, sha256=BODY.sha256) == CONTENT
