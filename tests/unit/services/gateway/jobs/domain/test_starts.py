"""Trainings that begin with an own version or checkpoint."""

from typing import Any

import httpx
import pytest
from msgspec.structs import replace

from schemas.training import AdapterStart, BlobFile
from services.gateway.jobs.domain.bodies import JobRequest
from services.gateway.jobs.domain.requested import requested_settings
from services.gateway.jobs.domain.resolve import resolve
from services.gateway.jobs.domain.starts import KnownStart, start_problems
from services.gateway.web.domain.errors import ApiError
from tests.unit.services.gateway.control_plane import BASE, ControlPlane
from tests.unit.services.gateway.jobs.domain.test_resolve import facts
from tests.unit.services.gateway.jobs.job_events import HYPER
from tests.unit.services.gateway.jobs.test_routes import ready, submit
from tests.unit.services.gateway.models.test_routes import version

NAME = "ft:tiny-llama:acme:first:12345678"
WEIGHTS = BlobFile(name="adapter_model.safetensors", blob="w", sha256="cd" * 32, bytes=9)
START = AdapterStart(model_id=NAME, sha256=WEIGHTS.sha256, files=(WEIGHTS,))
OF_FIRST = replace(HYPER, rank=8, alpha=24, target_modules=("q_proj", "v_proj"), rslora=True)
KNOWN = KnownStart(START, BASE, OF_FIRST)


def request(**lora: Any) -> JobRequest:
    return JobRequest(model=NAME, training_file="file-1", lora=lora)


def test_the_adapter_stays_what_it_is_made_of() -> None:
    spec = resolve(request(dropout=0), facts(start=KNOWN)).spec
    assert spec.start == START
    kept = (spec.hyper.rank, spec.hyper.alpha, spec.hyper.target_modules, spec.hyper.rslora)
    assert kept == (8, 24, ("q_proj", "v_proj"), True)
    assert spec.hyper.dropout_ppm == 0, "what is no part of the adapter is of this training"
    assert {"rank", "alpha"}.isdisjoint(spec.auto)
    assert (spec.base.base_id, spec.model_id) == ("tiny-llama", "ft:tiny-llama:acme::abcdefgh")


@pytest.mark.parametrize(
    "named",
    [{}, {"rank": 8}, {"rank": "auto", "alpha": 24}, {"target_modules": ["v_proj", "q_proj"]}],
    ids=str,
)
def test_repeating_the_settings_of_the_start_is_no_contradiction(named: dict[str, Any]) -> None:
    settings, _ = requested_settings(request(**named))
    assert start_problems(KNOWN, settings) == []


@pytest.mark.parametrize(
    ("named", "has"),
    [
        ({"rank": 16}, "has 8"),
        ({"alpha": 8}, "has 24"),
        ({"target_modules": "all-linear"}, "has q_proj, v_proj"),
        ({"dora": True}, "has False"),
        ({"modules_to_save": ["lm_head"]}, "has the default"),
    ],
    ids=str,
)
def test_another_form_of_the_adapter_is_refused_by_its_name(
    named: dict[str, Any], has: str
) -> None:
    with pytest.raises(ApiError) as caught:
        resolve(request(**named), facts(start=KNOWN))
    (field,) = named
    assert (caught.value.status, caught.value.param) == (400, f"lora.{field}")
    assert has in caught.value.message
    assert "begin with 'tiny-llama'" in caught.value.message


WHOLE = KnownStart(START, BASE, replace(HYPER, adaptation="full", rank=0, alpha=0))


def test_training_full_goes_on_with_every_weight_unasked() -> None:
    whole = JobRequest(model=NAME, training_file="file-1")
    spec = resolve(whole, facts(start=WHOLE)).spec
    assert (spec.hyper.adaptation, spec.hyper.rank, spec.hyper.dropout_ppm) == ("full", 0, 0)
    adapter = resolve(whole, facts(start=KNOWN)).spec
    assert spec.hyper.learning_rate_ppb < adapter.hyper.learning_rate_ppb


@pytest.mark.parametrize(
    ("known", "adaptation", "has"),
    [(WHOLE, "lora", "weights of its own"), (KNOWN, "full", "an adapter")],
)
def test_training_full_and_an_adapter_do_not_go_on_from_each_other(
    known: KnownStart, adaptation: str, has: str
) -> None:
    other = JobRequest(model=NAME, training_file="file-1", training={"adaptation": adaptation})
    with pytest.raises(ApiError) as caught:
        resolve(other, facts(start=known))
    assert (caught.value.status, caught.value.param) == (400, "training.adaptation")
    assert has in caught.value.message
    assert "leave adaptation out, or begin with 'tiny-llama'" in caught.value.message


async def first_job(api: ControlPlane) -> tuple[httpx.AsyncClient, str, dict[str, Any]]:
    client, file_id = await ready(api)
    answer = await submit(client, file_id, lora={"rank": 8})
    assert answer.status_code == 200, answer.text
    return client, file_id, answer.json()


async def test_a_job_begins_with_a_version_of_the_same_tenant_alone(api: ControlPlane) -> None:
    client, file_id, job = await first_job(api)
    model_id = await version(api, client, "first", job_id=job["id"])
    answer = await submit(client, file_id, model=model_id)
    assert answer.status_code == 200, answer.text
    second = answer.json()
    assert second["model"] == model_id
    assert second["hyperparameters"]["rank"] == 8
    assert second["provenance"]["started_from"] == f"{model_id}@sha256:{'cd' * 32}"
    assert second["provenance"]["base_model"].startswith("tiny-llama@sha256:")
    other, its_file = await ready(api)
    refused = await submit(other, its_file, model=model_id)
    unknown = await submit(other, its_file, model="ft:tiny-llama:x::none")
    assert refused.status_code == unknown.status_code == 404
    same = refused.json()["error"]["message"].replace(model_id, "ft:tiny-llama:x::none")
    assert same == unknown.json()["error"]["message"]


async def test_nothing_begins_with_a_version_that_is_deleted(api: ControlPlane) -> None:
    client, file_id, job = await first_job(api)
    model_id = await version(api, client, "first", job_id=job["id"])
    assert (await client.delete(f"/v1/models/{model_id}")).status_code == 200
    assert (await submit(client, file_id, model=model_id)).status_code == 404


async def test_nothing_begins_with_a_version_that_the_gate_blocked(api: ControlPlane) -> None:
    client, file_id, job = await first_job(api)
    model_id = await version(api, client, "worse", "block", job["id"])
    refused = await submit(client, file_id, model=model_id)
    assert refused.status_code == 400
    error = refused.json()["error"]
    assert (error["param"], "the gate blocked" in error["message"]) == ("model", True)


def test_a_reward_model_and_others_do_not_begin_with_each_other() -> None:
    rewards = replace(KNOWN.hyper, method="reward")
    of_reward = KnownStart(START, BASE, rewards)
    asked = JobRequest.model_validate(
        {"model": NAME, "training_file": "file-1", "method": {"type": "reward"}}
    )
    settings, _ = requested_settings(asked)
    assert start_problems(of_reward, settings) == []
    for known, other in ((KNOWN, asked), (of_reward, request())):
        settings, _ = requested_settings(other)
        (problem,) = start_problems(known, settings)
        assert problem.param == "model"
        assert "head for rewards" in problem.message
