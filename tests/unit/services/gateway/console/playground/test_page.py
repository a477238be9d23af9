"""The playground: both sides answer in one stream; a refusal is shown where the answer would be."""

import asyncio

import pytest

from services.gateway.console.playground import page
from tests.unit.services.gateway.chat.scripted_engine import ScriptedEngine
from tests.unit.services.gateway.console.consoles import OWN_SITE, console_of, key_of, signed_in
from tests.unit.services.gateway.control_plane import ControlPlane


async def test_a_model_that_does_not_exist_says_so_beside_the_other_answer(
    api: ControlPlane,
) -> None:
    client = await api.tenant()
    async with signed_in(console_of(api), key_of(client)) as browser:
        form = {"a": "tiny-llama", "b": "<b>none", "user": "Hi", "temperature": "0"}
        answer = await browser.post("/console/playground/ask", data=form, headers=OWN_SITE)
    assert answer.headers["content-type"].startswith("text/event-stream")
    last = answer.text.rstrip().rpartition("\n\n")[2]
    assert last.count('class="card"') == 2
    assert "&lt;b&gt;none" in last
    assert "<b>none" not in last
    assert "does not exist" in last


async def test_a_temperature_that_is_no_number_is_refused_by_the_api(api: ControlPlane) -> None:
    client = await api.tenant()
    async with signed_in(console_of(api), key_of(client)) as browser:
        for temperature in ("warm", "nan", "1e999"):
            form = {"a": "tiny-llama", "user": "Hi", "temperature": temperature}
            answer = await browser.post("/console/playground/ask", data=form, headers=OWN_SITE)
            assert "temperature" in answer.text, temperature


async def test_a_blind_answer_is_named_after_the_vote(api: ControlPlane) -> None:
    client = await api.tenant()
    async with signed_in(console_of(api), key_of(client)) as browser:
        form = {"a": "tiny-llama", "b": "other", "user": "Hi", "blind": "yes"}
        answer = await browser.post("/console/playground/ask", data=form, headers=OWN_SITE)
    last = answer.text.rstrip().rpartition("\n\n")[2]
    assert '<bdi data-name="tiny-llama">Answer ' in last
    assert 'data-pair="other / tiny-llama"' in last


async def test_an_engine_that_is_away_is_asked_again(
    api: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, engine = await api.tenant(), api.deps.engine
    assert isinstance(engine, ScriptedEngine)
    monkeypatch.setattr(page, "AGAIN_S", 2 * page.EVERY_S)
    form = {"a": "tiny-llama", "user": "Hi"}
    async with signed_in(console_of(api), key_of(client)) as browser:
        engine.begin(away=True)
        asking = asyncio.create_task(
            browser.post("/console/playground/ask", data=form, headers=OWN_SITE)
        )
        while len(engine.asked) < 5:  # noqa: ASYNC110  # it is asked again and again
            await asyncio.sleep(0.01)
        engine.begin()
        answer = (await asking).text
        assert "It is asked again every few seconds" in answer
        assert '<div class="answer" dir="auto">Hello</div>' in answer.replace("\ndata: ", "")
        monkeypatch.setattr(page, "LOADING_S_MAX", 0)
        engine.begin(away=True)
        given_up = await browser.post("/console/playground/ask", data=form, headers=OWN_SITE)
        assert "notice bad" in given_up.text
        engine.begin()
