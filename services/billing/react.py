"""Commands that follow from `account`: limits and costs for `job`, price books, erasures."""

from typing import Final

from schemas.account import (
    PRICES_PARTITION,
    Event,
    ImportPrices,
    PlanScheduled,
    PlanSet,
    PricesImported,
    TenantCreated,
    TenantResumed,
    TenantSuspended,
)
from schemas.admission import RecordAnswers, SetSuspension
from schemas.answers import AnswersCounted
from schemas.envelope import Header, Message
from schemas.erasure import (
    CloseJobs,
    EraseFiles,
    EraseModels,
    ErasurePart,
    ErasurePartDone,
    TenantErasureBegun,
)
from schemas.job import SetLimits
from schemas.streams import GLOBAL, PARTITIONS
from schemas.units import hour_of
from tunery.runtime.verbs import Send

ERASING: Final[dict[ErasurePart, tuple[str, Message]]] = {  # the key is an effect's
    "jobs": ("job", CloseJobs()),
    "models": ("model", EraseModels()),
    "files": ("dataset", EraseFiles()),
}


def react_account(header: Header, event: Event) -> tuple[Send, ...]:
    """Send changes of a tenant's plan, suspension and answer costs to `job`, and price books to
    all.
    """
    match event:
        case TenantCreated() | PlanSet():
            return (Send("job", header.key, header.tenant, SetLimits(terms=event.terms)),)
        case PlanScheduled(change=change):
            later = SetLimits(terms=change.terms, effective_at=change.effective_at)
            return (Send("job", header.key, header.tenant, later),)
        case TenantSuspended() | TenantResumed():
            suspension = SetSuspension(suspended=isinstance(event, TenantSuspended))
            return (Send("job", header.key, header.tenant, suspension),)
        case AnswersCounted() if event.costs:
            charged = RecordAnswers(hour_utc=hour_of(header.at), costs=event.costs)
            return (Send("job", header.key, header.tenant, charged),)
        case TenantErasureBegun(begins=begins) | ErasurePartDone(begins=begins):
            return tuple(_erase(header, part) for part in begins if part in ERASING)
        case PricesImported() if header.partition == PRICES_PARTITION:
            command = ImportPrices(book=event.book, sha256=event.sha256)
            others = (number for number in range(PARTITIONS) if number != PRICES_PARTITION)
            return tuple(
                Send("account", GLOBAL, GLOBAL, command, partition=number) for number in others
            )
        case _:
            return ()


def _erase(header: Header, part: ErasurePart) -> Send:
    stream, command = ERASING[part]
    return Send(stream, header.key, header.tenant, command)
