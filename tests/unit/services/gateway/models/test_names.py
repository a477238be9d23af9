"""Names of fine-tuned models, and the refusal of an unknown one."""

from services.gateway.models.names import unknown_model


def test_a_fine_tuned_model_that_nobody_knows_is_told_where_to_look() -> None:
    refusal = unknown_model("ft:tiny:acme::12345678")
    assert (refusal.status, refusal.code, refusal.param) == (404, "model_not_found", "model")
    assert "a version or a checkpoint of your own: GET /v1/models" in refusal.message


def test_an_unknown_base_model_is_404() -> None:
    refusal = unknown_model("huge")
    assert (refusal.status, refusal.param) == (404, "model")
    assert "'huge' does not exist" in refusal.message
