"""What other streams hear of `model`: the job that waits for a base, or for its version."""

from schemas.envelope import Header
from schemas.job import RecordBase, RecordRegistered
from schemas.model import BasePinned, BaseRefused, Event, VersionFailed, VersionPublished
from tunery.runtime.verbs import Send


def react_model(header: Header, event: Event) -> tuple[Send, ...]:
    match event:
        case BasePinned():
            body: RecordBase | RecordRegistered = RecordBase(job_id=event.job_id, base=event.base)
        case BaseRefused():
            body = RecordBase(
                job_id=event.job_id, base=None, code=event.code, message=event.message
            )
        case VersionPublished():
            body = RecordRegistered(job_id=event.lineage.job_id, model_id=event.model_id)
        case VersionFailed():
            body = RecordRegistered(
                job_id=event.job_id, model_id=event.model_id, failure=event.failure
            )
        case _:
            return ()
    return (Send("job", header.key, header.tenant, body),)
