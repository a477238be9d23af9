"""Fold of the `model` journal: total, whatever the order of events."""

from typing import assert_never

from msgspec.structs import replace

from schemas.envelope import Context, Rejected, Repeated
from schemas.model import (
    BaseAdded,
    BasePinned,
    BaseRefused,
    CheckpointShared,
    CheckpointUnshared,
    Event,
    StageMoved,
    VersionDeleted,
    VersionFailed,
    VersionPublished,
    VersionSubmitted,
)
from services.registry.domain.state import (
    EXCLUSIVE,
    FORMER_MAX,
    Holder,
    Registry,
    Shared,
    Shelf,
    Version,
    holder_key,
    holder_of,
)


def evolve(state: Registry, event: Event, ctx: Context) -> Registry:
    match event:
        case Rejected() | Repeated() | BasePinned() | BaseRefused():
            return state
        case BaseAdded():
            return replace(state, bases=state.bases.set(event.base.base_id, event.base))
        case _:
            shelf = state.shelves.get(ctx.key, Shelf())
            changed = (
                _shared(shelf, event)
                if isinstance(event, CheckpointShared | CheckpointUnshared)
                else _evolved(shelf, event)
            )
            if changed is shelf:
                return state
            return replace(state, shelves=state.shelves.set(ctx.key, changed))


Changed = VersionSubmitted | VersionPublished | VersionFailed | StageMoved | VersionDeleted


def _evolved(shelf: Shelf, event: Changed) -> Shelf:
    known = shelf.versions.get(event.model_id)
    match event:
        case VersionSubmitted():
            return _with(shelf, event.model_id, Version(series=event.series, lineage=event.lineage))
        case VersionPublished():
            published = Version(
                series=event.series,
                lineage=event.lineage,
                published=True,
                quarantined=event.quarantined,
                files=event.files,
            )
            return _with(shelf, event.model_id, published)
        case VersionFailed():
            # a refusal of a second job with the same id must not touch the first job's version
            if known is None or known.lineage.job_id != event.job_id:
                return shelf
            return replace(shelf, versions=shelf.versions.delete(event.model_id))
        case StageMoved():
            return shelf if known is None else _moved(shelf, known, event)
        case VersionDeleted():
            if known is None:
                return shelf
            return replace(shelf, versions=shelf.versions.delete(event.model_id))
        case _:
            assert_never(event)


def _shared(shelf: Shelf, event: CheckpointShared | CheckpointUnshared) -> Shelf:
    known = shelf.shared
    match event:
        case CheckpointShared():
            share = Shared(checkpoint_id=event.checkpoint_id, project_id=event.project_id)
            return replace(shelf, shared=known.set(event.permission_id, share))
        case CheckpointUnshared():
            if event.permission_id not in known:
                return shelf
            return replace(shelf, shared=known.delete(event.permission_id))
        case _:
            assert_never(event)


def _with(shelf: Shelf, model_id: str, version: Version) -> Shelf:
    return replace(shelf, versions=shelf.versions.set(model_id, version))


def _moved(shelf: Shelf, version: Version, event: StageMoved) -> Shelf:
    """The version leaves the stage it held, whoever holds the new one goes back to dev."""
    if version.stage in EXCLUSIVE:
        key = holder_key(version.series, version.stage)
        left = holder_of(shelf, version.series, version.stage)
        vacant = Holder(model_id=None, former=(*left.former, event.model_id)[-FORMER_MAX:])
        shelf = replace(shelf, holders=shelf.holders.set(key, vacant))
    if event.stage in EXCLUSIVE:
        shelf = _held(shelf, event)
    return _with(shelf, event.model_id, replace(version, stage=event.stage))


def _held(shelf: Shelf, event: StageMoved) -> Shelf:
    key = holder_key(event.series, event.stage)
    former = holder_of(shelf, event.series, event.stage).former
    replaced = None if event.replaced is None else shelf.versions.get(event.replaced)
    if event.by == "rollback" and event.model_id in former:
        # back to where it was: what came after it is no former holder of it
        former = former[: len(former) - 1 - former[::-1].index(event.model_id)]
    elif event.by == "promotion" and event.replaced is not None:
        former = (*former, event.replaced)[-FORMER_MAX:]
    if event.replaced is not None and replaced is not None:
        shelf = _with(shelf, event.replaced, replace(replaced, stage="dev"))
    held = Holder(model_id=event.model_id, former=former)
    return replace(shelf, holders=shelf.holders.set(key, held))
