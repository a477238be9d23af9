"""A text that is declared in `JobSettings` is in the body, on the log, in answers and recipes."""

import pytest

from schemas.sealed import REDACTED, Sealed
from services.gateway.jobs.domain.bodies import JobRequest, SimpleJobRequest
from services.gateway.jobs.domain.plain_responses import PlainJobResponse
from services.gateway.jobs.domain.responses import JobResponse
from services.gateway.jobs.domain.texts import TEXTS, sealed_texts, text_of
from services.gateway.jobs.recipes import FIELDS
from services.gateway.views.tables.jobs import JOBS
from simulator.control_plane.samples import spec
from tests.unit.services.gateway.control_plane import ControlPlane
from tests.unit.services.gateway.jobs.test_routes import ready, submit

SEALED = Sealed(key_id="k", nonce=b"n", ciphertext=b"c")
BODY = {"model": "m", "training_file": "f"}


def test_every_text_at_the_top_is_a_field_of_bodies_and_answers() -> None:
    top = {name for name, text in TEXTS.items() if "." not in text.path}
    for model in (JobRequest, SimpleJobRequest):
        assert top <= {*model.model_fields}
    assert top <= {*FIELDS}
    assert {"metadata", "tags"} <= {*JobResponse.model_fields} & {*PlainJobResponse.model_fields}
    assert "suffix" not in JobResponse.model_fields  # OpenAI's name is user_provided_suffix


def test_the_texts_of_a_request_are_sealed_under_their_names() -> None:
    grader = {"type": "string_check"}
    method = {"type": "reinforcement", "reinforcement": {"grader": grader}}
    fields = {"suffix": "faq", "tags": ["a"], "metadata": {}, "eval": {"prompts": ["Who?"]}}
    request = JobRequest.model_validate({**BODY, **fields, "method": method})
    written: dict[str, str] = {}

    def seal(text: str, field: str) -> Sealed:
        written[field] = text
        return SEALED

    assert sealed_texts(request, seal) == dict.fromkeys(written, SEALED)
    assert written == {
        "suffix": "faq",
        "metadata": "{}",
        "prompts": '["Who?"]',
        "grader": '{"type":"string_check"}',
        "tags": '["a"]',
    }


@pytest.mark.parametrize(
    ("opened", "value"),
    [('{"team": "search"}', {"team": "search"}), ("erased", None), (REDACTED, None), (None, None)],
)
def test_an_erased_text_is_like_none(opened: str | None, value: object) -> None:
    job = spec(metadata=SEALED)
    assert text_of(job, "metadata", lambda _sealed, _field: opened) == value


async def test_jobs_are_found_by_their_tags(api: ControlPlane) -> None:
    client, file_id = await ready(api)
    both = (await submit(client, file_id, tags=["night", "v2"])).json()
    night = (await submit(client, file_id, tags=["night"], seed=1)).json()
    none = (await submit(client, file_id, seed=2)).json()
    assert (both["tags"], none["tags"]) == (["night", "v2"], None)
    for params, jobs in (
        ({"tags": "night"}, [night, both]),
        ({"tags": ["night", "v2"]}, [both]),
        ({"tags": "day"}, []),
    ):
        listed = await client.get("/v1/fine_tuning/jobs", params=params)
        assert [job["id"] for job in listed.json()["data"]] == [job["id"] for job in jobs]
    recipe = (await client.get(f"/v1/fine_tuning/jobs/{both['id']}/recipe")).json()["recipe"]
    assert recipe["tags"] == ["night", "v2"]
    body = {name: recipe[name] for name in recipe if name != "version"}
    planned = (await client.post("/v1/fine_tuning/jobs/plan", json=body)).json()
    assert planned["recipe"]["tags"] == ["night", "v2"]
    row = await api.deps.views.first(JOBS, {"id": both["id"]})
    assert row is not None
    assert row.spec.tags is not None
    assert b"night" not in bytes(row.spec.tags.ciphertext)
    refused = await submit(client, file_id, tags=["a" * 65])
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "tags.0")
