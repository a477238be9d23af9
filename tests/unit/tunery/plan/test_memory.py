"""Peak memory grows with whatever takes memory, and fits what was measured."""

from msgspec.structs import replace

from tests.unit.tunery.plan.samples import SMOL, tokens
from tunery.plan.hyperparameters import resolve
from tunery.plan.memory import memory_bytes


def test_memory_of_the_measured_run_is_estimated_near_its_resident_set() -> None:
    """2.2 GB were measured for 135 M parameters on two cores."""
    hyper, _ = resolve(None, SMOL, tokens(20_480), 1)
    assert 1_800_000_000 <= memory_bytes(SMOL, hyper, "cpu") <= 2_600_000_000


def test_memory_grows_with_rank_length_and_parameters() -> None:
    hyper, _ = resolve(None, SMOL, tokens(20_480), 1)
    least = memory_bytes(SMOL, hyper, "cuda")
    assert memory_bytes(SMOL, replace(hyper, rank=2 * hyper.rank), "cuda") > least
    assert memory_bytes(SMOL, replace(hyper, max_length=2 * hyper.max_length), "cuda") > least
    assert memory_bytes(replace(SMOL, parameters=2 * SMOL.parameters), hyper, "cuda") > least
