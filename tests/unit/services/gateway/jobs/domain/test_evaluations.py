"""Jobs that train nothing: what they take over of a training, and what not."""

from typing import Any

from msgspec.structs import replace

from schemas.benchmark import Benchmark
from schemas.gate import GatePolicy
from schemas.training import BlobFile
from schemas.units import PPM
from services.gateway.jobs.domain.evaluations import (
    evaluated,
    gate_run_spec,
    import_spec,
    settings_of,
)
from services.gateway.views.tables.jobs import JobRow
from simulator.control_plane.samples import PREPARED
from tests.unit.services.gateway.jobs.job_events import SPEC
from tests.unit.services.gateway.views.tables.test_models import ROW
from tunery.plan.estimate import estimate, without_rows

NAMES = ("adapter_model.safetensors", "adapter_config.json", "lineage.json", "model.sig")
FILES = tuple(BlobFile(name=name, blob=f"t/{name}", sha256="a" * 64, bytes=1) for name in NAMES)
VERSION = replace(ROW, files=FILES)
POLICY = GatePolicy()
EXAM = Benchmark(
    name="exam", task="own", kind="choices", sha256="e" * 64, blob="b", bytes=900, items=300
)


def job(**changes: Any) -> JobRow:
    """The job that a version is from."""
    fields: dict[str, Any] = {
        "tenant": "acme",
        "id": "ftjob-1",
        "sequence": 1,
        "command_id": "c",
        "created_at": 1,
        "spec": SPEC,
        "lane": "standard",
        "wanted": "run",
        "phase": "done",
        "prepared": PREPARED,
    }
    return JobRow(**{**fields, **changes})


def test_records_beside_a_version_are_not_evaluated() -> None:
    start = evaluated("ft:a", FILES)
    assert [file.name for file in start.files] == [*NAMES[:2]]
    assert start.sha256 == FILES[0].sha256


def test_a_further_run_is_on_the_same_rows_unless_the_base_model_has_changed() -> None:
    same = replace(SPEC.base, sha256=VERSION.lineage.base_sha256)
    spec = gate_run_spec(job(), VERSION, same, SPEC.price, (), POLICY)
    assert spec.evaluation is not None
    assert (spec.evaluation.imported, spec.evaluation.prepared) == (False, PREPARED)
    assert (spec.model_id, spec.training_file, spec.budget) == (VERSION.id, "", None)
    changed = gate_run_spec(job(), VERSION, replace(same, sha256="f" * 64), SPEC.price, (), POLICY)
    assert changed.evaluation is not None
    assert (changed.evaluation.prepared, changed.measured_rows) == (None, 0)


def test_a_further_run_asks_the_benchmarks_that_are_wanted_now() -> None:
    asked = gate_run_spec(job(), VERSION, SPEC.base, SPEC.price, (EXAM,), POLICY)
    assert (asked.benchmarks, asked.benchmark_items) == ((EXAM,), 1_000)
    few = replace(SPEC, benchmarks=(EXAM,), benchmark_items=300)
    again = gate_run_spec(job(spec=few), VERSION, SPEC.base, SPEC.price, (EXAM,), POLICY)
    assert again.benchmark_items == 300
    none = gate_run_spec(job(spec=few), VERSION, SPEC.base, SPEC.price, (), POLICY)
    assert (none.benchmarks, none.benchmark_items) == ((), 0)


def test_a_further_run_plans_its_looks_by_the_policy_of_now() -> None:
    spec = replace(SPEC, benchmarks=(EXAM,), benchmark_items=4_000)
    large = replace(EXAM, items=5_000)
    for policy, looks in (
        (POLICY, POLICY.looks_ppm),
        (replace(POLICY, looks_ppm=(600_000, PPM)), (600_000, PPM)),
        (replace(POLICY, looks_ppm=(PPM,)), ()),
    ):
        again = gate_run_spec(job(spec=spec), VERSION, SPEC.base, SPEC.price, (large,), policy)
        assert again.looks_ppm == looks
    prompts = replace(large, kind="safety")
    at_once = gate_run_spec(job(spec=spec), VERSION, SPEC.base, SPEC.price, (prompts,), POLICY)
    assert at_once.looks_ppm == ()


def test_no_training_is_held_for_an_evaluation() -> None:
    spec = import_spec(SPEC, FILES)
    needs = estimate(spec, without_rows(spec.base))
    assert (needs.train_gpu_ms, needs.steps, needs.tokens) == (0, 0, 0)
    assert 0 < needs.eval_gpu_ms < needs.hold_gpu_ms
    assert spec.start is not None
    assert spec.start.model_id == spec.model_id


def test_settings_are_those_of_a_request() -> None:
    config = {"r": 4, "lora_alpha": 8, "target_modules": ["q_proj"], "use_dora": True}
    known = {"rank": 4, "alpha": 8, "target_modules": ["q_proj"], "dora": True}
    assert settings_of({**config, "modules_to_save": None, "rank_pattern": {}}) == known
