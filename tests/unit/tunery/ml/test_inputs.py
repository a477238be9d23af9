"""Spec files: defaults, ranges, and what is wrong with one."""

import json
from pathlib import Path
from typing import Any

import pytest

from tunery.ml.inputs import COLOCATED_MAX, read_score_spec, read_training
from tunery.work.exits import WorkError
from tunery.work.spec import ColocatedSpec, TrainSpec

SPEC: dict[str, Any] = {
    "base_dir": "base",
    "base_id": "tiny",
    "base_sha256": "0" * 64,
    "train_shards": ["train.safetensors"],
    "out_dir": "out",
}
HYPER: dict[str, Any] = {
    "n_epochs": 3,
    "batch_size": 1,
    "learning_rate": 1e-4,
    "rank": 8,
    "alpha": 16,
    "dropout": 0.05,
    "max_length": 512,
    "warmup": 0.05,
    "weight_decay": 0.0,
    "seed": 42,
}


def written(tmp_path: Path, **changes: Any) -> Path:
    path = tmp_path / "spec.json"
    hyper = HYPER | changes.pop("hyper", {})
    path.write_text(json.dumps(SPEC | {"hyper": hyper} | changes), encoding="utf-8")
    return path


def test_a_short_spec_gets_defaults(tmp_path: Path) -> None:
    spec = read_training(written(tmp_path))
    assert isinstance(spec, TrainSpec)
    assert (spec.hyper.rank, spec.hyper.accumulation, spec.precision) == (8, 1, "auto")
    assert (spec.resume, spec.keep_checkpoints) == ((), 3)
    whole = {"adaptation": "full", "rank": 0, "alpha": 0}
    full = read_training(written(tmp_path, hyper=whole))
    assert isinstance(full, TrainSpec)
    assert full.hyper.rank == 0


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"hyper": {"learning_rate": 5}}, "hyper.learning_rate is 5"),
        ({"hyper": {"rank": 0}}, "hyper.rank is 0"),
        ({"hyper": {"n_epochs": 51}}, "hyper.n_epochs is 51"),
        ({"hyper": {"max_length": 63}}, "hyper.max_length is 63"),
        ({"hyper": {"n_epochs": None}}, "hyper.n_epochs"),
        ({"hyper": {"rnak": 8}}, "rnak"),
        ({"precision": "fp4"}, "precision"),
        ({"train_shards": []}, "train_shards is empty"),
        ({"keep_checkpoints": 1}, "keep_checkpoints is below 2"),
        ({"checkpoint_every_ms": 0}, "checkpoint_every_ms is below 1"),
        ({"checkpoint_share": -0.1}, "checkpoint_share is below 0"),
        ({"base_dir": None}, "base_dir"),
        ({"ranks": 0}, "ranks is 0"),
        ({"ranks": 4, "hyper": {"accumulation": 2}}, "ranks is 4, and a step has 2 micro-batches"),
        ({"ranks": 65, "hyper": {"accumulation": 64}}, "ranks is 65"),
        ({"ranks": 2, "hyper": {"accumulation": 2}, "score_socket": "/s"}, "asked for scores"),
        ({"ranks": 2, "devices": ["a"], "hyper": {"accumulation": 2}}, "devices names 1"),
        ({"ranks": 2, "devices": ["a", "a"], "hyper": {"accumulation": 2}}, "devices names 1"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, changes: dict[str, Any], named: str) -> None:
    with pytest.raises(WorkError) as caught:
        read_training(written(tmp_path, **changes))
    assert named in caught.value.message
    assert caught.value.cause == "user"
    assert caught.value.advice


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(WorkError, match=r"nowhere\.json"):
        read_training(tmp_path / "nowhere.json")


def test_a_spec_that_is_wrong_is_named(tmp_path: Path) -> None:

    path = tmp_path / "spec.json"
    path.write_text('{"base_dir": 3}')
    with pytest.raises(WorkError, match=r"spec.json: Expected `str`, got `int`") as caught:
        read_score_spec(path)
    assert caught.value.cause == "user"


def several(tmp_path: Path, **trainings: dict[str, Any]) -> Path:
    path = tmp_path / "spec.json"
    specs = {
        name: SPEC | {"out_dir": name} | changes | {"hyper": HYPER | changes.get("hyper", {})}
        for name, changes in trainings.items()
    }
    path.write_text(json.dumps({"trainings": specs}), encoding="utf-8")
    return path


def test_several_trainings_may_differ_in_what_they_learn(tmp_path: Path) -> None:
    path = several(tmp_path, a={}, b={"hyper": {"rank": 4, "seed": 1}, "train_shards": ["other"]})
    spec = read_training(path)
    assert isinstance(spec, ColocatedSpec)
    assert [each.hyper.rank for each in spec.trainings.values()] == [8, 4]


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"hyper": {"rank": 0}}, "trainings.b: hyper.rank is 0"),
        ({"base_sha256": "1" * 64}, "trainings.b: base_sha256 is not that of trainings.a"),
        ({"precision": "bf16"}, "trainings.b: precision is not that of trainings.a"),
        ({"threads": 2}, "trainings.b: threads is not that of trainings.a"),
        ({"hyper": {"adaptation": "qlora"}}, "trainings.b: its adaptation is 'qlora'"),
        ({"hyper": {"accumulation": 2}, "ranks": 2}, "trainings.b: its adaptation is 'lora', its"),
        ({"engine": {"name": "fsdp2"}}, "trainings.b: its engine is 'fsdp2'"),
        ({"out_dir": "x/../a"}, "trainings.b: out_dir is that of trainings.a"),
        ({"unknown": 1}, "unknown"),
    ],
)
def test_trainings_that_cannot_share_a_base_are_named(
    tmp_path: Path, changes: dict[str, Any], named: str
) -> None:
    with pytest.raises(WorkError) as caught:
        read_training(several(tmp_path, a={}, b=changes))
    assert named in caught.value.message
    assert (caught.value.cause, bool(caught.value.advice)) == ("user", True)


@pytest.mark.parametrize("count", [0, COLOCATED_MAX + 1])
def test_a_process_has_so_many_trainings_at_most(tmp_path: Path, count: int) -> None:
    path = several(tmp_path, **{f"t{number}": {} for number in range(count)})
    with pytest.raises(WorkError, match=f"trainings has {count} entries"):
        read_training(path)
