"""A session is run once more from its log: equal to the byte, or the first difference."""

import json
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner
from msgspec.structs import replace

from schemas.erasure import JobsErased
from schemas.session import (
    CommandAnswered,
    CommandTaken,
    SessionCommand,
    SessionErased,
    SessionTokens,
)
from schemas.training import BlobFile
from tests.bases import tiny_base
from tests.unit.services.trainer.effect.test_training import WORK
from tests.unit.tunery.ml.test_session import LEARN, Loop, a_pass
from tunery.cli._verification import VerifiedPart
from tunery.cli.main import main
from tunery.cli.replay.session import (
    WEIGHTS,
    RecordedSession,
    compare_tokens,
    replay_commands,
)
from tunery.cli.replay.verify import Verification
from tunery.local.errors import LocalError
from tunery.runtime.blobs.memory import MemoryBlobs
from tunery.work.events import CommandDone, Finished
from tunery.work.session import Body, SampleBody, SaveBody, encode_body
from tunery.work.spec import Hyper, TrainSpec

pytestmark = [
    pytest.mark.train,
    pytest.mark.filterwarnings("ignore:.*gradient_checkpointing:FutureWarning"),
]
SESSION = "session-1"
SAVE = SaveBody(path=f"tinker://{SESSION}/weights/state")
SAMPLE = SampleBody(
    prompt=b"\x01\x00\x00\x00", samples=1, tokens_max=3, temperature=1.0, top_p=1.0, top_k=0, seed=3
)
COMMANDS: list[tuple[str, Body]] = [
    *LEARN,
    ("forward", a_pass(4)),
    ("save_state", SAVE),
    *LEARN,
    ("sample", SAMPLE),
]
WORK_HERE = replace(
    WORK, base_id="tiny-llama", hyper=replace(WORK.hyper, precision="fp32", max_length=64)
)


class LoopOfWork(Loop):
    """A session whose hyper-parameters are those of `WORK_HERE`."""

    @property
    def training(self) -> TrainSpec:
        return replace(super().training, hyper=Hyper.from_log(WORK_HERE.hyper))


@dataclass
class Recorded:
    """A session that has run, as the log and object storage have it."""

    log: RecordedSession
    blobs: MemoryBlobs = field(default_factory=MemoryBlobs)


async def recorded(folder: Path) -> Recorded:
    base = tiny_base()
    loop = LoopOfWork(base, folder)
    loop.run(*COMMANDS)
    work = replace(WORK_HERE, base_path=str(base.dir), base_sha256=base.sha256)
    there = Recorded(RecordedSession(SESSION, tenant="acme", work=work))
    for seq, ((kind, body), done) in enumerate(zip(COMMANDS, loop.of(CommandDone), strict=True), 1):
        content = encode_body(body)
        file = _file("body", f"t/acme/sessions/{SESSION}/{seq}", content)
        await there.blobs.put(file.blob, content)
        command = SessionCommand(seq=seq, kind=msgspec.convert(kind, Any), body=file, tokens=6)
        saved = tuple(
            BlobFile(name=each.name, blob="", sha256=each.sha256, bytes=each.bytes)
            for each in done.saved
        )
        answer = replace(file, sha256=done.answer.sha256)
        there.log.fold((CommandTaken(command=command),))
        there.log.fold((CommandAnswered(name=str(seq), answer=answer, saved=saved),))
    (finished,) = loop.of(Finished)
    there.log.adapter = {f.name: f.sha256 for f in finished.files if f.name.endswith(WEIGHTS)}
    there.log.trained_tokens = finished.tokens
    return there


def _file(name: str, blob: str, content: bytes) -> BlobFile:
    return BlobFile(name=name, blob=blob, sha256=sha256(content).hexdigest(), bytes=len(content))


@pytest.mark.soak  # so do the loops of tests/e2e/shared/test_tinker.py
async def test_tinker_a_session_run_once_more_from_its_log_is_equal_to_the_byte(
    tmp_path: Path,
) -> None:
    there = await recorded(tmp_path)
    parts = {part.name: part for part in await replay_commands(there.log, there.blobs, None)}
    assert {name: part.difference for name, part in parts.items()} == dict.fromkeys(parts)
    assert parts["answers"].count == len(COMMANDS)
    saved = [file.name for file in there.log.answers["5"].saved]
    assert parts["saved weights"].count == sum(name.endswith(WEIGHTS) for name in saved) > 1
    assert parts["adapter"].count == parts["trained tokens"].count == 1

    first = there.log.answers["1"]
    there.log.answers["1"] = replace(first, answer=replace(first.answer, sha256="0" * 64))
    await there.blobs.delete(there.log.commands["2"].body.blob)
    parts = {part.name: part for part in await replay_commands(there.log, there.blobs, None)}
    assert parts["answers"].difference == "command 1 (forward_backward) has another answer"
    assert "there is no blob" in str(parts["adapter"].difference)


@pytest.mark.parametrize("erased", [SessionErased(), JobsErased()])
async def test_tinker_a_session_that_was_erased_is_not_run_and_says_so(erased: Any) -> None:
    """Its base is asked for in vain, and its commands are nowhere."""
    log = RecordedSession(SESSION, tenant="acme", work=replace(WORK, base_path="/nowhere"))
    body = _file("body", f"t/acme/sessions/{SESSION}/1", b"gone")
    log.fold((CommandTaken(command=SessionCommand(seq=1, kind="forward", body=body, tokens=6)),))
    log.fold((CommandAnswered(name="1", answer=body, prefilled=6), erased))
    (part,) = await replay_commands(log, MemoryBlobs(), None)
    assert (part.name, part.count, part.difference) == ("answers", 1, None)
    assert part.missing == "its commands and what it had saved were erased"


def test_tinker_tokens_of_the_log_are_compared_with_those_of_invoices() -> None:
    log = RecordedSession(SESSION, tenant="acme")
    body = _file("body", f"t/acme/sessions/{SESSION}/1", b"gone")
    log.fold((CommandAnswered(name="1", answer=body, trained=6),))
    log.fold((CommandAnswered(name="2", answer=body, prefilled=2, sampled=1),))
    shown = SessionTokens(train_tokens=6, prefill_tokens=2, sample_tokens=1)
    part = compare_tokens(log, shown)
    assert (part.count, part.difference) == (9, None)
    other = compare_tokens(log, replace(shown, sample_tokens=2)).difference
    assert other == (
        "the log has tokens: 6 trained, 2 read, 1 sampled; "
        "invoices tokens: 6 trained, 2 read, 2 sampled"
    )


ANSWERS = VerifiedPart(name="answers", count=1, unit="recorded", missing="it was erased")


@pytest.mark.parametrize(
    ("difference", "code", "words"),
    [
        (None, 2, "it was erased; what is left is equal"),
        ("the log has 5 GPU-ms", 1, "3 commands of the session: different"),
    ],
)
def test_tinker_the_replay_of_an_erased_session_has_a_code_of_its_own_unless_its_bill_differs(
    monkeypatch: pytest.MonkeyPatch, difference: str | None, code: int, words: str
) -> None:
    bill = VerifiedPart(name="bill", count=5, unit="GPU-ms", difference=difference)

    async def run(*_: Any) -> Verification:
        return Verification(equal=False, records=3, parts=(bill, ANSWERS))

    monkeypatch.setattr("tunery.cli.replay.session.run", run)
    shown = CliRunner().invoke(main, ["replay", SESSION], env={"COLUMNS": "120"})
    assert shown.exit_code == code, shown.output
    assert words in " ".join(shown.output.split())
    assert "not compared: it was erased" in shown.output
    printed = CliRunner().invoke(main, ["replay", SESSION, "--json"])
    assert printed.exit_code == code
    assert json.loads(printed.output)["parts"][1]["missing"] == "it was erased"


async def test_a_base_that_is_not_here_is_asked_for() -> None:
    work = replace(WORK, base_path="/nowhere")
    with pytest.raises(LocalError, match="no base model in /nowhere"):
        await replay_commands(RecordedSession(SESSION, work=work), MemoryBlobs(), None)
