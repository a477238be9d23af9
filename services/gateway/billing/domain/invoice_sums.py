"""An invoice's amounts per job, key, model, suffix or name of metadata. Pure."""

from collections.abc import Iterable, Mapping
from typing import Final, Literal

from schemas.ids import derived_id
from schemas.session import TOKEN_KINDS, SessionTokens
from services.gateway.billing.domain.invoice_responses import InvoiceLineResponse
from services.gateway.billing.domain.usage import Group, JobFacts
from services.gateway.web.domain.responses import ListItem, fields_of, with_fields

SUM_GROUPS: Final = ("job", "key", "model", "suffix")
SUM_PREFIX: Final = "sum_"


@with_fields(**fields_of(SessionTokens))
class InvoiceSumResponse(ListItem):
    """Sum of the lines of one group. A field is null unless the request groups by it. In the sum of
    all that belongs to no job `of_jobs` is false, and all these fields are null.

    `train_tokens`, `prefill_tokens` and `sample_tokens` are those of sessions.
    `suffix` is empty, and `metadata` has an empty value, where the job has none.
    """

    id: str
    object: Literal["invoice.sum"] = "invoice.sum"
    of_jobs: bool
    job_id: str | None = None
    api_key_id: str | None = None
    model: str | None = None
    suffix: str | None = None
    metadata: dict[str, str] | None = None
    gpu_ms: int
    amount_micro: int
    currency: str


def sums_of_lines(
    lines: Iterable[InvoiceLineResponse], grouped: frozenset[str], jobs: Mapping[str, JobFacts]
) -> list[InvoiceSumResponse]:
    """The dearest first, and last what is of no job."""
    sums: dict[Group | None, list[InvoiceLineResponse]] = {}
    for line in lines:
        group = None
        if line.job_id is not None:
            group = jobs.get(line.job_id, JobFacts()).group(grouped, line.job_id)
        sums.setdefault(group, []).append(line)
    entries = [_sum(group, of_group) for group, of_group in sums.items()]
    return sorted(entries, key=lambda entry: (not entry.of_jobs, -entry.amount_micro, entry.id))


def _sum(group: Group | None, lines: list[InvoiceLineResponse]) -> InvoiceSumResponse:
    of = group or Group()
    return InvoiceSumResponse(
        id=SUM_PREFIX + derived_id(str(group)),
        of_jobs=group is not None,
        job_id=of.job,
        api_key_id=of.key,
        model=of.model,
        suffix=of.suffix,
        metadata=None if of.metadata is None else dict([of.metadata]),
        gpu_ms=sum(line.gpu_ms for line in lines if line.token_micro_per_million is None),
        amount_micro=sum(line.amount_micro for line in lines),
        currency=lines[0].currency,
        **{kind: sum(getattr(line, kind) for line in lines) for kind in TOKEN_KINDS},
    )
