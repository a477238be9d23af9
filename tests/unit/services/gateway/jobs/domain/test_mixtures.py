"""Further files of a job: what a request may name, and what is said of what it may not."""

from typing import Any

import pytest
from msgspec.structs import replace

from schemas.units import PPM
from services.gateway.jobs.configuration import configuration_of
from services.gateway.jobs.domain.mixtures import as_requested, requested_mixture
from services.gateway.jobs.domain.resolve import resolve
from tests.unit.services.gateway.control_plane import BASE, ControlPlane
from tests.unit.services.gateway.jobs.domain.test_resolve import (
    FILE,
    PROMPTS,
    UNCHECKED,
    facts,
    refusal_of,
    request,
    spec_of,
)
from tests.unit.services.gateway.jobs.test_routes import ready, submit
from tunery.plan.estimate import estimate

FURTHER = replace(FILE, id="file-2", sha256="cd" * 32)
KNOWN = {"file-2": FURTHER}


def mixing(*files: Any) -> dict[str, Any]:
    return {"training": {"mixture": list(files)}}


def test_the_files_of_a_mixture_are_on_the_log_with_their_weights() -> None:
    asked = {"file": "file-2", "weight": 0.3}
    spec = spec_of(request(**mixing(asked)), mixture=KNOWN)
    (file,) = spec.mixture
    assert (file.file_id, file.weight_ppm, file.sha256) == ("file-2", 300_000, FURTHER.sha256)
    assert as_requested(spec.mixture) == [asked]
    (once,) = spec_of(request(**mixing({"file": "file-2"})), mixture=KNOWN).mixture
    assert once.weight_ppm == PPM


def test_the_estimate_and_the_defaults_follow_all_files() -> None:
    whole = resolve(request(), facts())
    both = resolve(request(**mixing({"file": "file-2", "weight": 4})), facts(mixture=KNOWN))
    assert both.tokens is not None
    assert whole.tokens == both.tokens, "of the training file; those of the others are in the spec"
    alone, all_files = estimate(whole.spec, both.tokens), estimate(both.spec, both.tokens)
    assert all_files.tokens > 2 * alone.tokens
    assert both.spec.configuration != whole.spec.configuration


def test_the_configuration_says_which_files_and_how_often() -> None:
    spec = spec_of(request(**mixing({"file": "file-2", "weight": 2})), mixture=KNOWN)
    (file,) = spec.mixture
    hashes = {
        configuration_of(replace(spec, mixture=mixture), ["a"], is_seed_drawn=True)
        for mixture in ((), (file,), (replace(file, weight_ppm=1),), (replace(file, sha256="e"),))
    }
    assert len(hashes) == 4


@pytest.mark.parametrize(
    ("value", "param", "problem"),
    [
        ([], "training.mixture", "must be a list of 1 to 8"),
        ({"file": "file-2"}, "training.mixture", "must be a list of 1 to 8"),
        ([{"file": "file-2"}] * 9, "training.mixture", "must be a list of 1 to 8"),
        (["file-2"], "training.mixture.0", 'must be {"file"'),
        ([{"weight": 1}], "training.mixture.0.file", "must be the id or name"),
        ([{"file": "f", "wieght": 1}], "training.mixture.0.wieght", "is not known"),
        ([{"file": "f", "weight": 0}], "training.mixture.0.weight", "from 0.001 to 10"),
        ([{"file": "f", "weight": -1}], "training.mixture.0.weight", "it is -1"),
        ([{"file": "f", "weight": 11}], "training.mixture.0.weight", "how often an epoch"),
        ([{"file": "f", "weight": float("nan")}], "training.mixture.0.weight", "it is nan"),
        ([{"file": "f", "weight": True}], "training.mixture.0.weight", "it is True"),
        ([{"file": "f", "weight": "1"}], "training.mixture.0.weight", "it is '1'"),
    ],
)
def test_what_is_wrong_with_a_mixture_has_its_place(value: Any, param: str, problem: str) -> None:
    files, problems = requested_mixture(value)
    assert files == ()
    assert [where for where, _ in problems] == [param]
    assert problem in problems[0][1]
    refusal = refusal_of(request(training={"mixture": value}))
    assert refusal.param == param


def test_files_that_cannot_be_mixed_in_are_refused_by_name() -> None:
    named = request(**mixing({"file": "file-2"}))
    unknown = refusal_of(named)
    assert (unknown.status, unknown.param) == (404, "training.mixture.0.file")
    early = refusal_of(named, mixture={"file-2": replace(UNCHECKED, id="file-2")})
    assert (early.status, early.code) == (409, "illegal_state")
    assert "still being checked" in early.message
    other = refusal_of(named, mixture={"file-2": replace(PROMPTS, id="file-2")})
    assert other.param == "training.mixture.0.file"
    assert "the method supervised learns from" in other.message
    unknown_base = replace(BASE, base_id="other", sha256="0" * 64)
    assert "Upload it again" in refusal_of(named, mixture=KNOWN, base=unknown_base).message
    twice = refusal_of(request(**mixing({"file": "file-2"}, {"file": "file-2"})), mixture=KNOWN)
    assert "is named as training.mixture.0.file already" in twice.message
    same = refusal_of(request(**mixing({"file": "file-1"})), mixture={"file-1": FILE})
    assert "is named as training_file already" in same.message


def test_validation_on_a_file_of_the_mixture_is_reported() -> None:
    held_out = replace(FURTHER, id="file-3")
    body = request(validation_file="file-3", **mixing({"file": "file-2"}))
    assert spec_of(body, mixture=KNOWN, held_out=held_out).same_rows


async def test_a_job_of_several_files_over_http(api: ControlPlane) -> None:
    client, main = await ready(api)
    further = (await api.upload(client))["id"]
    early = await submit(client, main, **mixing({"file": further}))
    assert early.status_code == 409
    await api.validated(client, further)
    _, theirs = await ready(api)
    for file in (theirs, "file-none"):
        missing = await submit(client, main, **mixing({"file": file}))
        assert missing.status_code == 404
        assert missing.json()["error"]["param"] == "training.mixture.0.file"
    alone = (await client.post("/v1/fine_tuning/jobs/estimate", json=body_of(main))).json()
    asked = mixing({"file": further, "weight": 0.5})
    both = await client.post("/v1/fine_tuning/jobs/estimate", json=body_of(main, **asked))
    assert both.json()["trained_tokens"] > alone["trained_tokens"]
    planned = (await client.post("/v1/fine_tuning/jobs/plan", json=body_of(main, **asked))).json()
    (setting,) = (item for item in planned["settings"] if item["name"] == "mixture")
    assert setting["value"] == asked["training"]["mixture"]
    assert setting["path"] == "training.mixture"
    job = (await submit(client, main, **asked)).json()
    assert job["mixture"] == [{"file": further, "weight": 0.5}]
    recipe = (await client.get(f"/v1/fine_tuning/jobs/{job['id']}/recipe")).json()["recipe"]
    assert recipe["training"]["mixture"] == asked["training"]["mixture"]
    events = (await client.get(f"/v1/fine_tuning/jobs/{job['id']}/events")).json()["data"]
    assert any(f"further files: {further}" in event["message"] for event in events)


def body_of(main: str, **fields: Any) -> dict[str, Any]:
    fixed = {"lora": {"rank": 8}}
    training = {"n_epochs": 1, **fields.pop("training", {})}
    return {"model": "tiny-llama", "training_file": main, **fixed, "training": training, **fields}
