"""`/v1/responses` through the unmodified SDK."""

from typing import Any

from tests.unit.services.gateway.chat.scripted_engine import ScriptedEngine
from tests.unit.services.gateway.chat.test_routes import engine, sdk
from tests.unit.services.gateway.control_plane import BASE, ControlPlane
from tunery.work.engine import AnswerEnded, TextAdded

__all__ = ["engine"]


async def test_a_response_has_its_text(api: ControlPlane, engine: ScriptedEngine) -> None:
    async with sdk(await api.tenant()) as client:
        response = await client.responses.create(
            model=BASE.base_id, instructions="Be brief.", input="Hi", max_output_tokens=9
        )
        again: list[Any] = [
            {"role": "user", "content": [{"type": "input_text", "text": "Hi"}]},
            *(item.model_dump() for item in response.output),
        ]
        await client.responses.create(model=BASE.base_id, input=again)
    assert (response.output_text, response.status) == ("Hello", "completed")
    assert response.usage is not None
    assert (response.usage.input_tokens, response.usage.output_tokens) == (5, 2)
    first, second = engine.asked
    assert [message["role"] for message in first.messages] == ["system", "user"]
    assert [message["content"] for message in second.messages] == ["Hi", "Hello"]


async def test_a_response_that_is_cut_off_says_so(
    api: ControlPlane, engine: ScriptedEngine
) -> None:
    engine.replies = [TextAdded("Hel"), AnswerEnded("length", 5, 1)]
    async with sdk(await api.tenant()) as client:
        response = await client.responses.create(model=BASE.base_id, input="Hi")
    assert response.status == "incomplete"
    assert response.incomplete_details is not None
    assert response.incomplete_details.reason == "max_output_tokens"


async def test_the_events_of_a_response(api: ControlPlane, engine: ScriptedEngine) -> None:
    async with (
        sdk(await api.tenant()) as client,
        client.responses.stream(model=BASE.base_id, input="Hi") as stream,
    ):
        events = [event async for event in stream]
        whole = await stream.get_final_response()
    kinds = [event.type for event in events]
    assert kinds[0] == "response.created"
    assert kinds[-1] == "response.completed"
    deltas = [event.delta for event in events if event.type == "response.output_text.delta"]
    assert deltas == ["Hel", "lo"]
    assert whole.output_text == "Hello"
