"""Names of fine-tuned models, and the refusal of an unknown one."""

import pytest

from services.gateway.models.domain.names import (
    checkpoint_name,
    is_of_line,
    model_id,
    named_stage,
    unknown_model,
)


def test_the_refusal_of_an_unknown_fine_tuned_model_names_where_to_look() -> None:
    refusal = unknown_model("ft:tiny:acme::12345678")
    assert (refusal.status, refusal.code, refusal.param) == (404, "model_not_found", "model")
    assert "a version or a checkpoint of your own: GET /v1/models" in refusal.message


def test_an_unknown_base_model_is_404() -> None:
    refusal = unknown_model("huge")
    assert (refusal.status, refusal.param) == (404, "model")
    assert "'huge' does not exist" in refusal.message


@pytest.mark.parametrize(
    ("name", "stage"),
    [
        ("ft:small:acme:line:production", "production"),
        ("ft:small:acme::staging", "staging"),
        ("ft:small:acme:production:12345678", None),
        ("ft:small:acme:line:archived", None),
        ("small:production", None),
    ],
)
def test_a_stage_is_the_last_part_of_a_name(name: str, stage: str | None) -> None:
    assert named_stage(name) == stage


@pytest.mark.parametrize("suffix", ["", "~mfrgg"])
def test_a_model_is_named_after_its_base_its_tenant_and_its_job(suffix: str) -> None:
    name = model_id("base", "acme", suffix, "ftjob-00000000abcdefgh")
    assert name == f"ft:base:acme:{suffix}:abcdefgh"
    assert checkpoint_name(name, 40) == f"ft:base:acme:{suffix}:abcdefgh:ckpt-step-40"


def test_versions_of_one_line_differ_in_their_last_part() -> None:
    assert is_of_line("ft:small:acme:line:production", "ft:small:acme:line:12345678")
    assert not is_of_line("ft:small:acme:line:production", "ft:small:acme:other:12345678")
