"""Routes of the Tinker SDK: futures, numbers, paths of weights, and other tenants."""

from typing import Any
from urllib.parse import quote

import cramjam
import pytest

from schemas.session import (
    AHEAD_MAX,
    CloseSession,
    SessionTerms,
    SetSessionTerms,
    session_folder,
)
from schemas.topics import SESSION
from schemas.training import BlobFile
from services.gateway.sessions.messages import PassRequest
from tests.unit.services.gateway.control_plane import BASE, ControlPlane
from tests.unit.services.gateway.sessions.sdk import Sdk, new_sdk
from tunery.work.session import PathAnswer, SampleBody, decode_body

FILE = BlobFile(name="adapter.safetensors", blob="t/x/a", sha256="cd" * 32, bytes=10)
PROTOBUF = {"content-type": "application/x-protobuf"}


def step(model_id: str, seq: int, **params: Any) -> dict[str, Any]:
    return {"model_id": model_id, "seq_id": seq, "adam_params": params}


async def test_a_client_learns_what_there_is(api: ControlPlane) -> None:
    sdk = await new_sdk(api)
    listed = (await sdk.client.get("/api/v1/get_server_capabilities")).json()["supported_models"]
    assert BASE.base_id in [model["model_name"] for model in listed]
    config = (await sdk.call("client/config")).json()
    assert config["fwdbwd_max_chunk_len"] == 1_024
    session_id = await sdk.model()
    info = (await sdk.call("get_info", {"model_id": session_id})).json()
    assert (info["model_name"], info["lora_rank"]) == (BASE.base_id, 4)
    stranger = await api.client("tml-wrong", "").get("/api/v1/get_server_capabilities")
    assert stranger.status_code == 401


async def test_the_sdks_own_header_is_taken_as_the_key(api: ControlPlane) -> None:
    sdk = await new_sdk(api)
    key = sdk.client.headers["authorization"].removeprefix("Bearer ")
    del sdk.client.headers["authorization"]
    path = "/api/v1/get_server_capabilities"
    asked = await sdk.client.get(path, headers={"x-api-key": f"tml-{key}"})
    assert asked.is_success
    assert (await sdk.client.get("/v1/models", headers={"x-api-key": key})).status_code == 401


async def test_a_request_comes_once(api: ControlPlane) -> None:
    sdk = await new_sdk(api)
    session_id = await sdk.model()  # with its step 1
    again = await sdk.call("optim_step", step(session_id, 1))
    assert again.json()["request_id"] == f"{session_id}/1"
    other = await sdk.call("optim_step", step(session_id, 1, learning_rate=0.5))
    assert (other.status_code, other.json()["error"]["code"]) == (409, "already_exists")


@pytest.mark.parametrize(
    ("route", "change", "field"),
    [
        ("optim_step", {"learning_rate": 1e300}, "adam_params.learning_rate"),
        ("optim_step", {"weight_decay": 1e300}, "adam_params.weight_decay"),
        ("optim_step", {"eps": 1e-320}, "adam_params.eps"),
        ("asample", {"tokens": [2**70]}, "prompt.chunks.0.tokens.0"),
        ("asample", {"stop": [2**70]}, "sampling_params.stop"),
    ],
)
async def test_tinker_numbers_that_no_process_bears_are_refused_by_name(
    api: ControlPlane, route: str, change: dict[str, Any], field: str
) -> None:
    sdk = await new_sdk(api)
    body = step("session-ab", 2, **change)
    if route == "asample":
        body = drawn_from("tinker://session-ab/sampler_weights/best#2")
        if "stop" in change:
            body["sampling_params"] |= change
        else:
            body["prompt"]["chunks"][0] |= change
    refused = await sdk.call(route, body)
    assert refused.status_code == 400
    assert refused.json()["error"]["param"].startswith(field)


async def test_a_body_that_is_no_request_is_refused(api: ControlPlane) -> None:
    sdk = await new_sdk(api)
    url = "/api/v1/forward_backward"
    broken = await sdk.client.post(url, content=b"\x0a\xff", headers=PROTOBUF)
    assert (broken.status_code, broken.json()["error"]["code"]) == (400, "invalid_protobuf")
    unknown = PassRequest(model_id="session-ab", seq_id=1).SerializeToString()
    assert (await sdk.client.post(url, content=unknown, headers=PROTOBUF)).status_code == 404


async def test_tinker_bodies_come_compressed_with_zstd_and_no_bomb_does(api: ControlPlane) -> None:
    sdk = await new_sdk(api)
    unknown = PassRequest(model_id="session-ab", seq_id=1).SerializeToString()
    bomb = cramjam.zstd.compress(bytes(50_000_000))
    for content, encoding, status in (
        (bytes(cramjam.zstd.compress(unknown)), "zstd", 404),
        (bytes(bomb), "zstd", 413),
        (unknown, "zstd", 400),
        (bytes(bomb)[:-20], "zstd", 413),
        (bytes(cramjam.zstd.compress(unknown))[:-1], "zstd", 400),
        (unknown, "gzip", 415),
    ):
        headers = {**PROTOBUF, "content-encoding": encoding}
        url = "/api/v1/forward_backward"
        answer = await sdk.client.post(url, content=content, headers=headers)
        assert answer.status_code == status, (encoding, len(content), answer.text)


async def test_saved_weights_are_sampled_and_loaded_by_their_own_tenant_alone(
    api: ControlPlane,
) -> None:
    sdk = await new_sdk(api)
    session_id = await sdk.model()
    path = f"tinker://{session_id}/sampler_weights/best"
    save = {"model_id": session_id, "seq_id": 2, "path": "best"}
    future = (await sdk.call("save_weights_for_sampler", save)).json()["request_id"]
    sampler = {"session_id": "client-1", "sampling_session_seq_id": 0, "model_path": path}
    assert (await sdk.call("create_sampling_session", sampler)).status_code == 404
    await sdk.answer(session_id, "2", PathAnswer(path=path), saved=(FILE,))
    answer = (await sdk.future(future)).json()
    assert answer == {
        "type": "save_weights_for_sampler",
        "path": path,
        "sampling_session_id": f"{path}#2",
    }
    assert (await sdk.call("create_sampling_session", sampler)).is_success
    asked: dict[str, Any] = {
        "sampling_session_id": f"{path}#2",
        "seq_id": 0,
        "num_samples": 2,
        "prompt": {"chunks": [{"type": "encoded_text", "tokens": [1, 2]}]},
        "sampling_params": {"max_tokens": 3},
    }
    drawn = (await sdk.call("asample", asked)).json()
    assert len(drawn["sample_sequence_ids"]) == 2
    wrong_kind = {"model_id": session_id, "seq_id": 3, "path": path, "optimizer": True}
    assert (await sdk.call("load_weights", wrong_kind)).status_code == 400
    other = await new_sdk(api)
    for route, body in (
        ("create_sampling_session", sampler),
        ("asample", asked),
        ("retrieve_future", {"request_id": future}),
        ("optim_step", step(session_id, 3)),
        ("unload_model", {"model_id": session_id}),
    ):
        assert (await other.call(route, body)).status_code == 404, route


async def test_tinker_a_sampler_of_erased_weights_is_refused(api: ControlPlane) -> None:
    sdk = await new_sdk(api)
    session_id = await sdk.model()
    path = f"tinker://{session_id}/sampler_weights/best"
    save = {"model_id": session_id, "seq_id": 2, "path": "best"}
    assert (await sdk.call("save_weights_for_sampler", save)).is_success
    await sdk.answer(session_id, "2", PathAnswer(path=path), saved=(FILE,))
    assert (await sdk.future(f"{session_id}/2")).is_success
    sampler = {"session_id": "client-1", "sampling_session_seq_id": 0, "model_path": path}
    assert (await sdk.call("create_sampling_session", sampler)).is_success
    brief = SessionTerms(client="client-1", max_tokens=9_999, max_ms=60_000, kept_ms=0)
    for command in (SetSessionTerms(terms=brief), CloseSession()):
        await api.send(SESSION, sdk.tenant, command, key=session_id)
    await api.until(
        sdk.client, f"/v1/sessions/{session_id}", lambda shown: shown["erased_at"] is not None
    )
    refused = await sdk.call("create_sampling_session", sampler)
    assert (refused.status_code, refused.json()["error"]["param"]) == (404, "model_path")
    assert "are erased" in refused.json()["error"]["message"]


def drawn_from(sampler: str) -> dict[str, Any]:
    return {
        "sampling_session_id": sampler,
        "seq_id": 0,
        "prompt": {"chunks": [{"type": "encoded_text", "tokens": [1, 2]}]},
        "sampling_params": {"max_tokens": 3},
    }


async def of_base(sdk: Sdk, session_id: str) -> list[bool]:
    """Return whether each sample that a session was asked for is one of the base model."""
    blobs = sdk.api.world.blobs
    folder = session_folder(sdk.tenant, session_id)
    contents = [await blobs.get(each.key) async for each in blobs.listed(folder)]
    bodies = [decode_body(each) for each in contents if b"sample" in each]
    return [body.of_base for body in bodies if isinstance(body, SampleBody)]


async def test_tinker_saved_weights_are_sampled_after_their_session_by_another(
    api: ControlPlane,
) -> None:
    sdk = await new_sdk(api)
    session_id = await sdk.model(lora_config={"rank": 4, "train_mlp": False})
    path = f"tinker://{session_id}/sampler_weights/best"
    save = {"model_id": session_id, "seq_id": 2, "path": "best"}
    assert (await sdk.call("save_weights_for_sampler", save)).is_success
    await sdk.answer(session_id, "2", PathAnswer(path=path), saved=(FILE,))
    assert (await sdk.future(f"{session_id}/2")).is_success
    assert (await sdk.call("unload_model", {"model_id": session_id})).is_success
    await api.until(
        sdk.client, f"/v1/sessions/{session_id}", lambda shown: shown["ends"] is not None
    )
    asked = {"session_id": "client-2", "sampling_session_seq_id": 0, "model_path": path}
    sampler = (await sdk.call("create_sampling_session", asked)).json()["sampling_session_id"]
    assert (await sdk.call("create_sampling_session", asked)).json()[
        "sampling_session_id"
    ] == sampler
    drawn = (await sdk.call("asample", drawn_from(sampler))).json()
    assert drawn["model_id"] != session_id
    info = (await sdk.call("get_info", {"model_id": drawn["model_id"]})).json()
    assert (info["model_name"], info["lora_rank"]) == (BASE.base_id, 4)
    assert await of_base(sdk, drawn["model_id"]) == [False]
    named = (await sdk.client.get(f"/api/v1/samplers/{quote(sampler, safe='')}")).json()
    assert (named["base_model"], named["model_path"]) == (BASE.base_id, path)
    other = await new_sdk(api)
    assert (await other.call("asample", drawn_from(sampler))).status_code == 404
    assert (await other.call("create_sampling_session", asked)).status_code == 404


async def test_tinker_a_base_model_is_sampled_by_an_open_session_of_the_client(
    api: ControlPlane,
) -> None:
    sdk = await new_sdk(api)
    session_id = await sdk.model(session_id="client-1")
    asked = {"session_id": "client-1", "sampling_session_seq_id": 0, "base_model": BASE.base_id}
    sampler = (await sdk.call("create_sampling_session", asked)).json()["sampling_session_id"]
    drawn = (await sdk.call("asample", drawn_from(sampler))).json()
    assert drawn["model_id"] == session_id
    assert await of_base(sdk, session_id) == [True]
    alone = {**asked, "session_id": "client-2"}
    sampler = (await sdk.call("create_sampling_session", alone)).json()["sampling_session_id"]
    drawn = (await sdk.call("asample", drawn_from(sampler))).json()
    assert drawn["model_id"] != session_id
    named = (await sdk.client.get(f"/api/v1/samplers/{quote(sampler, safe='')}")).json()
    assert (named["base_model"], named["model_path"]) == (BASE.base_id, None)
    other = await new_sdk(api)
    assert (await other.call("asample", drawn_from(sampler))).status_code == 404
    for wrong in ({"base_model": "unknown"}, {"base_model": None}):
        refused = await sdk.call("create_sampling_session", {**alone, **wrong, "session_id": "c"})
        assert refused.status_code in (400, 404), refused.text


async def test_a_session_that_ends_takes_nothing_more(api: ControlPlane) -> None:
    sdk = await new_sdk(api)
    session_id = await sdk.model()
    assert (await sdk.call("unload_model", {"model_id": session_id})).is_success
    refused = await sdk.call("optim_step", step(session_id, 2))
    assert refused.status_code == 409
    assert "is ending" in refused.json()["error"]["message"]


async def test_tinker_weights_of_another_rank_or_tenant_are_not_loaded(api: ControlPlane) -> None:
    sdk = await new_sdk(api)
    small = await sdk.model()
    path = f"tinker://{small}/weights/state"
    save = {"model_id": small, "seq_id": 2, "path": "state"}
    assert (await sdk.call("save_weights", save)).is_success
    await sdk.answer(small, "2", PathAnswer(path=path), saved=(FILE,))
    assert (await sdk.future(f"{small}/2")).is_success
    large = await sdk.model(lora_config={"rank": 8})
    load = {"model_id": large, "seq_id": 2, "path": path, "optimizer": True}
    refused = await sdk.call("load_weights", load)
    assert (refused.status_code, refused.json()["error"]["code"]) == (400, "invalid_weights")
    assert "its rank is 4" in refused.json()["error"]["message"]
    other = await new_sdk(api)
    load = {**load, "model_id": await other.model()}
    assert (await other.call("load_weights", load)).status_code == 404
    never = {**load, "model_id": large, "path": f"tinker://{small}/weights/erased"}
    assert (await sdk.call("load_weights", never)).status_code == 404


async def test_tinker_a_chunk_above_what_client_config_says_is_refused(api: ControlPlane) -> None:
    sdk = await new_sdk(api)
    session_id = await sdk.model()
    config = (await sdk.call("client/config")).json()
    many = PassRequest(model_id=session_id, seq_id=2, loss_fn="cross_entropy")
    for _ in range(config["fwdbwd_max_chunk_len"] + 1):
        many.data.add()
    url = "/api/v1/forward_backward"
    refused = await sdk.client.post(url, content=many.SerializeToString(), headers=PROTOBUF)
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "data")
    large = bytes(config["fwdbwd_max_chunk_bytes_count"] + 200_000)
    refused = await sdk.client.post(url, content=large, headers=PROTOBUF)
    assert refused.status_code == 413


async def test_tinker_a_number_far_ahead_of_a_hole_is_refused(api: ControlPlane) -> None:
    sdk = await new_sdk(api)
    session_id = await sdk.model()
    early = await sdk.call("optim_step", step(session_id, 3))
    assert early.is_success  # one hole may fill yet
    far = await sdk.call("optim_step", step(session_id, 2 + AHEAD_MAX))
    assert far.status_code == 409
    assert "number 2 has not come" in far.json()["error"]["message"]
