"""Proofs of a base: with its own weights, or with a small model in place of a large one."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from schemas.model import TemplateProof
from schemas.units import PPM
from tests.bases import Base
from tests.families import write_tiny
from tests.unit.tunery.data.tokens.test_base_variants import REASONS
from tunery.data.template_proof import prove_template
from tunery.data.tokens.base_variants import write_variant
from tunery.ml import base_proof
from tunery.ml.base_check import check
from tunery.ml.base_proof import ProofResult, prove

pytestmark = [
    pytest.mark.train,
    # peft 0.21 and trl 1.16 ask transformers 5 by names that are going away
    pytest.mark.filterwarnings("ignore:.*gradient_checkpointing:FutureWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),  # of layers that share their weights
]


TEMPLATE: Final = TemplateProof(streams=True, end_token="<|im_end|>", tools=False, reasoning=False)
Prove = Callable[[Path], ProofResult]


@pytest.fixture(name="proven")
def with_made_up_rows(
    tmp_path: Path,
    make_shard: Callable[..., Path],
    documents: Callable[[int, int], list[list[list[int]]]],
) -> Prove:
    shard, work = make_shard(documents(2, 3)), tmp_path / "work"
    work.mkdir()
    return lambda folder: prove(folder, shard, TEMPLATE, work)


def test_a_base_with_few_weights_is_proven_with_its_own(tiny: Base, proven: Prove) -> None:
    result = proven(tiny.dir)
    proof = result.proof
    assert proof is not None
    assert (result.problems, result.notes, proof.weights) == ((), (), "own")
    assert (proof.adaptations, proof.packs, proof.end_token) == (
        ("lora", "full"),
        True,
        "<|im_end|>",
    )
    assert {"q_proj", "down_proj", "lm_head"} <= {*proof.targets}
    assert "norm" not in proof.targets
    assert proof.lora_bytes <= proof.full_bytes
    # its two heads of keys and values are half as many as those of queries
    assert proof.kept_ppm == pytest.approx(0.79 * PPM, rel=0.05)


@pytest.mark.parametrize(
    ("family", "packs", "targets", "others", "kept"),
    [
        ("gpt_oss", True, {"q_proj", "experts.down_proj"}, {"down_proj"}, 0.83),  # no layers
        # a kernel of Mamba reads `out_proj`
        ("falcon_h1", False, {"q_proj", "in_proj"}, {"out_proj"}, 2.95),
    ],
)
def test_review2_f1_a_small_model_of_its_family_shows_what_a_large_base_can_do(
    family: str,
    packs: bool,
    targets: set[str],
    others: set[str],
    kept: float,
    proven: Prove,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(base_proof, "OWN_MAX", 0)
    result = proven(write_tiny(family, tmp_path / "base"))
    proof = result.proof
    assert proof is not None
    assert (result.problems, proof.weights) == ((), "random")
    assert (proof.packs, proof.adaptations) == (packs, ("lora", "full"))
    assert targets <= {*proof.targets}
    assert not others & {*proof.targets}
    assert proof.kept_ppm == pytest.approx(kept * PPM, rel=0.05)
    assert packs != any("packed documents see each other" in note for note in result.notes)


def test_bases_f7_a_base_without_a_template_trains_with_the_one_it_is_added_with(
    tiny: Base, tmp_path: Path
) -> None:
    plain = Path(shutil.copytree(tiny.dir, tmp_path / "plain"))
    (plain / "chat_template.jinja").unlink()
    assert [problem.name for problem in check(plain).problems] == ["template_missing"]
    folder = write_variant(plain, REASONS, ("<|im_end|>",))
    checked = check(folder)
    assert checked.problems == ()
    assert not any("no end token" in note for note in checked.notes)
    shown, work = prove_template(folder, tmp_path), tmp_path / "work"
    work.mkdir()
    result = prove(folder, shown.shard, shown.proof, work)
    proof = result.proof
    assert (result.problems, proof is not None) == ((), True)
    assert proof is not None
    assert (proof.adaptations, proof.end_token) == (("lora", "full"), "<|im_end|>")
    assert proof.reasoning


def test_a_base_that_trains_in_no_way_is_refused_with_the_reasons_of_the_libraries(
    tiny: Base, proven: Prove, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise ValueError("module is incompatible with this kind of model")

    monkeypatch.setattr(base_proof, "fine_tune", fail)
    result = proven(tiny.dir)
    (problem,) = result.problems
    assert problem.name == "does_not_train"
    assert "module is incompatible with this kind of model" in problem.text
    assert result.proof is not None
    assert (result.proof.adaptations, result.proof.targets) == ((), ())
