"""The trainings that are compared, and what is read from their events."""

from pathlib import Path

from msgspec.structs import replace

from bench.colocated import TRAININGS, adapters, peak_gb, specs_of, start_s
from tests.unit.bench.test_adaptation import SPEC
from tests.unit.tunery.work.samples import EVENTS
from tunery.plan.memory import CONTEXT_BYTES
from tunery.work.events import AnyWorkEvent, Finished, Started, StepCompleted

STARTED = next(event for event in EVENTS if isinstance(event, Started))
STEP = next(event for event in EVENTS if isinstance(event, StepCompleted))
FINISHED = next(event for event in EVENTS if isinstance(event, Finished))


def test_the_trainings_differ_in_seed_and_folder_alone(tmp_path: Path) -> None:
    specs = list(specs_of(SPEC, tmp_path).values())
    assert len(specs) == TRAININGS
    assert len({spec.hyper.seed for spec in specs}) == len({spec.out_dir for spec in specs}) == 4
    assert len({replace(spec.hyper, seed=0) for spec in specs}) == 1
    assert all(spec.hyper.dropout > 0 for spec in specs)  # else no random number is drawn


def test_figures_are_those_of_all_trainings_of_a_process() -> None:
    events: list[AnyWorkEvent] = [
        replace(STARTED, elapsed_ms=1_500),
        replace(STARTED, elapsed_ms=2_500),
        replace(STEP, memory_bytes=3_000_000_000),
        replace(STEP, memory_bytes=1_000_000_000),
        replace(FINISHED, adapter_sha256="b"),
        replace(FINISHED, adapter_sha256="a"),
    ]
    assert start_s(events) == 1.5
    assert peak_gb(events, on_gpu=False) == 3.0
    assert peak_gb(events, on_gpu=True) == 3.0 + CONTEXT_BYTES / 1e9
    assert adapters(events) == ["a", "b"]
