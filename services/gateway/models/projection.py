"""`model` → bases, models and the stages they hold."""

from typing import Final, assert_never

from schemas.envelope import Header, Rejected, Repeated
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
from services.gateway.models.tables import (
    BASES,
    MODELS,
    PERMISSIONS,
    BaseRow,
    ModelRow,
    PermissionRow,
)
from tunery.runtime.verbs import Change

BASES_PARTITION: Final = 0


def project_model(header: Header, event: Event) -> tuple[Change, ...]:
    """Rows of base models, versions and permissions that follow from one event of `model`."""
    match event:
        case BaseAdded():
            # Every partition has its own event with its own time, and their order is not defined:
            # a row that a rebuild makes again comes from one of them.
            if header.partition != BASES_PARTITION:
                return ()
            row = BaseRow(id=event.base.base_id, created_at=header.at, base=event.base)
            return (BASES.insert(row),)
        case VersionPublished():
            return (_published(header, event),)
        case StageMoved():
            return _moved(header, event)
        case VersionDeleted():
            return (MODELS.delete({"tenant": header.key, "id": event.model_id}),)
        case CheckpointShared():
            return (_shared(header, event),)
        case CheckpointUnshared():
            return (PERMISSIONS.delete({"tenant": header.key, "id": event.share.permission_id}),)
        case (
            VersionSubmitted()
            | VersionFailed()
            | BasePinned()
            | BaseRefused()
            | Rejected()
            | Repeated()
        ):
            return ()
        case _:
            assert_never(event)


def _published(header: Header, event: VersionPublished) -> Change:
    return MODELS.insert(
        ModelRow(
            tenant=header.key,
            id=event.terms.model_id,
            sequence=header.seq,
            created_at=header.at,
            series=event.terms.series,
            lineage=event.terms.lineage,
            files=event.files,
            stage="dev",
            stage_at=header.at,
            quarantined=event.quarantined,
        )
    )


def _shared(header: Header, event: CheckpointShared) -> Change:
    return PERMISSIONS.insert(
        PermissionRow(
            tenant=header.key,
            id=event.share.permission_id,
            sequence=header.seq,
            created_at=header.at,
            checkpoint_id=event.checkpoint_id,
            project_id=event.share.project_id,
        )
    )


def _moved(header: Header, event: StageMoved) -> tuple[Change, ...]:
    holder = {"tenant": header.key, "id": event.model_id}
    now = MODELS.update(holder, stage=event.stage, stage_at=header.at)
    if event.replaced is None or event.replaced == event.model_id:
        return (now,)
    before = {"tenant": header.key, "id": event.replaced}
    return (MODELS.update(before, stage="dev", stage_at=header.at), now)
