"""`account`: a tenant, its keys, its webhooks; and what an owner writes besides decisions."""

from typing import Any
from uuid import UUID

from msgspec.structs import replace

from schemas.account import (
    AdjustInvoice,
    Announce,
    ChangeEndpoint,
    CloseInvoice,
    CreateEndpoint,
    CreateKey,
    CreateTenant,
    DeleteEndpoint,
    Deliver,
    DeliveryDue,
    DeliveryReport,
    EndDelivery,
    ImportPrices,
    Limits,
    PeriodEnded,
    PlanTerms,
    ResumeTenant,
    RevokeKey,
    RotateEndpoint,
    RotateKey,
    SetBillingTerms,
    SetPlan,
    SuspendTenant,
    WebhookEvent,
)
from schemas.answers import AnswerUse, CountAnswers
from schemas.batch import (
    AnswerBatchRows,
    BatchCounts,
    BatchPart,
    BatchProblem,
    BatchResult,
    BatchTerms,
    BeginBatch,
    CancelBatch,
    CreateBatch,
    EndBatch,
)
from schemas.billing import (
    AnswerPrices,
    Bill,
    BillingTerms,
    Commitment,
    Discount,
    InvoiceAdjustment,
    Months,
    OveragePrice,
    PrepaidCredit,
    PriceBook,
    Statement,
    TaxAmount,
    TaxRate,
)
from schemas.dataset import FileContent
from schemas.endpoints import Confirmation, ConfirmEndpoint, EndpointChange, EndpointTerms
from schemas.envelope import Idempotency, Source, Tick
from schemas.erasure import EraseTenant, RecordErasedPart
from schemas.imports import EndImport, ImportResult, ImportTerms, RecordImport, StartImport
from schemas.integrations import RemoveTrackingServer, SetTrackingServer, TrackingServer
from schemas.keys import KeyRotation, KeyTerms
from schemas.node import WithdrawNodeKeys
from schemas.prepaid import GrantPrepaid, RevokePrepaid
from schemas.streams import GLOBAL
from schemas.units import DAY_MS, HOUR_MS
from tests.histories.recorder import BEGAN, Recorder
from tunery.billing.periods import period_of

LIMITS = Limits(soft_gpu_ms=HOUR_MS, hard_gpu_ms=2 * HOUR_MS, concurrency=2)
ID = str(UUID(int=1))


def tenant(story: Recorder) -> None:
    story.when(
        CreateTenant(
            name=story.seal("ACME Inc."),
            terms=PlanTerms(lane="standard", limits=LIMITS, price_version="2026-11"),
        ),
        actor=story.seal("operator@acme.example"),
    )


def key(story: Recorder, key_id: str) -> CreateKey:
    return CreateKey(
        terms=KeyTerms(
            key_id=key_id,
            name=story.seal(f"key {key_id} of the night shift"),
            sha256="a" * 64,
            hint="…x7",
            scopes=("all",),
            expires_at=BEGAN + 30 * DAY_MS,
            models=("smol",),
            spend_cap_micro=5_000_000,
        )
    )


def endpoint(story: Recorder, endpoint_id: str) -> CreateEndpoint:
    return CreateEndpoint(
        terms=EndpointTerms(
            endpoint_id=endpoint_id,
            name=story.seal("hooks of the night shift"),
            url=story.seal("https://acme.example/hook"),
            event_types=("fine_tuning.job.succeeded", "fine_tuning.job.failed"),
        )
    )


def announce(event_id: str) -> Announce:
    return Announce(
        event=WebhookEvent(
            event_id=event_id,
            event_type="fine_tuning.job.succeeded",
            object_id="ftjob-1",
            created_at=BEGAN // 1_000,
        )
    )


def keys_and_webhooks(story: Recorder) -> None:
    tenant(story)
    story.when(SetPlan(terms=PlanTerms(lane="premium", limits=LIMITS, price_version="2026-11")))
    story.when(key(story, "key_1"))
    until = BEGAN + DAY_MS
    story.when(
        RotateKey(
            key_id="key_1", rotation=KeyRotation(sha256="b" * 64, hint="…y8", previous_until=until)
        )
    )
    story.when(RevokeKey(key_id="key_1"))
    story.when(endpoint(story, "we_1"))
    story.when(
        ChangeEndpoint(
            endpoint_id="we_1", change=EndpointChange(url=story.seal("https://acme.example/new"))
        )
    )
    story.when(RotateEndpoint(endpoint_id="we_1", previous_until=until))
    story.when(endpoint(story, "we_2"))
    first, second = story.when(announce("evt_1"), source=Source("job", 3, 0, 7, 0))
    assert isinstance(first, DeliveryDue)
    assert isinstance(second, DeliveryDue)
    ended = EndDelivery(
        report=DeliveryReport(
            delivery_id=first.delivery_id, outcome="delivered", attempts=2, status=200
        )
    )
    story.when(ended)
    story.when(
        EndDelivery(
            report=DeliveryReport(
                delivery_id=second.delivery_id, outcome="gone", attempts=1, status=410
            )
        )
    )
    story.when(
        Deliver(
            endpoint_id="we_1",
            delivery_id="whd_test",
            once=True,
            event=WebhookEvent(
                event_id="evt_2",
                event_type="fine_tuning.job.failed",
                object_id="ftjob-2",
                created_at=BEGAN // 1_000,
            ),
        )
    )
    story.when(DeleteEndpoint(endpoint_id="we_1"))


def addresses_that_are_confirmed(story: Recorder) -> None:
    """Before its code is confirmed an address gets nothing else; a new address begins anew."""
    tenant(story)
    confirmation = Confirmation(code_sha256="c" * 64, delivery_id="whd_first")
    terms = replace(
        endpoint(story, "we_1").terms,
        url=story.seal("mailto:ops@acme.example"),
        confirmation=confirmation,
    )
    _, first = story.when(CreateEndpoint(terms=terms))
    assert isinstance(first, DeliveryDue)
    assert story.when(announce("evt_1"), source=Source("job", 3, 0, 7, 0)) == ()
    story.when(ConfirmEndpoint(endpoint_id="we_1", code_sha256="d" * 64))
    story.when(ConfirmEndpoint(endpoint_id="we_1", code_sha256="c" * 64))
    delivered = DeliveryReport(
        delivery_id=first.delivery_id, outcome="delivered", attempts=1, status=250
    )
    story.when(EndDelivery(report=delivered))
    (due,) = story.when(announce("evt_2"), source=Source("job", 3, 0, 8, 0))
    assert isinstance(due, DeliveryDue)
    change = EndpointChange(
        url=story.seal("mailto:other@acme.example"),
        confirmation=Confirmation(code_sha256="e" * 64, delivery_id="whd_second"),
    )
    story.when(ChangeEndpoint(endpoint_id="we_1", change=change))
    story.when(ConfirmEndpoint(endpoint_id="we_1", code_sha256="e" * 64), after_ms=4 * DAY_MS)


def a_month_that_is_closed(story: Recorder) -> None:
    """A credit by an operator, the end of the month, its bill; repeats change nothing."""
    tenant(story)
    goodwill = AdjustInvoice(
        adjustment=InvoiceAdjustment(
            reference="T-1", amount_micro=-2_500_000, currency="EUR", reason="goodwill"
        )
    )
    story.when(goodwill)
    story.when(goodwill)
    (ended,) = story.when(Tick(), after_ms=35 * DAY_MS)
    assert isinstance(ended, PeriodEnded)
    statement = Statement(
        period=ended.period,
        cut=(7, 0, 0, 3, 0, 0, 12, 0),
        currency="EUR",
        soft_gpu_ms=ended.soft_gpu_ms,
        gpu_ms=7_440_000,
        amount_micro=2_460_000,
    )
    story.when(CloseInvoice(statement=statement))
    story.when(CloseInvoice(statement=statement))


def an_invoice_that_is_corrected(story: Recorder) -> None:
    """Terms, an adjustment of the month before, two currencies, and a credit note after that."""
    tenant(story)
    vat = TaxRate(name="VAT", rate_ppm=190_000)
    terms = BillingTerms(buyer=story.seal("ACME Inc.\n1 Main Street"), taxes=(vat,), due_days=14)
    story.when(SetBillingTerms(terms=terms))
    (ended,) = story.when(Tick(), after_ms=35 * DAY_MS)
    assert isinstance(ended, PeriodEnded)
    bills = tuple(
        Bill(
            currency=currency,
            gpu_ms=7_440_000,
            amount_micro=4_960_001,
            net_micro=4_960_000,
            taxes=(TaxAmount(rate=vat, amount_micro=940_000),),
            total_micro=5_900_000,
            seller="Tunery Ltd.",
        )
        for currency in ("EUR", "USD")
    )
    statement = Statement(
        period=ended.period,
        cut=(7, 0, 0, 3, 0, 0, 12, 0),
        currency="EUR",
        soft_gpu_ms=ended.soft_gpu_ms,
        gpu_ms=7_440_000,
        amount_micro=4_960_001,
        incarnations=(0,) * 8,
        bills=bills,
        terms=ended.terms,
    )
    story.when(CloseInvoice(statement=statement))
    credit = InvoiceAdjustment(
        reference="T-2", amount_micro=-2_500_000, currency="USD", reason="correction"
    )
    story.when(AdjustInvoice(adjustment=credit, period=ended.period))
    story.when(AdjustInvoice(adjustment=credit, period=ended.period))


def a_prepaid_credit_that_is_revoked(story: Recorder) -> None:
    """Granted by mistake, and taken back; once more changes nothing, another is refused."""
    tenant(story)
    credit = PrepaidCredit(reference="P-1", amount_micro=4_000_000, currency="EUR")
    story.when(GrantPrepaid(credit=credit))
    story.when(RevokePrepaid(reference="P-1"))
    story.when(RevokePrepaid(reference="P-1"))
    story.when(RevokePrepaid(reference="P-2"))


def a_contract_with_prepaid_credits(story: Recorder) -> None:
    """Discounts, overage, a commitment; credits pay a bill, one expires, a bill is below zero."""
    tenant(story)
    months = Months(first="2026-01", last="2030-12")
    discount = Discount(reference="K-1", rate_ppm=100_000, lane="standard", months=months)
    least = Commitment(reference="K-2", amount_micro=5_000_000, currency="EUR", months=months)
    dearer = OveragePrice(gpu_hour_micro=3_000_000, currency="EUR")
    terms = BillingTerms(
        seller="Tunery Ltd.", discounts=(discount,), overage=dearer, commitment=least
    )
    story.when(SetBillingTerms(terms=terms))
    surcharge = replace(terms, overage=OveragePrice(surcharge_ppm=250_000))
    story.when(SetBillingTerms(terms=surcharge))
    story.when(SetBillingTerms(terms=replace(terms, discounts=(discount, discount))))
    first = PrepaidCredit(reference="P-1", amount_micro=4_000_000, currency="EUR")
    story.when(GrantPrepaid(credit=first))
    story.when(GrantPrepaid(credit=first))
    story.when(GrantPrepaid(credit=replace(first, amount_micro=1)))
    month = period_of(BEGAN).name
    short = PrepaidCredit(reference="P-2", amount_micro=1_000_000, currency="EUR", last_month=month)
    story.when(GrantPrepaid(credit=short))
    other = replace(short, reference="P-3", currency="USD", last_month=month)
    story.when(GrantPrepaid(credit=other))
    (ended,) = story.when(Tick(), after_ms=35 * DAY_MS)
    assert isinstance(ended, PeriodEnded)
    bill = Bill(
        currency="EUR",
        gpu_ms=7_440_000,
        amount_micro=3_000_000,
        net_micro=3_000_000,
        taxes=(),
        total_micro=3_000_000,
    )
    below = replace(bill, currency="GBP", net_micro=-500_000, total_micro=-500_000)
    statement = Statement(
        period=ended.period,
        cut=(7, 0, 0, 3, 0, 0, 12, 0),
        currency="EUR",
        soft_gpu_ms=ended.soft_gpu_ms,
        gpu_ms=7_440_000,
        amount_micro=3_000_000,
        incarnations=(0,) * 8,
        bills=(bill, below),
        terms=ended.terms,
    )
    story.when(CloseInvoice(statement=statement))


def plans_and_suspension(story: Recorder) -> None:
    """A plan of the next month comes due; a tenant is suspended and resumed."""
    tenant(story)
    premium = PlanTerms(lane="premium", limits=LIMITS, price_version="2026-11")
    story.when(SetPlan(terms=premium, start="next_month"))
    story.when(SuspendTenant())
    story.when(SuspendTenant())
    story.when(Tick(), after_ms=30 * DAY_MS)
    story.when(ResumeTenant())


def price_books(story: Recorder) -> None:
    """A book, the same once more, its version with other prices, and the next one."""
    book = PriceBook(
        version="2026-11",
        currency="EUR",
        gpu_hour_micro={"standard": 2_400_000, "free": 0},
        token_micro_per_million=0,
        effective_from="2026-11-01",
    )
    story.when(ImportPrices(book=book, sha256="a" * 64))
    story.when(ImportPrices(book=book, sha256="a" * 64))
    dearer = replace(book, gpu_hour_micro={"standard": 9_900_000, "free": 0})
    story.when(ImportPrices(book=dearer, sha256="b" * 64))
    later = replace(dearer, version="2027-01", effective_from="2027-01-01")
    story.when(ImportPrices(book=later, sha256="c" * 64))


def answers_that_are_counted(story: Recorder) -> None:
    """Counts of an engine, a repeat after an unknown outcome, and the next counts."""
    tenant(story)
    use = AnswerUse(
        key_id="key_1",
        model="ft:smollm2-135m-instruct:local:demo:1a2b3c4d",
        requests=2,
        prompt_tokens=40,
        cached_tokens=12,
        completion_tokens=96,
        engine_ms=1_450,
    )
    origin = "answers.0123456789abcdef"
    story.when(CountAnswers(uses=(use,)), source=Source(origin, 0, 0, 7, 0))
    story.when(CountAnswers(uses=(use,)), source=Source(origin, 0, 0, 7, 0))
    of_base = replace(use, model="smollm2-135m-instruct", requests=0)
    story.when(CountAnswers(uses=(of_base, use)), source=Source(origin, 0, 0, 8, 1))


def answers_that_have_a_price(story: Recorder) -> None:
    """Tokens of two keys, and then those of one that were from memory."""
    prices = AnswerPrices(
        prompt_micro_per_million=200_000,
        cached_micro_per_million=50_000,
        completion_micro_per_million=600_000,
    )
    book = PriceBook(
        version="2026-11",
        currency="EUR",
        gpu_hour_micro={"standard": 2_400_000, "free": 0},
        token_micro_per_million=0,
        effective_from="2026-11-01",
        answers=prices,
    )
    story.when(ImportPrices(book=book, sha256="a" * 64), key=GLOBAL)
    tenant(story)
    use = AnswerUse(
        key_id="key_1",
        model="smollm2-135m-instruct",
        requests=1,
        prompt_tokens=41,
        cached_tokens=0,
        completion_tokens=97,
        engine_ms=1_450,
    )
    origin = "answers.0123456789abcdef"
    uses = (use, replace(use, key_id="key_2"))
    story.when(CountAnswers(uses=uses), source=Source(origin, 0, 0, 7, 0))
    repeated = replace(use, prompt_tokens=0, cached_tokens=12, completion_tokens=0)
    story.when(CountAnswers(uses=(repeated,)), source=Source(origin, 0, 0, 8, 0))


def batches(story: Recorder) -> None:
    """One that is answered, one that is cancelled, one that expires, and one of a bad file."""
    tenant(story)
    blob = FileContent(bytes=300, sha256="a" * 64, blob="t/acme/files/file-1")
    terms = BatchTerms(
        batch_id="batch_1",
        endpoint="/v1/chat/completions",
        input_file_id="file-1",
        content=blob,
        key_id="key_1",
        window_ms=DAY_MS,
        output_expires_after_ms=DAY_MS,
        metadata=story.seal("nightly"),
    )
    names = ("batch_1", "batch_2", "batch_3", "batch_4")
    for name in names:
        story.when(CreateBatch(terms=replace(terms, batch_id=name)))
    for name in names[:3]:
        story.when(BeginBatch(batch_id=name, rows=3))
    use = AnswerUse(
        key_id="key_1",
        model="smollm2-135m-instruct",
        requests=2,
        prompt_tokens=40,
        cached_tokens=12,
        completion_tokens=96,
        engine_ms=1_450,
    )
    first = BatchPart(first=0, counts=BatchCounts(completed=2), lines=blob)
    for _ in range(2):  # the second is refused
        story.when(AnswerBatchRows(batch_id="batch_1", part=first, uses=(use,)))
    last = BatchPart(first=2, counts=BatchCounts(completed=2, failed=1), lines=blob)
    story.when(AnswerBatchRows(batch_id="batch_1", part=last, uses=()))
    files = BatchResult(batch_id="batch_1", output_file_id="file-2", error_file_id="file-3")
    story.when(EndBatch(result=files))
    story.when(CancelBatch(batch_id="batch_2"))
    story.when(EndBatch(result=BatchResult(batch_id="batch_2")))
    problem = BatchProblem(code="invalid_url", line=1, param="url")
    story.when(EndBatch(result=BatchResult(batch_id="batch_4", problems=(problem,))))
    story.when(Tick(), after_ms=DAY_MS)
    story.when(EndBatch(result=BatchResult(batch_id="batch_3")))


def imports(story: Recorder) -> None:
    """One that completes, one that is cancelled twice, one too many, and one that erasure ends."""
    tenant(story)
    names = ("import_1", "import_2", "import_3")
    for name in names:  # the third is refused
        terms = ImportTerms(
            import_id=name,
            source="openai",
            url=story.seal("https://api.openai.com/v1"),
            key=story.seal("sk-1"),
            key_id="key_1",
        )
        story.when(StartImport(terms=terms))
    story.when(RecordImport(import_id="import_1", progress=story.seal("file 1 of 2: rows.jsonl")))
    done = ImportResult(import_id="import_1", outcome="completed", plan_file_id="file-2")
    story.when(EndImport(result=done))
    for _ in range(2):  # the second is refused
        story.when(EndImport(result=ImportResult(import_id="import_2", outcome="cancelled")))
    story.when(StartImport(terms=replace(terms, source="together")))
    story.when(EraseTenant())


def keys_of_a_node_that_are_withdrawn(story: Recorder) -> None:
    """A pool withdraws keys in all partitions; repeats and earlier keys change nothing."""
    for number in (2, 2, 1, 3):
        story.when(WithdrawNodeKeys(node_id="n1", number=number))


def owners_and_repeats(story: Recorder) -> None:
    """Two owners, an operator's claim, commands that come twice or cannot be taken."""
    tenant(story)
    same: dict[str, Any] = {"idempotency": Idempotency(key="k1", body="b1")}
    story.when(key(story, "key_1"), id=ID, **same)
    story.when(key(story, "key_1"), **same)
    story.when(key(story, "key_1"), idempotency=Idempotency(key="k1", body="b2"))
    story.when(key(story, "key_1"))
    story.claim("owner-2")
    story.stale()
    story.when(endpoint(story, "we_1"))
    story.stale()
    story.when(announce("evt_1"), source=Source("job", 3, 0, 7, 0))
    story.when(announce("evt_1"), source=Source("job", 3, 0, 7, 0))
    story.given(b"\x00 no command at all")
    story.claim("operator", base=4)
    story.when(key(story, "key_2"), traceparent="00-" + "a" * 32 + "-" + "b" * 16 + "-01")
    story.when(RevokeKey(key_id="key_3"))


def a_tenant_that_is_erased(story: Recorder) -> None:
    """Parts of the tenant are erased in order, one report comes twice, and new keys are refused."""
    tenant(story)
    story.when(key(story, "key_1"))
    story.when(endpoint(story, "we_1"))
    story.when(EraseTenant(), actor=story.seal("operator@acme.example"))
    story.when(EraseTenant())
    story.when(RecordErasedPart(part="jobs"))
    story.when(key(story, "key_2"))
    story.when(RecordErasedPart(part="files"))
    story.when(RecordErasedPart(part="files"))
    story.when(RecordErasedPart(part="models"), after_ms=1_000)
    story.when(RecordErasedPart(part="key"), after_ms=1_000)


def a_tracking_server_that_is_removed(story: Recorder) -> None:
    tenant(story)
    url, header = story.seal("https://mlflow.acme.example"), story.seal("Bearer of the night shift")
    story.when(SetTrackingServer(server=TrackingServer(url=url, authorization=header)))
    story.when(RemoveTrackingServer())


def terms_of_months(story: Recorder) -> None:
    """Terms of this month and of months to come, and what a change of currency may not strand."""
    euros = PriceBook(
        version="2026-11",
        currency="EUR",
        gpu_hour_micro={"standard": 2_400_000, "free": 0},
        token_micro_per_million=0,
        effective_from="2026-11-01",
    )
    for book in (euros, replace(euros, version="2026-11-usd", currency="USD")):
        story.when(ImportPrices(book=book, sha256="a" * 64), key=GLOBAL)
    tenant(story)
    following = period_of(BEGAN).following().name
    least = Commitment(reference="K-18", amount_micro=500_000_000, currency="EUR")
    story.when(SetBillingTerms(terms=BillingTerms(due_days=3, commitment=least)))
    dollars = PlanTerms(lane="standard", limits=LIMITS, price_version="2026-11-usd")
    story.when(SetPlan(terms=dollars, start="next_month"))
    story.when(SetBillingTerms(terms=BillingTerms(due_days=3), from_month=following))
    story.when(SetPlan(terms=dollars, start="next_month"))
    story.when(Tick(), after_ms=35 * DAY_MS)
    story.when(SetBillingTerms(terms=BillingTerms(due_days=4), from_month=period_of(BEGAN).name))
