"""Answers as the SDK polls for them: what was computed, what failed, and why it waits."""

import pytest

from services.gateway.sessions import futures
from services.gateway.sessions.messages import PassOutput
from tests.unit.services.gateway.control_plane import ControlPlane
from tests.unit.services.gateway.sessions.sdk import new_sdk
from tunery.work.session import FailedAnswer, PassAnswer, StepAnswer


async def test_what_is_not_answered_is_asked_for_again_with_the_reason(
    api: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(futures, "WAIT_S", 0.05)
    sdk = await new_sdk(api)
    session_id = await sdk.model()
    for name in (futures.BEGUN, "1"):
        answer = await sdk.future(f"{session_id}/{name}")
        assert answer.status_code == 408
        body = answer.json()
        assert (body["type"], body["queue_state"]) == ("try_again", "paused_capacity")
        assert body["queue_state_reason"]


async def test_answers_have_the_form_of_their_request(api: ControlPlane) -> None:
    sdk = await new_sdk(api)
    session_id = await sdk.model()
    await sdk.answer(session_id, "1", StepAnswer(grad_norm=0.5))
    answer = await sdk.future(f"{session_id}/1")
    assert answer.json() == {"metrics": {"grad_norm:mean": 0.5}}
    for seq, computed in (
        (2, PassAnswer(logprobs=(b"\0" * 8,), loss=2.5)),
        (3, FailedAnswer(message="no")),
    ):
        body = {"model_id": session_id, "seq_id": seq, "adam_params": {}}
        await sdk.call("optim_step", body)
        await sdk.answer(session_id, str(seq), computed)
    output = PassOutput()
    output.ParseFromString((await sdk.future(f"{session_id}/2")).content)
    assert output.metrics["loss:sum"] == 2.5
    failed = (await sdk.future(f"{session_id}/3")).json()
    assert failed == {"error": "no", "category": "user"}


async def test_answers_that_are_erased_or_were_never_asked_for_are_not_found(
    api: ControlPlane,
) -> None:
    sdk = await new_sdk(api)
    session_id = await sdk.model()
    await sdk.answer(session_id, "1", StepAnswer(grad_norm=0.5))
    assert (await sdk.future(f"{session_id}/1")).is_success
    await api.world.blobs.delete(f"t/{sdk.tenant}/sessions/{session_id}/1")
    erased = await sdk.future(f"{session_id}/1")
    assert (erased.status_code, erased.json()["error"]["param"]) == (404, "request_id")
    for request_id in (f"{session_id}/9", "session-ab/1", "nothing"):
        assert (await sdk.future(request_id)).status_code == 404
