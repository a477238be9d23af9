"""Commands that owners refuse because of their sender are noted like refused requests.

What an operator has refused (`tunery journal refuse`) is noted as a use of the operator's right.
"""

from typing import Final

from schemas import errors
from schemas.audit import AuditEntry
from schemas.units import DAY_MS, Ms
from services.gateway.ports import AuditNotes
from services.gateway.views.todos import REFUSED_SENDER, SenderRefused
from tunery.runtime.clock import Clock
from tunery.runtime.verbs import Effect

AGE_MS_MAX: Final[Ms] = DAY_MS  # a rebuilt projection does not note the past again


def refused_senders(audit: AuditNotes, clock: Clock) -> Effect[SenderRefused]:
    """The effect that notes refusals."""

    async def run(refused: SenderRefused, tenant: str, _: int = 1) -> None:
        if clock.now_ms() - refused.at <= AGE_MS_MAX:
            named = (refused.sender, refused.command, refused.operator, refused.entry)
            audit.note(
                AuditEntry(
                    at=refused.at,
                    kind="operator" if refused.operator else "refusal",
                    tenant="",
                    actor_tenant="",
                    key_id="",
                    address="",
                    method="command",
                    route=refused.stream,
                    object_ids=tuple(filter(None, (*named, refused.reason))),
                    code=errors.OPERATOR_REFUSED if refused.operator else errors.SENDER_REFUSED,
                )
            )

    return Effect(kind=REFUSED_SENDER, body=SenderRefused, run=run, unrecorded=True)
