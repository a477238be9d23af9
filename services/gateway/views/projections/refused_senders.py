"""Refusals because of a sender, or by an operator, as rows to do."""

from typing import Final

from schemas import errors
from schemas.envelope import Header, Rejected
from schemas.units import Ms
from services.gateway.views.todos import REFUSED_SENDER, SenderRefused
from tunery.runtime.verbs import Todo

WINDOW_MS: Final[Ms] = 60_000  # equal refusals of a partition are one row


def project_refused_sender(header: Header, event: Rejected) -> tuple[Todo, ...]:
    """The row to do for a refusal because of the sender, or by an operator; none for others."""
    reason, entry = event.reason, f"{header.partition}/{header.offset}"
    if event.code == errors.OPERATOR_REFUSED:
        ordered = SenderRefused(
            stream=header.stream,
            at=header.at,
            sender="",
            command="",
            reason=reason.code,
            operator=str(reason.params.get("operator", "")),
            entry=entry,
        )
        return (
            Todo(REFUSED_SENDER, f"{header.stream}/{entry}", header.key, header.tenant, ordered),
        )
    if event.code != errors.SENDER_REFUSED:
        return ()
    refused = SenderRefused(
        stream=header.stream,
        at=header.at,
        sender=str(reason.params.get("sender", "")),
        command=str(reason.params.get("command", "")),
        reason=reason.code,
    )
    where = (header.stream, str(header.partition), str(header.at // WINDOW_MS))
    row = "/".join((*where, refused.sender, refused.command, refused.reason))
    return (Todo(REFUSED_SENDER, row, header.key, header.tenant, refused),)
