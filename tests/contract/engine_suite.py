"""The contract of every engine, asked over HTTP: statuses and fields of OpenAI's API.

Subclasses define a fixture `asked`: a gateway with the engine behind it, its tiny base model, and a
version of a tenant with an adapter.
"""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import httpx
from msgspec.structs import replace

from schemas.model import AddBase, Base
from schemas.streams import GLOBAL, PARTITIONS
from schemas.topics import MODEL
from schemas.training import BlobFile
from services.engine.app import driver_of
from services.engine.host import EngineHost
from services.engine.loaded_models import LoadedModels
from services.engine.meter import AnswerMeter
from services.engine.settings import EngineSettings
from services.gateway.chat.engine_socket import SocketEngine
from tests.bases import Base as TestBase
from tests.bases import tiny_base
from tests.unit.services.engine.adapters import tiny_models
from tests.unit.services.engine.adapters.tiny_models import ASKED, TOKENS
from tests.unit.services.gateway.bases import BASE
from tests.unit.services.gateway.control_plane import ControlPlane, control_plane
from tests.unit.services.gateway.models.test_routes import version

CHAT, TEXT, EMBEDDINGS = "/v1/chat/completions", "/v1/completions", "/v1/embeddings"
TINY = "tiny"
CONTEXT_TOKENS = 256
ANSWER_S_MAX = 480
LOADED_S_MAX = 480
POLL_S = 0.05
UNAVAILABLE = 503
ANSWER = {"id", "object", "created", "model", "choices", "usage", "system_fingerprint"}
USAGE = {"prompt_tokens", "completion_tokens", "total_tokens", "prompt_tokens_details"}
TOKEN = {"token", "logprob", "bytes", "top_logprobs"}


@dataclass
class AskedEngine:
    """A gateway with an engine. owner: the tenant of both versions; other: another tenant."""

    plane: ControlPlane
    owner: httpx.AsyncClient
    other: httpx.AsyncClient
    tuned: str  # tuned, broken: versions, the second of which has weights that are none
    broken: str
    of_base: str  # of_base, of_tuned: what transformers answers to ASKED
    of_tuned: str
    host: EngineHost
    running: "asyncio.Task[None]"

    async def post(self, path: str = CHAT, **fields: Any) -> httpx.Response:
        """Ask the base model for its likeliest answer, unless the fields say otherwise."""
        usual = {"model": TINY, "temperature": 0, "max_tokens": TOKENS}
        question = {"messages": ASKED} if path == CHAT else {"prompt": "Who are"}
        if path == EMBEDDINGS:
            return await self.owner.post(path, json={"model": TINY, **fields})
        return await self.owner.post(path, json={**usual, **question, **fields})

    async def patient_post(self, path: str = CHAT, **fields: Any) -> httpx.Response:
        """Post again while the model is being loaded, as the SDK does."""
        async with asyncio.timeout(LOADED_S_MAX):
            while (answer := await self.post(path, **fields)).status_code == UNAVAILABLE:  # noqa: ASYNC110  # another task loads it
                await asyncio.sleep(POLL_S)
        return answer

    async def ok(self, path: str = CHAT, **fields: Any) -> dict[str, Any]:
        """The body of a successful answer."""
        answer = await self.patient_post(path, **fields)
        assert answer.status_code == 200, answer.text
        body: dict[str, Any] = answer.json()
        return body

    async def frames(self, path: str = CHAT, **fields: Any) -> list[dict[str, Any]]:
        """All frames of a streamed answer, whose last one is `[DONE]`."""
        answer = await self.patient_post(path, stream=True, **fields)
        assert answer.status_code == 200, answer.text
        assert answer.headers["content-type"].startswith("text/event-stream")
        lines = [line.removeprefix("data: ") for line in answer.text.splitlines() if line]
        assert lines[-1] == "[DONE]"
        return [json.loads(line) for line in lines[:-1]]

    async def refused(self, status: int, code: str, path: str = CHAT, **fields: Any) -> str:
        """The message of an error in OpenAI's form."""
        answer = await self.patient_post(path, **fields)
        assert answer.status_code == status, answer.text
        error = answer.json()["error"]
        assert error["code"] == code
        assert {"message", "type", "param", "code"} <= error.keys()
        return str(error["message"])


async def _upload_broken(plane: ControlPlane, files: tuple[BlobFile, ...]) -> tuple[BlobFile, ...]:
    """Return the files with a pickle in place of the weights."""
    weights = b"\x80\x04 no tensors"
    await plane.world.blobs.put("t/a/artifacts/broken", weights)
    changed = {
        "blob": "t/a/artifacts/broken",
        "sha256": sha256(weights).hexdigest(),
        "bytes": len(weights),
    }
    return tuple(
        replace(file, **changed) if file.name.endswith(".safetensors") else file for file in files
    )


async def _add_tiny(plane: ControlPlane, tiny: TestBase) -> Base:
    base = replace(BASE, base_id=TINY, sha256=tiny.sha256, path=str(tiny.dir), context_length=512)
    for partition in range(PARTITIONS):
        await plane.send(MODEL, GLOBAL, AddBase(base=base), partition=partition)
    await plane.until(
        plane.api, "/v1/bases", lambda answer: TINY in [base["id"] for base in answer["data"]]
    )
    return base


@contextlib.asynccontextmanager
async def asked_engine(
    settings: EngineSettings, folder: Path, tiny: TestBase | None = None
) -> AsyncIterator[AskedEngine]:
    """A gateway with an engine of these settings. tiny: another base model than the usual one."""
    tiny = tiny or tiny_base()
    of_base, of_tuned = await asyncio.to_thread(tiny_models.answers, TOKENS, tiny.dir)
    async with control_plane(SocketEngine(folder / "engine.sock")) as plane:
        base, blobs = await _add_tiny(plane, tiny), plane.world.blobs
        owner, other = await plane.tenant(), await plane.tenant()
        files = await tiny_models.uploaded(blobs)
        tuned = await version(plane, owner, "tuned", files=files, base=base)
        broken = await _upload_broken(plane, files)
        broken_id = await version(plane, owner, "broken", files=broken, base=base)
        models = LoadedModels(
            *driver_of(settings, blobs, folder / "engine"),
            models_max=settings.models_max,
            answers_max=settings.answers_max,
        )
        host = EngineHost(models, folder / "engine.sock", AnswerMeter(folder / "answers"))
        running = asyncio.create_task(host.run())
        await host.ready()
        asked = AskedEngine(plane, owner, other, tuned, broken_id, of_base, of_tuned, host, running)
        for client in (owner, other):
            client.timeout = httpx.Timeout(ANSWER_S_MAX)
        try:
            yield asked
        finally:
            asked.running.cancel()
            await asyncio.wait((asked.running,))


class EngineSuite:
    """See the module."""

    async def test_a_chat_is_answered_as_transformers_does(self, asked: AskedEngine) -> None:
        for model, text in ((TINY, asked.of_base), (asked.tuned, asked.of_tuned)):
            answer = await asked.ok(model=model)
            assert answer.keys() == ANSWER
            assert (answer["object"], answer["model"]) == ("chat.completion", model)
            (choice,) = answer["choices"]
            assert choice.keys() == {"index", "message", "logprobs", "finish_reason"}
            assert choice["message"] == {"role": "assistant", "content": text, "refusal": None}
            assert (choice["index"], choice["finish_reason"]) == (0, "length")
            usage = answer["usage"]
            assert usage.keys() == USAGE
            assert usage["completion_tokens"] == TOKENS
            assert usage["total_tokens"] == usage["prompt_tokens"] + TOKENS
        assert asked.of_base != asked.of_tuned

    async def test_chunks_are_those_of_openai(self, asked: AskedEngine) -> None:
        frames = await asked.frames(stream_options={"include_usage": True})
        assert {frame["object"] for frame in frames} == {"chat.completion.chunk"}
        assert len({(frame["id"], frame["created"], frame["model"]) for frame in frames}) == 1
        assert all(frame.keys() == ANSWER for frame in frames)
        *parts, last = frames
        assert [part["usage"] for part in parts] == [None] * len(parts)
        assert (last["choices"], last["usage"]["completion_tokens"]) == ([], TOKENS)
        choices = [part["choices"][0] for part in parts]
        assert choices[0]["delta"] == {"role": "assistant", "content": ""}
        assert [choice["finish_reason"] for choice in choices[:-1]] == [None] * (len(choices) - 1)
        assert (choices[-1]["delta"], choices[-1]["finish_reason"]) == ({}, "length")
        assert "".join(choice["delta"].get("content", "") for choice in choices) == asked.of_base

    async def test_a_text_is_gone_on_with(self, asked: AskedEngine) -> None:
        answer = await asked.ok(TEXT)
        assert answer.keys() == ANSWER
        assert answer["object"] == "text_completion"
        (choice,) = answer["choices"]
        assert choice.keys() == {"index", "text", "logprobs", "finish_reason"}
        assert choice["finish_reason"] == "length"
        frames = await asked.frames(TEXT)
        assert "usage" not in frames[0]
        assert "".join(frame["choices"][0]["text"] for frame in frames) == choice["text"] != ""

    async def test_an_answer_ends_before_a_stop_text(self, asked: AskedEngine) -> None:
        whole = asked.of_base
        for path in (CHAT, TEXT):
            said = await asked.ok(path)
            text = said["choices"][0].get("text") or whole
            stop = text[8:12]
            (choice,) = (await asked.ok(path, stop=[stop, "never said"]))["choices"]
            written = choice["text"] if path == TEXT else choice["message"]["content"]
            assert (written, choice["finish_reason"]) == (text[: text.index(stop)], "stop")
        parts = await asked.frames(stop=whole[8:12])
        streamed = "".join(part["choices"][0]["delta"].get("content", "") for part in parts)
        assert streamed == whole[: whole.index(whole[8:12])]

    async def test_a_seed_gives_the_same_answers_again(self, asked: AskedEngine) -> None:
        how: dict[str, Any] = {"temperature": 1, "n": 2, "seed": 7}
        first, again = await asked.ok(**how), await asked.ok(**how)
        texts = [choice["message"]["content"] for choice in first["choices"]]
        assert texts == [choice["message"]["content"] for choice in again["choices"]]
        assert texts[0] != texts[1]
        assert [choice["index"] for choice in first["choices"]] == [0, 1]
        alone = await asked.ok(**{**how, "n": 1})
        assert first["usage"]["prompt_tokens"] == alone["usage"]["prompt_tokens"]
        likeliest = await asked.ok(temperature=1, top_p=1e-6, seed=3)
        assert likeliest["choices"][0]["message"]["content"] == asked.of_base

    async def test_tokens_have_probabilities(self, asked: AskedEngine) -> None:
        for count in (0, 2):
            answer = await asked.ok(logprobs=True, top_logprobs=count, max_tokens=4)
            (choice,) = answer["choices"]
            tokens = choice["logprobs"]["content"]
            assert len(tokens) == 4
            assert all(token.keys() == TOKEN for token in tokens)
            assert "".join(token["token"] for token in tokens) == choice["message"]["content"]
            assert {len(token["top_logprobs"]) for token in tokens} == {count}
            assert all(token["logprob"] < 0 for token in tokens)
        for token in tokens:
            assert token["top_logprobs"][0]["logprob"] == token["logprob"], "it is the likeliest"
        logprobs = (await asked.ok(TEXT, logprobs=2, max_tokens=4))["choices"][0]["logprobs"]
        assert logprobs.keys() == {"tokens", "token_logprobs", "top_logprobs", "text_offset"}
        assert {len(values) for values in logprobs.values()} == {4}

    async def test_a_question_above_the_context_is_400(self, asked: AskedEngine) -> None:
        question = [{"role": "user", "content": "who are you? " * 400}]
        for stream in (False, True):
            message = await asked.refused(
                400, "context_length_exceeded", messages=question, stream=stream
            )
            assert f"maximum context length is {CONTEXT_TOKENS} tokens" in message
        await asked.refused(400, "context_length_exceeded", TEXT, prompt="who are you? " * 400)

    async def test_an_answer_fills_the_context_at_most(self, asked: AskedEngine) -> None:
        answer = await asked.ok(max_tokens=100_000)
        assert answer["choices"][0]["finish_reason"] in ("length", "stop")
        assert answer["usage"]["total_tokens"] <= CONTEXT_TOKENS

    async def test_impossible_questions_are_refused(self, asked: AskedEngine) -> None:
        for path in (CHAT, TEXT):
            await asked.refused(404, "model_not_found", path, model="none")
            message = await asked.refused(400, "invalid_request", path, stop=["x"] * 10_000)
            assert "stop" in message
        body = {"model": asked.tuned, "messages": ASKED}
        assert (await asked.other.post(CHAT, json=body)).status_code == 404

    async def test_a_broken_adapter_is_refused_and_others_answer(self, asked: AskedEngine) -> None:
        await asked.refused(400, "model_not_servable", model=asked.broken)
        answer = await asked.ok(model=asked.tuned)
        assert answer["choices"][0]["message"]["content"] == asked.of_tuned

    async def test_answers_at_the_same_time_are_those_alone(self, asked: AskedEngine) -> None:
        models = [TINY, asked.tuned] * 3
        answers = await asyncio.gather(*(asked.ok(model=model) for model in models))
        texts = [answer["choices"][0]["message"]["content"] for answer in answers]
        assert texts == [asked.of_base, asked.of_tuned] * 3

    async def test_while_the_engine_is_away_the_answer_is_503(self, asked: AskedEngine) -> None:
        asked.running.cancel()
        await asyncio.wait((asked.running,))
        for path in (CHAT, TEXT):
            for stream in (False, True):
                answer = await asked.post(path, stream=stream)
                assert answer.status_code == UNAVAILABLE, answer.text
                assert int(answer.headers["retry-after"]) > 0
        asked.running = asyncio.create_task(asked.host.run())
        again = await asked.ok(model=asked.tuned)
        assert again["choices"][0]["message"]["content"] == asked.of_tuned
