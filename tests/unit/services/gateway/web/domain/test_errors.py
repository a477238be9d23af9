"""Errors of the API: the envelope, types and headers."""

from schemas import errors
from services.gateway.web.domain.errors import not_decided, refused


def test_a_refusal_has_the_status_of_its_code_and_is_final() -> None:
    refusal = refused(errors.ILLEGAL_STATE, "No.", "id")
    assert refusal.status == 409
    assert refusal.all_headers() == {"x-should-retry": "false"}
    assert refusal.body().model_dump() == {
        "error": {
            "message": "No.",
            "type": "invalid_request_error",
            "param": "id",
            "code": errors.ILLEGAL_STATE,
        }
    }


def test_a_command_without_a_decision_may_be_sent_again() -> None:
    error = not_decided()
    assert (error.status, error.body().error.type) == (503, "server_error")
    assert "retry-after" in error.all_headers()
