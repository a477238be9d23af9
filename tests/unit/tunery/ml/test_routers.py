"""The loss of a mixture's routers is that of TRL, for every method and on every device."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
import torch

from tests.families import write_tiny
from tests.unit.tunery.ml.trainings import go, of, on
from tests.unit.tunery.ml.trl_trainers import losses_of, sft_trainer, trl_trainer
from tunery.ml import loop
from tunery.ml.kernels import kernels_of
from tunery.ml.packed import read_rows
from tunery.work.exits import ExitCode, WorkError
from tunery.work.spec import TrainSpec

pytestmark = [
    pytest.mark.train,
    # peft 0.21 and trl 1.16 ask transformers 5 by names that are going away
    pytest.mark.filterwarnings("ignore:.*gradient_checkpointing:FutureWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),  # of a family about its own kernels
    # peft names experts of a mixture that transformers 5 has in one tensor
    pytest.mark.filterwarnings("ignore:The following .*_pattern keys:RuntimeWarning"),
]


def mixture(folder: Path) -> Path:
    """A mixture of experts whose configuration weighs its routers heavily."""
    return write_tiny("qwen3_moe", folder, router_aux_loss_coef=0.5)


@pytest.mark.parametrize("adaptation", ["lora", "full"])
def test_review2_f4_losses_of_a_mixture_are_those_of_trl(
    spec: TrainSpec,
    tmp_path: Path,
    make_shard: Callable[..., Path],
    documents: Callable[[int, int], list[list[list[int]]]],
    adaptation: str,
) -> None:
    shard = str(make_shard(documents(4, 1), "single"))
    spec = on(
        msgspec.structs.replace(spec, train_shards=(shard,)),
        mixture(tmp_path / "base"),
        adaptation=adaptation,
        max_steps=0,
    )
    rows = [read_rows(spec.train_shards, vocabulary=100_000).batch([at]) for at in range(4)]
    data = [{key: row[key][0].tolist() for key in ("input_ids", "labels")} for row in rows]
    _, events = go(spec)
    losses = [event["loss"] for event in of(events, "step")]
    hyper = msgspec.structs.replace(spec.hyper, router_aux_loss=0.0)
    _, plain = go(msgspec.structs.replace(spec, hyper=hyper, out_dir=str(tmp_path / "plain")))
    assert losses[0] - of(plain, "step")[0]["loss"] == pytest.approx(0.5 * 2, abs=0.1)
    assert losses == pytest.approx(losses_of(sft_trainer(spec, data, tmp_path / "trl")), abs=1e-4)


@pytest.mark.parametrize("recompute", [False, True])
def test_review2_f4_the_fused_head_and_micro_batches_have_the_same_loss_of_routers(
    spec: TrainSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, recompute: bool
) -> None:
    """What an accelerator computes, and what fits into less memory."""
    ours = on(spec, mixture(tmp_path / "base"), router_aux_loss=0.5, recompute=recompute)
    _, whole = go(ours)
    fused = replace(kernels_of(torch.device("cpu")), fused_head=True)
    monkeypatch.setattr(loop, "kernels_of", lambda _: fused)
    _, events = go(msgspec.structs.replace(ours, out_dir=str(tmp_path / "fused")))
    steps = [
        [value for event in of(each, "step") for value in (event["loss"], event["grad_norm"])]
        for each in (whole, events)
    ]
    assert steps[0] == pytest.approx(steps[1], abs=1e-4)


def test_review2_f4_preferences_of_a_mixture_are_those_of_trl(
    pairs_spec: TrainSpec, tmp_path: Path
) -> None:
    spec = pairs_spec
    hyper = {"method": "dpo", "beta": 0.1, "router_aux_loss": 0.5, "max_steps": 0}
    spec = on(spec, mixture(tmp_path / "base"), **hyper)
    rows = read_rows(spec.train_shards, vocabulary=100_000)
    _, events = go(spec)
    losses = [event["loss"] for event in of(events, "step")][:4]
    trl = losses_of(trl_trainer(spec, rows, tmp_path / "trl", steps=4))
    assert losses == pytest.approx(trl, abs=1e-3)


def test_review2_f5_a_hybrid_without_experts_trains_and_takes_no_loss_of_routers(
    spec: TrainSpec, tmp_path: Path
) -> None:
    folder = write_tiny("granitemoehybrid", tmp_path / "base", num_local_experts=0)
    code, events = go(on(spec, folder, packing=False))
    assert (code, len(of(events, "step"))) == (ExitCode.FINISHED, 2)
    with pytest.raises(WorkError, match="no mixture of experts") as caught:
        go(on(spec, folder, packing=False, router_aux_loss=0.1))
    assert "router_aux_loss_coef to 0" in caught.value.advice
