"""Commands that owners refuse because of their sender are noted like refused requests."""

from typing import Final

from schemas import errors
from schemas.audit import AuditEntry
from schemas.envelope import Header, Message, Rejected
from schemas.units import DAY_MS, Ms
from services.gateway.ports import AuditNotes
from tunery.runtime.clock import Clock
from tunery.runtime.verbs import Effect, Todo

KIND: Final = "refused_sender"
WINDOW_MS: Final[Ms] = 60_000  # equal refusals of a partition are one row
AGE_MS_MAX: Final[Ms] = DAY_MS  # a rebuilt projection does not note the past again


class SenderRefused(Message):
    """stream, at: which owner refused it, and when. sender, command, reason: as it says."""

    stream: str
    at: Ms
    sender: str
    command: str
    reason: str


def project_refused_sender(header: Header, event: Rejected) -> tuple[Todo, ...]:
    """The row to do for a refusal because of the sender; none for another one."""
    if event.code != errors.SENDER_REFUSED:
        return ()
    reason = event.reason
    refused = SenderRefused(
        stream=header.stream,
        at=header.at,
        sender=str(reason.params.get("sender", "")),
        command=str(reason.params.get("command", "")),
        reason=reason.code,
    )
    where = (header.stream, str(header.partition), str(header.at // WINDOW_MS))
    row = "/".join((*where, refused.sender, refused.command, refused.reason))
    return (Todo(KIND, row, header.key, header.tenant, refused),)


def refused_senders(audit: AuditNotes, clock: Clock) -> Effect[SenderRefused]:
    """The effect that notes refusals."""

    async def run(refused: SenderRefused, tenant: str, _: int = 1) -> None:
        if clock.now_ms() - refused.at <= AGE_MS_MAX:
            named = (refused.sender, refused.command, refused.reason)
            audit.note(
                AuditEntry(
                    at=refused.at,
                    kind="refusal",
                    tenant="",
                    actor_tenant="",
                    key_id="",
                    address="",
                    method="command",
                    route=refused.stream,
                    object_ids=tuple(filter(None, named)),
                    code=errors.SENDER_REFUSED,
                )
            )

    def exhausted(refused: SenderRefused, tenant: str, failure: str) -> None:
        return None

    return Effect(kind=KIND, body=SenderRefused, run=run, exhausted=exhausted)
