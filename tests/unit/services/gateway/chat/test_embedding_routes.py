"""`/v1/embeddings` through the unmodified SDK, whose default encoding is base64."""

import openai
import pytest

from tests.unit.services.gateway.chat.scripted_engine import ScriptedEngine
from tests.unit.services.gateway.chat.test_routes import engine, sdk
from tests.unit.services.gateway.control_plane import BASE, ControlPlane
from tunery.work.engine import TOO_LONG, AnswerEnded, QuestionRefused

__all__ = ["engine"]
VECTOR = (0.6, -0.8, 0.0)


async def test_each_text_becomes_a_vector(api: ControlPlane, engine: ScriptedEngine) -> None:
    engine.replies = [AnswerEnded("stop", 5, 0, embedding=VECTOR)]
    async with sdk(await api.tenant()) as client:
        packed = await client.embeddings.create(model=BASE.base_id, input=["Hello", "Bye"])
        plain = await client.embeddings.create(
            model=BASE.base_id, input="Hello", encoding_format="float"
        )
    assert [each.index for each in packed.data] == [0, 1]
    assert all(each.embedding == pytest.approx(VECTOR) for each in packed.data)
    assert (packed.usage.prompt_tokens, packed.usage.total_tokens) == (10, 10)
    assert plain.data[0].embedding == list(VECTOR)
    assert plain.model == BASE.base_id
    assert sorted(asked.prompt or "" for asked in engine.asked) == ["Bye", "Hello", "Hello"]
    assert all(asked.embed and asked.asker and asked.asker.first for asked in engine.asked)


async def test_what_cannot_be_embedded_is_refused(
    api: ControlPlane, engine: ScriptedEngine
) -> None:
    async with sdk(await api.tenant()) as client:
        for tokens in ([1, 2], [[1, 2]]):
            with pytest.raises(openai.BadRequestError, match="check_embedding_ctx_length=False"):
                await client.embeddings.create(model=BASE.base_id, input=tokens)
        for texts in ("", [], ["Hello", ""]):
            with pytest.raises(openai.BadRequestError, match="input"):
                await client.embeddings.create(model=BASE.base_id, input=texts)
        with pytest.raises(openai.BadRequestError, match="dimensions"):
            await client.embeddings.create(model=BASE.base_id, input="Hello", dimensions=8)
        assert not engine.asked
        engine.replies = [QuestionRefused(TOO_LONG, "too long")]
        with pytest.raises(openai.BadRequestError, match="too long"):
            await client.embeddings.create(model=BASE.base_id, input="Hello")
