"""Rules of ingest and registry, one broken at a time. Each must be caught by the second books."""

from typing import Any, Final

from immutables import Map
from msgspec.structs import replace

from schemas.dataset import KeepDataset, RecordValidation, ReleaseDataset
from schemas.deployments import CountTraffic
from schemas.job import RecordFile, RecordRegistered
from services.ingest import project as file_rows
from services.ingest.domain import decide as files
from services.ingest.domain import expiry, quotas, uploads
from services.ingest.domain.state import TenantDatasets
from services.ingest.react import react_dataset
from services.registry.domain import decide as models
from services.registry.domain import deployments, lifetime, trust
from services.registry.domain.state import TenantModels, former_of, missing_approvals
from services.registry.react import react_model
from simulator.artifacts import hosts
from simulator.event_core.mutants import Mutant

_record_check, _work_id = files._record_validation, files.work_id
_delete_file, _rows_of_deleted = files._delete, file_rows._deleted
_pin, _react, _tell = files._pin, react_model, react_dataset
_promote = models._promote
_following, _count, _share = deployments._following, deployments.count_traffic, models._share
_approve, _publication = trust._approve, models._record_publication
_pin_base, _judge, _quarantine = models._pin_base, models._record_gate_run, models._set_quarantine
_register_file = files._register
_register, _restore = models._register, lifetime._restore
_remove_benchmark, _remove = models._remove_benchmark, lifetime._delete
_end_upload, _complete = uploads.end_upload, uploads._complete


def _without_pins(datasets: TenantDatasets, *command: Any) -> Any:
    """Files go although jobs and models need them."""
    return _delete_file(replace(datasets, pins=Map(), kept=Map()), *command)


def _checked_again(datasets: TenantDatasets, command: RecordValidation, ctx: Any) -> Any:
    """Count each result of a check, not only the first."""
    file = datasets.files.get(command.file_id)
    if file is None:
        return ()
    pending = datasets.files.set(command.file_id, replace(file, status="pending"))
    return _record_check(replace(datasets, files=pending), command, ctx)


def _without_spec(tenant: str, sources: Any, spec: Any, *_: Any) -> str:
    """Give preparations that differ only in their maximum length the same id."""
    return _work_id(tenant, sources, replace(spec, max_length=512))


def _prepared_again(datasets: TenantDatasets, *command: Any) -> Any:
    return _pin(replace(datasets, preparations=Map()), *command)


def _rows_only(header: Any, event: Any) -> Any:
    """Bytes of deleted files stay."""
    return _rows_of_deleted(header, replace(event, erase=()))


def _no_events(*_: Any) -> tuple[()]:
    return ()


def _none(*_: Any) -> None:
    return None


def _never(*_: Any) -> bool:
    return False


def _first(*_: Any) -> int:
    return 1


def _zero(*_: Any) -> int:
    return 0


def _no_files(*_: Any) -> set[str]:
    return set()


def _not_kept(header: Any, event: Any) -> Any:
    return tuple(s for s in _react(header, event) if not isinstance(s.body, KeepDataset))


def _not_released(header: Any, event: Any) -> Any:
    return tuple(s for s in _react(header, event) if not isinstance(s.body, ReleaseDataset))


def _without_versions(header: Any, event: Any) -> Any:
    """Jobs do not hear what became of their versions."""
    return tuple(s for s in _react(header, event) if not isinstance(s.body, RecordRegistered))


def _without_checks(header: Any, event: Any) -> Any:
    """Jobs do not get the results of the checks of their files."""
    return tuple(s for s in _tell(header, event) if not isinstance(s.body, RecordFile))


def _from_quarantine(state: Any, tenant: TenantModels, command: Any) -> Any:
    return _promote(state, _all_with(tenant, quarantined=False), command)


def _all_with(tenant: TenantModels, **changes: Any) -> TenantModels:
    changed = {name: replace(version, **changes) for name, version in tenant.versions.items()}
    return replace(tenant, versions=Map(changed))


def _unpublished_too(tenant: TenantModels, run: Any) -> Any:
    return _judge(_all_with(tenant, published=True), run)


def _taken_too(tenant: TenantModels, command: Any) -> Any:
    """A version takes the name of another one."""
    return _register(replace(tenant, versions=Map()), command)


def _in_policies_too(state: Any, *command: Any) -> Any:
    """Benchmarks go although policies name them."""
    return _remove_benchmark(replace(state, tenants=Map()), *command)


def _holders_too(tenant: TenantModels, decision: Any) -> Any:
    """Versions that hold a stage go into quarantine."""
    return _quarantine(_all_with(tenant, stage="dev"), decision)


def _without_files(tenant: TenantModels, model_id: str) -> Any:
    events = _restore(tenant, model_id)
    return tuple(replace(event, files=()) if hasattr(event, "files") else event for event in events)


def _by_author(tenant: TenantModels, command: Any) -> Any:
    """The author's own approval counts."""
    version = tenant.versions.get(command.model_id)
    if version is None:
        return _approve(tenant, command)
    another = replace(version, terms=replace(version.terms, author=None))
    return _approve(replace(tenant, versions=Map({command.model_id: another})), command)


def _of_any_stage(tenant: TenantModels, version: Any, stage: Any) -> int:
    """Approvals of a version count for each stage."""
    approvals = frozenset(replace(approval, stage=stage) for approval in version.approvals)
    return missing_approvals(tenant, replace(version, approvals=tuple(approvals)), stage)


def _quarantined_too(tenant: TenantModels, series: str, stage: Any) -> str | None:
    """Roll back to versions in quarantine."""
    return former_of(_all_with(tenant, quarantined=False), series, stage)


def _from_other_stages(tenant: TenantModels, series: str, stage: Any) -> str | None:
    """Roll back to versions that hold a stage."""
    return former_of(_all_with(tenant, stage="dev"), series, stage)


def _ids_again(datasets: TenantDatasets, *command: Any) -> Any:
    """Files take the ids of others."""
    return _register_file(replace(datasets, files=Map()), *command)


def _other_callers(known: Any, wanted: Any) -> Any:
    """Callers change sides when shares change."""
    return replace(_following(known, wanted), salt=wanted.salt)


def _of_any_phase(tenant: TenantModels, command: CountTraffic) -> Any:
    active = tenant.deployments.get(f"{command.stage}/{command.series}")
    phase = command.phase if active is None else active.deployment.phase
    return _count(tenant, replace(command, phase=phase))


def _free(tenant: TenantModels, command: Any) -> Any:
    """Publish versions that the gate blocked without quarantining them."""
    events = _publication(tenant, command)
    return tuple(
        replace(event, quarantined=False) if hasattr(event, "quarantined") else event
        for event in events
    )


def _other_bytes(state: Any, command: Any) -> Any:
    """Jobs get a base model whose bytes they were not submitted with."""
    base = state.bases.get(command.base_id)
    return _pin_base(state, command if base is None else replace(command, base_sha256=base.sha256))


def _always(*_: Any) -> bool:
    return True


def _twice_as_late(at: int, after_ms: int | None) -> int | None:
    return None if after_ms is None else at + 2 * after_ms


def _released(tenant: TenantModels, run: Any) -> Any:
    """The newest verdict releases what a person keeps in quarantine."""
    return _judge(_all_with(tenant, held_back=False), run)


def _kept_too(tenant: TenantModels, *command: Any) -> Any:
    """Versions go although open jobs begin with them."""
    return _remove(replace(tenant, kept=Map()), *command)


def _used_parts_only(*upload: Any) -> Any:
    """Parts that are not in the file stay."""
    _, _, _, used, *_ = (*upload, ())
    return replace(_end_upload(*upload), parts=used)


def _named_twice(datasets: Any, upload: Any, command: Any, ctx: Any) -> Any:
    """A file may have a part twice."""
    sizes, names = dict(upload.parts), list[str]()
    for name in command.parts:
        again = f"{name} again" if name in names else name
        names.append(again)
        if name in sizes:
            sizes[again] = sizes[name]
    return _complete(
        datasets, replace(upload, parts=Map(sizes)), replace(command, parts=tuple(names)), ctx
    )


def _files_only(datasets: TenantDatasets) -> int:
    """Do not count the declared bytes of pending uploads."""
    return datasets.stored_bytes


def _given_again(tenant: TenantModels, command: Any) -> Any:
    return _share(replace(tenant, shared=Map()), command)


MUTANTS: Final = (
    Mutant("files go while they are used", files, "_delete", _without_pins, "in use", seed=4),
    Mutant("used files expire", expiry, "_needed", _no_files, "in use", seed=4),
    Mutant("each check counts", files, "_record_validation", _checked_again, "check", seed=4),
    Mutant("versions have one number", files, "next_version", _first, "version", seed=2),
    Mutant("lengths are alike", files, "work_id", _without_spec, "pin", seed=3),
    Mutant("equal work is done again", files, "_pin", _prepared_again, "preparation", seed=17),
    Mutant("nothing expires", files, "due", _no_events, "expiry"),
    Mutant("named objects go", files, "needed_blobs", _no_files, "bytes"),
    Mutant("bytes of deleted files stay", file_rows, "_deleted", _rows_only, "bytes"),
    Mutant("erased tenants store", files, "is_late", _never, "refusal", seed=2),
    Mutant("jobs hear of no checks", hosts, "react_dataset", _without_checks, "reactions"),
    Mutant("models keep no files", hosts, "react_model", _not_kept, "lineage", seed=3),
    Mutant("quarantine does not bind", models, "_promote", _from_quarantine, "quarantine", seed=4),
    Mutant("no approvals", trust, "missing_approvals", _zero, "approval", seed=13),
    Mutant(
        "approvals of any stage", trust, "missing_approvals", _of_any_stage, "approval", seed=37
    ),
    Mutant("quarantined take over", models, "former_of", _quarantined_too, "rollback", seed=111),
    Mutant("holders change stages", models, "former_of", _from_other_stages, "rollback", seed=39),
    Mutant("ids of files are taken", files, "_register", _ids_again, "refusal", seed=8),
    Mutant("authors approve", trust, "_approve", _by_author, "refusal", seed=24),
    Mutant("stale versions hold stages", trust, "refuse_stale", _no_events, "stale", seed=13),
    Mutant("callers change sides", deployments, "_following", _other_callers, "deployment", seed=7),
    Mutant("callers count again", deployments, "_is_seen", _never, "traffic", seed=20),
    Mutant("former shares count", models, "count_traffic", _of_any_phase, "traffic", seed=28),
    Mutant(
        "shares of versions that go", lifetime, "refuse_deployed", _no_events, "in use", seed=303
    ),
    Mutant("no days of grace", lifetime, "GRACE_MS", 0, "lifetime", seed=6),
    Mutant("blocked versions are free", models, "_record_publication", _free, "quarantine", seed=6),
    Mutant("unchecked files are prepared", files, "_all_accepted", _always, "preparation", seed=2),
    Mutant("files expire late", files, "expires_at", _twice_as_late, "expiry", seed=2),
    Mutant("jobs get other bytes", models, "_pin_base", _other_bytes, "base", seed=2),
    Mutant("permissions are given again", models, "_share", _given_again, "permission", seed=25),
    Mutant("any number of uploads", uploads, "check_upload", _none, "refusal", seed=23),
    Mutant("caches of deleted files stay", files, "orphaned_preparations", _no_events, "bytes"),
    Mutant("jobs hear of no versions", hosts, "react_model", _without_versions, "progress", seed=3),
    Mutant("models keep files for ever", hosts, "react_model", _not_released, "lineage", seed=3),
    Mutant("deleted versions stay", lifetime, "_due", _no_events, "lifetime", seed=6),
    Mutant("restored without files", lifetime, "_restore", _without_files, "lifetime", seed=57),
    Mutant("shares above the whole", deployments, "_refuse_shares", _no_events, "refusal", seed=39),
    Mutant("any version answers", deployments, "_refuse_versions", _no_events, "refusal", seed=30),
    Mutant("stages of others are taken", models, "_conflict", _no_events, "refusal", seed=32),
    Mutant(
        "unpublished are judged", models, "_record_gate_run", _unpublished_too, "verdict", seed=37
    ),
    Mutant("names are taken", models, "_register", _taken_too, "publication", seed=46),
    Mutant("parents of versions go", lifetime, "descendant_of", _none, "in use", seed=82),
    Mutant(
        "benchmarks of policies go",
        models,
        "_remove_benchmark",
        _in_policies_too,
        "refusal",
        seed=86,
    ),
    Mutant("holders are quarantined", models, "_set_quarantine", _holders_too, "refusal", seed=37),
    Mutant("verdicts release", models, "_record_gate_run", _released, "quarantine", seed=4),
    Mutant("kept versions go", lifetime, "_delete", _kept_too, "in use", seed=208),
    Mutant("unused parts stay", uploads, "end_upload", _used_parts_only, "upload"),
    Mutant("parts are named twice", uploads, "_complete", _named_twice, "refusal", seed=8),
    Mutant("uploads of any size", uploads, "check_bytes", _none, "refusal", seed=21),
    Mutant("files of any size", files, "check_bytes", _none, "refusal", seed=4),
    Mutant("pending uploads are free", quotas, "used_bytes", _files_only, "refusal", seed=4),
    Mutant(
        "deployed versions are archived", models, "refuse_deployed", _no_events, "refusal", seed=39
    ),
)
