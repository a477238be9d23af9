"""Errors below a route, as answers in one envelope."""

from typing import Annotated, Any, Literal
from unittest import mock

import pytest
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, Field, StrictBool, StrictInt, ValidationError
from starlette.exceptions import HTTPException

from services.gateway.web.domain.errors import ApiError
from services.gateway.web.problems import PROBLEMS_MAX, error_of, fault
from tests.unit.services.gateway.control_plane import ControlPlane
from tunery.platform.seal.abstract import KeyAbsent, KeyDestroyed, RootRefused, RootUnavailable
from tunery.runtime.blobs.abstract import BlobsUnavailable
from tunery.runtime.bus.abstract import TooLarge, Unavailable
from tunery.runtime.store.abstract import StoreUnavailable


async def test_unknown_urls_and_methods_have_the_envelope(api: ControlPlane) -> None:
    unknown = await api.api.get("/v1/nothing")
    assert (unknown.status_code, unknown.json()["error"]["code"]) == (404, "unknown_url")
    method = await api.api.put("/v1/files")
    assert (method.status_code, method.json()["error"]["code"]) == (405, "method_not_allowed")
    assert method.headers["allow"] == "GET, POST"
    assert "Allowed: GET, POST" in method.json()["error"]["message"]


async def test_first_hour_low_unknown_urls_say_what_is_there(api: ControlPlane) -> None:
    """`/v1/images` was told that "the API begins with /v1"."""
    for path, words in (
        ("/v1/images/generations", "trains models of text"),
        ("/v1/assistants", "trains models of text"),
        ("/v1/fine_tunning/jobs", "Check the URL for typos: /openapi.json lists all of them."),
        ("/fine_tuning/jobs", "typos: paths begin with /v1; /openapi.json lists"),
    ):
        answer = await api.api.post(path, json={})
        assert (answer.status_code, answer.json()["error"]["code"]) == (404, "unknown_url")
        assert words in answer.json()["error"]["message"]


async def test_outages_are_503_with_retry_after(api: ControlPlane) -> None:
    client = await api.tenant()
    outages = (
        (api.deps.views, "first", StoreUnavailable("gone"), client.get("/v1/files/file-1")),
        (
            api.runtime.blobs,
            "upload",
            BlobsUnavailable("gone"),
            client.post("/v1/files", data={"purpose": "fine-tune"}, files={"file": ("a", b"x")}),
        ),
        (
            api.runtime.sender,
            "send",
            Unavailable("gone"),
            client.post(
                "/v1/webhook_endpoints", json={"url": "https://a.example/", "event_types": ["x"]}
            ),
        ),
    )
    for port, method, error, request in outages:
        with mock.patch.object(port, method, side_effect=error):
            answer = await request
        assert answer.status_code == 503, method
        assert int(answer.headers["retry-after"]) >= 1
        assert answer.json()["error"]["code"] == "service_unavailable"


async def test_an_internal_error_has_the_envelope_and_a_request_id(api: ControlPlane) -> None:
    client = await api.tenant()
    with mock.patch.object(api.runtime.blobs, "upload", side_effect=LookupError("unforeseen")):
        answer = await client.post(
            "/v1/files", data={"purpose": "fine-tune"}, files={"file": ("a", b"x")}
        )
    error = answer.json()["error"]
    assert (answer.status_code, error["code"], error["type"]) == (
        500,
        "internal_error",
        "server_error",
    )
    assert answer.headers["x-request-id"] in error["message"]


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (StoreUnavailable("gone"), 503, "service_unavailable"),
        (BlobsUnavailable("gone"), 503, "service_unavailable"),
        (Unavailable("gone"), 503, "service_unavailable"),
        (TooLarge("2 MB"), 413, "command_too_large"),
        (KeyDestroyed("acme"), 403, "tenant_erased"),
        (RootRefused("withdrawn"), 403, "root_key_refused"),
        (KeyAbsent("acme", "/keys"), 503, "service_unavailable"),
        (RootUnavailable("away"), 503, "service_unavailable"),
        (HTTPException(400, "no"), 400, "invalid_request"),
        (HTTPException(500, "secret"), 503, "service_unavailable"),
    ],
)
def test_every_error_below_a_route_has_an_answer(error: Exception, status: int, code: str) -> None:
    answer = error_of(error)
    assert answer is not None
    assert (answer.status, answer.code) == (status, code)
    assert "secret" not in answer.message


def test_an_error_of_ours_has_no_answer_of_its_own() -> None:
    assert error_of(LookupError("unforeseen")) is None
    assert "req_1" in fault("req_1").message


def problem(kind: str, *location: str | int) -> dict[str, Any]:
    return {"type": kind, "loc": location, "msg": f"is wrong: {kind}"}


def invalid_body(*problems: dict[str, Any]) -> ApiError:
    answer = error_of(RequestValidationError(problems))
    assert answer is not None
    assert answer.status == 400
    return answer


def test_one_problem_names_its_field() -> None:
    answer = invalid_body(problem("missing", "body", "model"))
    assert (answer.message, answer.param) == ("model: is required", "model")


def test_problems_are_counted_and_the_first_field_is_named() -> None:
    answer = invalid_body(
        problem("extra_forbidden", "body", "budget", "max"),
        problem("int_type", "query", "limit"),
    )
    assert answer.param == "budget.max"
    assert answer.message == (
        "2 problems: budget.max: is not a known field; remove it or correct its name; "
        "limit: must be a whole number"
    )


def test_branches_of_one_field_are_one_problem() -> None:
    answer = invalid_body(
        problem("string_type", "body", "url", "constrained-str"),
        problem("none_required", "body", "url", "function-after[f(), str]"),
    )
    assert (answer.message, answer.param) == ("url: must be text", "url")


def test_at_most_so_many_problems_are_shown() -> None:
    names = [f"field{number}" for number in range(PROBLEMS_MAX + 1)]
    answer = invalid_body(*(problem("missing", "body", name) for name in names))
    assert answer.message.startswith(f"{PROBLEMS_MAX + 1} problems: ")
    assert answer.message.count("is required") == PROBLEMS_MAX


def test_a_body_that_is_no_object_has_no_field() -> None:
    answer = invalid_body(problem("model_attributes_type", "body"))
    assert answer.param is None
    assert "send a JSON object" in answer.message
    broken = invalid_body(problem("json_invalid", "body", 7))
    assert broken.message == "The body is not valid JSON."


class Shapes(BaseModel):
    text: Annotated[str, Field(min_length=1, max_length=2)] = "a"
    count: Annotated[StrictInt, Field(ge=1, le=9)] = 1
    share: Annotated[float, Field(gt=0, lt=1)] = 0.5
    flag: StrictBool = True
    kind: Literal["a", "b"] = "a"
    listed: Annotated[list[str], Field(max_length=1)] = []
    named: Annotated[dict[str, str], Field(max_length=1)] = {}


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("text", "abc", "must have at most 2 characters"),
        ("text", "", "must not be empty"),
        ("text", 1, "must be text"),
        ("count", 0, "must be at least 1"),
        ("count", 10, "must be at most 9"),
        ("count", "1", "must be a whole number"),
        ("share", 0, "must be above 0.0"),
        ("share", 1, "must be below 1.0"),
        ("share", "x", "must be a number"),
        ("flag", 1, "must be true or false"),
        ("kind", "c", "must be 'a', or 'b'"),
        ("listed", ["a", "b"], "must have at most 1 entries"),
        ("listed", 1, "must be a list"),
        ("named", {"a": "1", "b": "2"}, "must have at most 1 entries"),
        ("named", 1, "must be an object"),
    ],
)
def test_first_hour_low_problems_are_in_our_words(field: str, value: object, words: str) -> None:
    """ "String should have at most 64 characters", "Dictionary should have at most 16 items"."""
    with pytest.raises(ValidationError) as raised:
        Shapes.model_validate({field: value})
    answer = error_of(RequestValidationError(raised.value.errors()))
    assert answer is not None
    assert answer.message == f"{field}: {words}"
