"""Jobs that train nothing: the gate judges an adapter of elsewhere, or a version again. Pure."""

from typing import Any, Final

from msgspec.structs import replace

from schemas.benchmark import Benchmark
from schemas.gate import GatePolicy
from schemas.model import Base
from schemas.session import SavedIn
from schemas.submission import EvaluationTerms, JobSpec, Price
from schemas.training import AdapterStart, BlobFile
from services.gateway.jobs.domain.requested import SETTINGS
from services.gateway.jobs.domain.resolve import looks_of
from services.gateway.jobs.domain.starts import WEIGHTS
from services.gateway.views.tables.jobs import JobRow
from services.gateway.views.tables.models import ModelRow
from tunery.provenance.statements import PROVENANCE_FILES
from tunery.work.artifact import LINEAGE

RECORDS: Final = frozenset((LINEAGE, *PROVENANCE_FILES))  # next to the files of a version


def evaluated(name: str, files: tuple[BlobFile, ...]) -> AdapterStart:
    """All files of a version or an adapter of which it consists."""
    own = tuple(file for file in files if file.name not in RECORDS)
    (sha256,) = (file.sha256 for file in own if file.name in WEIGHTS)
    return AdapterStart(model_id=name, sha256=sha256, files=own)


def import_spec(
    spec: JobSpec, files: tuple[BlobFile, ...], saved_in: SavedIn | None = None
) -> JobSpec:
    """The job that evaluates an adapter of elsewhere, or of a session, which then is a version.

    spec: spec of a training with the settings of the adapter, on its rows if it names a file.
    """
    return replace(
        spec,
        auto=(),
        configuration="",
        start=evaluated(spec.model_id, files),
        evaluation=EvaluationTerms(imported=True, saved_in=saved_in),
    )


def gate_run_spec(
    trained: JobRow,
    version: ModelRow,
    base: Base,
    price: Price,
    benchmarks: tuple[Benchmark, ...],
    policy: GatePolicy,
) -> JobSpec:
    """The job that evaluates a version again, on the rows that its training had held back.

    trained: the job that it is from. base: as its files are now; with others than those that it was
    trained on its rows are left out, for they may be other tokens. benchmarks, policy: that are
    wanted now.
    """
    same = base.sha256 == version.lineage.base_sha256
    spec = trained.spec
    constraints = spec.constraints
    usual = SETTINGS["benchmark_items"].recorded(SETTINGS["benchmark_items"].default)
    items = (spec.benchmark_items or usual) if benchmarks else 0
    return replace(
        spec,
        base=base,
        training_file="",
        validation_file=None,
        mixture=(),
        auto=(),
        price=price,
        budget=None,
        constraints=None if constraints is None else replace(constraints, finish_by=None),
        ignored=(),
        metadata=None,
        configuration="",
        duplicate_of=None,
        same_rows=False,
        sweep_id=None,
        model_id=version.id,
        measures=spec.measures if same else None,
        measured_rows=spec.measured_rows if same else 0,
        benchmarks=benchmarks,
        benchmark_items=items,
        looks_ppm=looks_of(benchmarks, items, policy),
        start=evaluated(version.id, version.files),
        evaluation=EvaluationTerms(imported=False, prepared=trained.prepared if same else None),
    )


def settings_of(config: dict[str, Any]) -> dict[str, Any]:
    """Return the settings of an adapter by the names of a request's group `lora`."""
    named = {
        "rank": config.get("r"),
        "alpha": config.get("lora_alpha"),
        "target_modules": config.get("target_modules"),
        "modules_to_save": config.get("modules_to_save") or None,
        "rank_pattern": config.get("rank_pattern") or None,
        "alpha_pattern": config.get("alpha_pattern") or None,
        "rslora": config.get("use_rslora") or None,
        "dora": config.get("use_dora") or None,
    }
    return {name: value for name, value in named.items() if value is not None}
