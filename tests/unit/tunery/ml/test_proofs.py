"""Proofs of a node are not repeated, as long as their inputs are the same."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.unit.tunery.ml.runs import a_run
from tests.unit.tunery.ml.trainings import HYPER, STEPS, figures, go, of, resumed
from tunery.ml.proofs import KEPT_MAX, Proofs
from tunery.ml.training_run import TrainingRun
from tunery.work.spec import Hyper, TrainSpec

pytestmark = [
    pytest.mark.train,
    pytest.mark.filterwarnings("ignore:.*gradient_checkpointing:FutureWarning"),
]
SIZE = {"tokens": 100, "labels": 50, "answers": 0}
NEEDED = 1_000


def a_proving_run(folder: Path, hyper: Hyper = HYPER, **environment: str) -> TrainingRun:
    run = a_run(folder / "out", hyper)
    run.fingerprint = {"base": "0" * 64, "precision": "fp32", "data": "of a tenant"}
    run.environment = {"threads": "1", "torch": "2", **environment}
    run.spec = msgspec.structs.replace(run.spec, proof_dir=str(folder / "proofs"))
    return run


def tries(run: TrainingRun, size: dict[str, int] = SIZE, free: int = 10 * NEEDED) -> bool:
    return Proofs(run).of_longest_rows(size, lambda: NEEDED, lambda: free)


def test_a_step_is_taken_once(tmp_path: Path) -> None:
    assert tries(a_proving_run(tmp_path))
    assert not tries(a_proving_run(tmp_path))
    assert not tries(a_proving_run(tmp_path), {**SIZE, "tokens": 99, "labels": 49})


@pytest.mark.parametrize("name", SIZE)
def test_larger_rows_are_tried_and_then_known(name: str, tmp_path: Path) -> None:
    larger = {**SIZE, name: SIZE[name] + 1}
    tries(a_proving_run(tmp_path))
    assert tries(a_proving_run(tmp_path), larger)
    assert not tries(a_proving_run(tmp_path), larger)


def test_with_less_free_memory_it_is_tried_again(tmp_path: Path) -> None:
    tries(a_proving_run(tmp_path))
    assert not tries(a_proving_run(tmp_path), free=NEEDED + 100)
    assert tries(a_proving_run(tmp_path), free=NEEDED + 99)


@pytest.mark.parametrize(
    ("changed", "environment", "again"),
    [
        ({"rank": 8}, {}, True),
        ({"recompute": True}, {}, True),
        ({"method": "orpo"}, {}, True),
        ({"seed": 1, "learning_rate": 0.5, "n_epochs": 3}, {}, False),
        ({}, {"torch": "3"}, True),
        ({}, {"micro_batch": "2"}, True),
    ],
)
def test_other_settings_are_tried_where_they_matter(
    changed: dict[str, Any], environment: dict[str, str], again: bool, tmp_path: Path
) -> None:
    tries(a_proving_run(tmp_path))
    hyper = msgspec.structs.replace(HYPER, **changed)
    assert tries(a_proving_run(tmp_path, hyper, **environment)) is again


def test_a_step_that_did_not_fit_is_no_proof(tmp_path: Path) -> None:
    def fail() -> int:
        raise MemoryError

    with pytest.raises(MemoryError):
        Proofs(a_proving_run(tmp_path)).of_longest_rows(SIZE, fail, lambda: 10 * NEEDED)
    assert tries(a_proving_run(tmp_path))


@pytest.mark.parametrize("content", [b"", b'{"tokens": 1', b"[]", b'{"tokens": "x"}', b"{}"])
def test_a_file_that_is_torn_or_of_another_form_is_no_proof(content: bytes, tmp_path: Path) -> None:
    """A process that is killed leaves a whole file, or none; a power cut may leave an empty one."""
    tries(a_proving_run(tmp_path))
    (file,) = (tmp_path / "proofs").iterdir()
    assert b"tenant" not in file.read_bytes()
    file.write_bytes(content)
    assert tries(a_proving_run(tmp_path))
    assert not tries(a_proving_run(tmp_path)), "it is whole again"


def test_packing_is_proved_once_for_a_base(tmp_path: Path) -> None:
    assert Proofs(a_proving_run(tmp_path)).of_packing(lambda: 0.25) == 0.25
    assert Proofs(a_proving_run(tmp_path)).of_packing(lambda: 0.5) is None
    other = a_proving_run(tmp_path, torch="3")
    assert Proofs(other).of_packing(lambda: None) is None, "there was one document only"
    assert Proofs(other).of_packing(lambda: 0.5) == 0.5, "which proved nothing"


def test_without_a_folder_and_without_packing(tmp_path: Path) -> None:
    run = a_proving_run(tmp_path)
    run.spec = msgspec.structs.replace(run.spec, proof_dir=None)
    assert tries(run)
    assert tries(run)
    alone = a_proving_run(tmp_path, msgspec.structs.replace(HYPER, packing=False))
    assert Proofs(alone).of_packing(lambda: 0.5) is None


def test_the_oldest_files_go(tmp_path: Path) -> None:
    (folder := tmp_path / "proofs").mkdir()
    for number in range(KEPT_MAX):
        (folder / str(number)).write_bytes(b"")
    tries(a_proving_run(tmp_path))
    assert len(list(folder.iterdir())) == KEPT_MAX
    assert not tries(a_proving_run(tmp_path))


def test_training_a_start_with_proofs_trains_the_same_bytes(
    spec: TrainSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tunery.ml import fine_tuning, loop

    monkeypatch.setattr(fine_tuning, "TRIED_FROM_STEPS", STEPS)
    proving = msgspec.structs.replace(spec, proof_dir=str(tmp_path / "proofs"))
    _, first = go(proving)
    assert first[0]["packing_difference_nats"] < 1e-5
    monkeypatch.setattr(
        loop.TrainingLoop, "try_longest_rows", lambda self: pytest.fail("tried again")
    )
    _, again = go(resumed(proving, out="again"))
    assert again[0]["packing_difference_nats"] is None
    assert again[-1]["adapter_sha256"] == first[-1]["adapter_sha256"]
    assert figures(of(again, "step")) == figures(of(first, "step"))
