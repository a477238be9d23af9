"""The commands of a session reach its process once, in order, and its answers reach the log."""

import asyncio
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from immutables import Map
from msgspec.structs import replace

from schemas.session import (
    AnswerCommand,
    CommandAnswered,
    CommandTaken,
    SessionCommand,
    SessionCommandKind,
    SessionEnding,
    SessionLeased,
    SessionTerms,
)
from schemas.topics import POOL, SESSION
from schemas.training import BlobFile
from services.scheduler.app import SESSIONS
from services.scheduler.domain.session.state import Session
from services.trainer.effect import own_loop as own_loop_module
from services.trainer.effect.own_loop import COMMANDS, SAVED_AGAIN_MS, WEIGHTS, OwnLoop
from simulator.control_plane.samples import checkpoint
from tests.unit.services.exporter.journals import JournalRecords
from tests.unit.services.trainer.effect.outages import UnavailableBlobs
from tests.unit.services.trainer.effect.test_training import under_lease
from tests.unit.tunery.work.samples import STARTED
from tunery.platform.memory_servers import MemoryServers
from tunery.runtime.blobs.abstract import BlobMissing
from tunery.runtime.blobs.memory import MemoryBlobs
from tunery.runtime.bus.partitioner import partition_of
from tunery.runtime.journal.codec import codec_of, decode_envelope
from tunery.runtime.journal.fold import Fold
from tunery.runtime.journal.reader import START, JournalReader
from tunery.runtime.journal.snapshots import Snapshots
from tunery.work.events import CommandDone, FileDigest, SessionWaits
from tunery.work.session import END, decode_handed

CONTENT = b"body"
BODY = BlobFile(
    name="body", blob="t/acme/sessions/1", sha256=sha256(CONTENT).hexdigest(), bytes=len(CONTENT)
)
SETTLE_S_MAX = 10
LEASED = SessionLeased(attempt=1, node_ids=("a",))


def command_taken(
    seq: int, kind: SessionCommandKind = "optim_step", **changes: Any
) -> CommandTaken:
    return CommandTaken(command=SessionCommand(seq=seq, kind=kind, body=BODY, **changes))


async def own_loop(folder: Path, blobs: MemoryBlobs | None = None) -> tuple[OwnLoop, MemoryServers]:
    blobs = MemoryBlobs() if blobs is None else blobs
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


def journal(servers: MemoryServers, session_id: str, *events: Any, before: int = 0) -> int:
    """Write the journal of a session; the offset of its first record.

    before: how many records another session has written
    """
    topic, partition = SESSION.journal.name, partition_of(session_id.encode())
    records = JournalRecords(key="another")
    values = [records.claim, *(records.following(LEASED) for _ in range(before))]
    records.key = session_id
    for value in (*values, *map(records.following, events)):
        servers.log.put(topic, partition, b"", value)
    return len(values)


async def keep(
    servers: MemoryServers, partition: int, offset: int, state: Map[str, Session]
) -> None:
    """Keep a snapshot of the scheduler, as it has read the journal up to an offset."""
    reader = JournalReader(servers.log, SESSION, {partition: START})
    await reader.open()
    (batch,) = (await reader.read(10)).values()
    await reader.close()
    position = batch.accepted[offset - 2].position  # the first record is a claim
    fold = Fold(state, position=position, last_offset=offset - 1)
    snapshots = Snapshots(servers.runtime("scheduler"), SESSIONS, partition)
    await snapshots.load()
    await snapshots.save(fold)


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


async def test_what_a_checkpoint_has_is_forgotten(tmp_path: Path) -> None:
    program, _ = await own_loop(tmp_path)
    program._next_seq = 3  # it goes on after two commands
    events = (*map(command_taken, (1, 2, 3, 5)), CommandAnswered(name="1", answer=BODY))
    assert await handed(program, *events) == ["3"]
    assert list(program._feed.commands) == ["5"]


async def test_commands_are_handed_over_after_an_outage_of_storage(tmp_path: Path) -> None:
    program, _ = await own_loop(tmp_path, UnavailableBlobs(2))
    assert await handed(program, command_taken(1)) == ["1"]


async def test_tinker_a_loop_that_asks_for_much_does_not_fill_the_disk_of_its_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(own_loop_module, "HANDED_MAX", 2)
    program, _ = await own_loop(tmp_path)
    program._feed.fold([command_taken(seq, "forward_backward") for seq in range(1, 6)])
    program._feed.answered |= {"1", "2", "3"}  # before this attempt
    handing = asyncio.create_task(program._hand_over())
    done = FileDigest(name="answer", sha256=BODY.sha256, bytes=BODY.bytes)
    for seq in range(1, 4):
        async with asyncio.timeout(SETTLE_S_MAX):
            while program._handed < seq + 1:  # noqa: ASYNC110  # another task hands over
                await asyncio.sleep(0.01)
        await asyncio.sleep(0.05)
        assert sorted(map(_name, (tmp_path / COMMANDS).iterdir())) == [str(seq), str(seq + 1)]
        (tmp_path / COMMANDS / str(seq)).unlink()
        await program.handle(CommandDone(name=str(seq), dir="", answer=done))
    await handing


async def test_a_process_whose_commands_cannot_be_handed_over_ends(tmp_path: Path) -> None:
    """Without an end it would wait until its client gives up."""
    program, servers = await own_loop(tmp_path)
    (tmp_path / COMMANDS).rmdir()
    await program.write_inputs(tmp_path)
    await servers.blobs.delete(BODY.blob)
    journal(servers, program.grant.job_id, LEASED, command_taken(1))
    await program.handle(STARTED)
    assert program._following is not None
    await asyncio.wait((program._following.ended,), timeout=SETTLE_S_MAX)
    with pytest.raises(BlobMissing):
        await program.handle(SessionWaits(saved=False))
    await program.close()


async def test_commands_are_read_from_a_snapshot_that_is_older_than_the_session(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Records of other sessions are not read once more at each lease."""
    monkeypatch.setattr(own_loop_module, "READ_AT_ONCE_MAX", 10)
    program, servers = await own_loop(tmp_path)
    session_id = program.grant.job_id
    partition = partition_of(session_id.encode())
    first = journal(servers, session_id, LEASED, command_taken(1), before=50)
    assert (await program._beginning(partition)).offset == 0  # there is no snapshot
    terms = SessionTerms(client="c", max_tokens=1, max_ms=1)
    session = Session(tenant="acme", terms=terms, touched_at=0)
    for offset, state in ((40, Map({"another": session})), (first + 1, Map({session_id: session}))):
        await keep(servers, partition, offset, state)
    assert (await program._beginning(partition)).offset == 40
    (tmp_path / COMMANDS).rmdir()
    await program.write_inputs(tmp_path)
    await program.handle(STARTED)
    async with asyncio.timeout(SETTLE_S_MAX):
        while not list((tmp_path / COMMANDS).iterdir()):  # noqa: ASYNC110  # another task writes it
            await asyncio.sleep(0.01)
    await program.close()


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
