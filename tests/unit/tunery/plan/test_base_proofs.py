"""A base without a proof refuses nothing; one with a proof what it was not shown to do."""

from typing import Any

import pytest
from msgspec.structs import replace

from tests.unit.tunery.plan.samples import PROOF, SMOL
from tunery.plan.hyperparameters import problems, resolve


@pytest.mark.parametrize(
    ("asked", "proof", "param", "code"),
    [
        ({"packing": True}, {}, "packing", "base_does_not_pack"),
        ({"adaptation": "full"}, {}, "adaptation", "base_takes_adapters_alone"),
        ({}, {"adaptations": ("full",)}, "adaptation", "base_takes_no_adapter"),
        (
            {"adaptation": "qlora"},
            {"adaptations": ("full",)},
            "adaptation",
            "base_takes_no_adapter",
        ),
        (
            {"target_modules": ["layers.0.mixer.in_proj", "out_proj"]},
            {},
            "target_modules",
            "base_has_other_layers",
        ),
    ],
)
def test_review2_f1_what_the_proof_of_a_base_rules_out_is_refused(
    asked: dict[str, Any], proof: dict[str, Any], param: str, code: str
) -> None:
    assert problems(asked, SMOL) == ()  # of a base that was not tried nothing is known
    (problem,) = problems(asked, replace(SMOL, proof=replace(PROOF, **proof)))
    assert (problem.param, problem.reason.code) == (param, code)


def test_review2_f1_rows_are_packed_where_the_base_keeps_documents_apart() -> None:
    for proof in (None, PROOF, replace(PROOF, packs=True)):
        base = replace(SMOL, proof=proof)
        hyper, _ = resolve({"packing": "auto"}, base, None, 1)
        assert hyper.packing is (proof is None or proof.packs)
        assert problems({"packing": "auto"}, base) == ()
        assert problems({"packing": False, "target_modules": ["q_proj"]}, base) == ()
