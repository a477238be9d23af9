"""Commands that follow from events of `model`.

A job is sent the base it waits for, or the result of its registration. The dataset is asked to keep
the files that a version's lineage names when the version is submitted: that is before the job can
end and release them. It keeps them until the version is erased, for it may be restored.
"""

from typing import Final

from schemas.dataset import KeepDataset, ReleaseDataset
from schemas.envelope import Header, Message
from schemas.erasure import EraseModels, ModelsErased, RecordErasedPart
from schemas.job import RecordBase, RecordRegistered
from schemas.lifetime import VersionErased
from schemas.model import (
    BasePinned,
    BaseRefused,
    Event,
    VersionDeleted,
    VersionFailed,
    VersionGated,
    VersionPublished,
    VersionSubmitted,
)
from tunery.runtime.verbs import Send

_JOB: Final = "job"
_DATASET: Final = "dataset"
_ACCOUNT: Final = "account"
_MODEL: Final = "model"


def react_model(header: Header, event: Event) -> tuple[Send, ...]:
    """Commands to other streams."""
    return tuple(Send(to, header.key, header.tenant, body) for to, body in _commands(event))


def _commands(event: Event) -> tuple[tuple[str, Message], ...]:
    match event:
        case BasePinned():
            return ((_JOB, RecordBase(job_id=event.job_id, base=event.base)),)
        case BaseRefused():
            refusal = RecordBase(job_id=event.job_id, base=None, failure=event.failure)
            return ((_JOB, refusal),)
        case VersionSubmitted():
            terms = event.terms
            keep = KeepDataset(job_id=terms.lineage.job_id, model_id=terms.model_id)
            return ((_DATASET, keep),)
        case VersionPublished():
            terms = event.terms
            published = RecordRegistered(job_id=terms.lineage.job_id, model_id=terms.model_id)
            return ((_JOB, published),)
        case VersionGated():
            gated = RecordRegistered(job_id=event.run.job_id, model_id=event.model_id)
            return ((_JOB, gated),)
        case VersionFailed():
            failed = RecordRegistered(
                job_id=event.job_id, model_id=event.model_id, failure=event.failure
            )
            # in this order: a reaction is known by its number among those of one event
            return ((_JOB, failed), (_DATASET, ReleaseDataset(job_id=event.job_id)))
        case VersionDeleted(job_id=str(job_id), erase_at=None):
            return ((_DATASET, ReleaseDataset(job_id=job_id)),)
        case VersionErased():
            return ((_DATASET, ReleaseDataset(job_id=event.job_id)),)
        case ModelsErased(more=True):
            return ((_MODEL, EraseModels()),)
        case ModelsErased():
            return ((_ACCOUNT, RecordErasedPart(part="models")),)
        case _:
            return ()
