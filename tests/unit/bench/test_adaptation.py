"""The settings that are measured, and what becomes of the measurements."""

from bench.adaptation import SETTINGS, figures_of, of_setting
from tests.unit.tunery.work.samples import HYPER
from tunery.work.spec import TrainSpec

SPEC = TrainSpec(
    base_dir="base",
    base_id="tiny",
    base_sha256="0" * 64,
    train_shards=("train.safetensors",),
    out_dir="out",
    hyper=HYPER,
)


def test_every_setting_is_a_training_of_its_own() -> None:
    runs = [of_setting(SPEC, name, 3) for name in SETTINGS]
    assert len({run.out_dir for run in runs}) == len(runs)
    assert all(run.hyper.max_steps == 3 and run.hyper != HYPER for run in runs)
    assert {run.hyper.adaptation for run in runs} == {"full", "lora", "qlora"}
    assert {run.precision for run in runs} == {"fp32", "bf16"}


def test_tokens_are_those_of_a_second_of_the_processor() -> None:
    figures = figures_of("x", 20.0, 5_000, 1_500_000_000)
    assert figures == {"x_tokens_cpu_s": 250.0, "x_peak_mb": 1500}
