"""`/v1/responses` through the unmodified SDK."""

from typing import Any

from tests.unit.services.gateway.chat.scripted_engine import ScriptedEngine
from tests.unit.services.gateway.chat.test_routes import engine, sdk
from tests.unit.services.gateway.control_plane import BASE, ControlPlane
from tunery.work.engine import AnswerEnded, TextAdded, ToolCall

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


async def test_first_hour2_u4_a_response_calls_functions(
    api: ControlPlane, engine: ScriptedEngine
) -> None:
    rain: Any = {"type": "function", "name": "rain", "parameters": {}, "strict": True}
    call = ToolCall("rain", '{"at": "A"}')
    engine.begin((AnswerEnded("tool_calls", 5, 2, tool_calls=(call, call)),))
    asked: dict[str, Any] = {"model": BASE.base_id, "tools": [rain], "tool_choice": "required"}
    async with sdk(await api.tenant()) as client:
        response = await client.responses.create(input="Hi", **asked)
        async with client.responses.stream(input="Hi", **asked) as stream:
            events = [event async for event in stream]
            streamed = await stream.get_final_response()
        alone = await client.responses.create(input="Hi", parallel_tool_calls=False, **asked)
        results = [
            {"type": "function_call_output", "call_id": item.call_id, "output": "dry"}
            for item in response.output
            if item.type == "function_call"
        ]
        engine.begin()
        again: Any = [{"role": "user", "content": "Hi"}, *response.output, *results]
        last = await client.responses.create(model=BASE.base_id, input=again)
    for each in (response, streamed):
        calls: list[Any] = [item for item in each.output if item.type == "function_call"]
        assert [call.arguments for call in calls] == ['{"at": "A"}'] * 2
    deltas = [e.delta for e in events if e.type == "response.function_call_arguments.delta"]
    assert deltas == ['{"at": "A"}'] * 2
    assert len(alone.output) == 1
    assert last.output_text == "Hello"
    (question,) = engine.asked
    roles = [message["role"] for message in question.messages]
    assert roles == ["user", "assistant", "tool", "tool"]
    assert len(question.messages[1]["tool_calls"]) == 2
