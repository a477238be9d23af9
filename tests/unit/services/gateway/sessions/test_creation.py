"""The job that a session is: its terms by plan and metadata, and what is refused by name."""

from typing import Any

import pytest

from services.gateway.sessions.creation import ATTENTION
from services.gateway.views.tables.jobs import JOBS
from tests.unit.services.gateway.control_plane import ControlPlane
from tests.unit.services.gateway.sessions.sdk import Sdk, new_sdk


async def spec_of(sdk: Sdk, session_id: str) -> Any:
    row = await sdk.api.deps.views.first(JOBS, {"tenant": sdk.tenant, "id": session_id})
    assert row is not None
    return row.spec


async def test_the_plan_says_what_a_session_may_use(api: ControlPlane) -> None:
    sdk = await new_sdk(api)
    spec = await spec_of(sdk, await sdk.model())
    assert (spec.session.max_tokens, spec.session.max_ms) == (100_000_000, 240 * 60_000)
    assert spec.hyper.target_modules == ()  # every linear layer, whatever the base calls it
    assert (spec.hyper.rank, spec.hyper.seed) == (4, 5)


async def test_metadata_says_less_or_more(api: ControlPlane) -> None:
    sdk = await new_sdk(api)
    metadata = {"tunery_max_minutes": "20", "tunery_max_tokens": 500, "run": "mine"}
    lora = {"rank": 8, "train_mlp": False}
    spec = await spec_of(sdk, await sdk.model(user_metadata=metadata, lora_config=lora))
    assert (spec.session.max_tokens, spec.session.max_ms) == (500, 20 * 60_000)
    assert set(spec.hyper.target_modules) == set(ATTENTION)


async def test_a_model_that_is_asked_for_again_is_the_same(api: ControlPlane) -> None:
    sdk = await new_sdk(api)
    first = (await sdk.create(session_id="client-1")).json()
    assert (await sdk.create(session_id="client-1")).json() == first
    second = (await sdk.create(session_id="client-1", model_seq_id=1)).json()
    assert second["model_id"] != first["model_id"]


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"lora_config": None}, "lora_config"),
        ({"lora_config": {"rank": 500}}, "lora_config.rank"),
        ({"lora_config": {"train_mlp": False, "train_attn": False}}, "lora_config"),
        ({"optimizer_config": {"type": "muon"}}, "optimizer_config.type"),
        ({"user_metadata": {"tunery_max_minutes": "long"}}, "user_metadata.tunery_max_minutes"),
        ({"user_metadata": {"tunery_max_tokens": 0}}, "user_metadata.tunery_max_tokens"),
    ],
)
async def test_what_is_not_served_is_refused_by_name(
    api: ControlPlane, changes: dict[str, Any], field: str
) -> None:
    answer = await (await new_sdk(api)).create(**changes)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, field)
