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
from services.gateway.views.rows import drop, put
from services.gateway.views.tables import BASES, MODELS, PERMISSIONS
from tunery.runtime.verbs import Change

BASES_PARTITION: Final = 0


def project_model(header: Header, event: Event) -> tuple[Change, ...]:
    match event:
        case BaseAdded():
            # One event in each partition, each at a time of its own, in no order among each other:
            # a row that a rebuild makes again comes from one of them.
            if header.partition != BASES_PARTITION:
                return ()
            return (put(BASES, {"id": event.base.base_id}, created_at=header.at, base=event.base),)
        case VersionPublished():
            return (
                put(
                    MODELS,
                    {"tenant": header.key, "id": event.model_id},
                    place=header.seq,
                    created_at=header.at,
                    line=event.series,
                    lineage=event.lineage,
                    files=event.files,
                    stage="dev",
                    stage_at=header.at,
                    quarantined=event.quarantined,
                ),
            )
        case StageMoved():
            return _moved(header, event)
        case VersionDeleted():
            return (drop(MODELS, {"tenant": header.key, "id": event.model_id}),)
        case CheckpointShared():
            return (
                put(
                    PERMISSIONS,
                    {"tenant": header.key, "id": event.permission_id},
                    place=header.seq,
                    created_at=header.at,
                    checkpoint_id=event.checkpoint_id,
                    project_id=event.project_id,
                ),
            )
        case CheckpointUnshared():
            return (drop(PERMISSIONS, {"tenant": header.key, "id": event.permission_id}),)
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


def _moved(header: Header, event: StageMoved) -> tuple[Change, ...]:
    holder = {"tenant": header.key, "id": event.model_id}
    now = put(MODELS, holder, stage=event.stage, stage_at=header.at)
    if event.replaced is None or event.replaced == event.model_id:
        return (now,)
    before = {"tenant": header.key, "id": event.replaced}
    return (put(MODELS, before, stage="dev", stage_at=header.at), now)
