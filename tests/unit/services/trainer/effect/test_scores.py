"""The agent asks for a process: what the grader says, and nothing else."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest

from services.trainer.effect import scores
from services.trainer.effect.scores import ScoreRelay
from tests.score_models import Judge, Reply, judging, likes
from tests.unit.services.trainer.effect.test_program import program
from tests.unit.tunery.graders.test_grader import CHECK
from tests.unit.tunery.ml.test_model_scores import BOTH, JUDGE
from tunery.graders.grader import parse
from tunery.work.exits import WorkError
from tunery.work.questions import (
    AskScores,
    ScoreQuestion,
    ScoreReply,
    ScoresFailed,
    ScoresGiven,
    decode_score_reply,
    encode_line,
)


@asynccontextmanager
async def connected(
    judge: Judge, folder: Path
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    relay = ScoreRelay(judge.endpoint(), parse(BOTH))
    path = await relay.open(folder)
    reader, writer = await asyncio.open_unix_connection(str(path))
    try:
        yield reader, writer
    finally:
        writer.close()
        await relay.close()


async def reply(judge: Judge, folder: Path, *questions: ScoreQuestion) -> ScoreReply | None:
    """None: the agent hung up."""
    async with connected(judge, folder) as (reader, writer):
        writer.write(encode_line(AskScores(questions)))
        line = await reader.readline()
        return decode_score_reply(line) if line else None


async def test_a_process_fills_in_messages_and_the_grader_says_the_rest(tmp_path: Path) -> None:
    with judging(likes("e")) as judge:
        answered = await reply(judge, tmp_path, ScoreQuestion(1, ("xe",)), ScoreQuestion(0, ("e",)))
    assert answered == ScoresGiven((0.5, 1.0))
    assert {body["model"]: body["messages"][-1] for body in judge.asked} == {
        "judge-2": {"role": "user", "content": "xe"},
        "judge-1": {"role": "user", "content": "e"},
    }
    assert (tmp_path / scores.SOCKET).stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    "question", [ScoreQuestion(2, ("e",)), ScoreQuestion(7, ("e",)), ScoreQuestion(0, ())]
)
async def test_what_the_grader_does_not_ask_is_not_asked(
    tmp_path: Path, question: ScoreQuestion
) -> None:
    with judging(likes("e")) as judge:
        assert await reply(judge, tmp_path, question) is None
    assert judge.asked == []


async def test_questions_that_take_too_long_together_fail(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scores, "LINE_S_MAX", 0.0)
    with judging(likes("e")) as judge:
        failed = await reply(judge, tmp_path, ScoreQuestion(0, ("e",)))
    assert isinstance(failed, ScoresFailed)
    assert (failed.cause, "needs more than 0 s" in failed.message) == ("platform", True)


async def test_nothing_is_asked_for_a_process_that_has_ended(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    loop, was_asked = asyncio.get_running_loop(), asyncio.Event()

    def busy(_: str) -> Reply:
        loop.call_soon_threadsafe(was_asked.set)
        return 503, {}

    with judging(busy) as judge:
        relay = ScoreRelay(judge.endpoint(tries_max=10_000), parse(JUDGE))
        path = await relay.open(tmp_path)
        reader, writer = await asyncio.open_unix_connection(str(path))
        writer.write(encode_line(AskScores((ScoreQuestion(0, ("e",)),))))
        await asyncio.wait_for(was_asked.wait(), 60)
        await asyncio.wait_for(relay.close(), 60)
        asked = len(judge.asked)
        assert await reader.read() == b""
        writer.close()
        assert len(judge.asked) - asked <= 1, "the one that was on its way"
    assert [record.message for record in caplog.records if record.levelname == "ERROR"] == []


async def test_a_node_without_an_endpoint_is_no_place_for_a_grader_that_asks_models(
    tmp_path: Path,
) -> None:
    outline, _ = await program(tmp_path)
    assert await outline.open_scores(tmp_path, None) is None
    assert await outline.open_scores(tmp_path, msgspec.json.encode(CHECK).decode()) is None
    with pytest.raises(WorkError, match="this node has no endpoint for scores") as refused:
        await outline.open_scores(tmp_path, msgspec.json.encode(JUDGE).decode())
    assert (refused.value.cause, "TUNERY_NODE_SCORE_URL" in refused.value.advice) == (
        "bad_node",
        True,
    )
    await outline.close()
