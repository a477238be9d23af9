"""Errands, a few in each run besides jobs: acts of operators and people, closings of months.

Each errand is its own short story. Which ones a run has is in its plan.
"""

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from random import Random
from typing import Any, Final

from schemas.account import (
    ADMIN_SCOPE,
    EVENT_TYPES,
    KEYS_SCOPE,
    AdjustInvoice,
    ChangeEndpoint,
    CreateEndpoint,
    CreateKey,
    DeleteEndpoint,
    Deliver,
    RevokeKey,
    RotateEndpoint,
    RotateKey,
    SetBillingTerms,
    WebhookEvent,
)
from schemas.admission import TENANT_BUDGET, BudgetTerms, RemoveBudget, SetBudget
from schemas.answers import AnswerUse
from schemas.batch import (
    AnswerBatchRows,
    BatchCounts,
    BatchPart,
    BatchResult,
    BatchTerms,
    BeginBatch,
    CancelBatch,
    CreateBatch,
    EndBatch,
)
from schemas.billing import (
    BillingTerms,
    Commitment,
    Discount,
    InvoiceAdjustment,
    OveragePrice,
    PrepaidCredit,
    TaxRate,
)
from schemas.dataset import FileContent
from schemas.endpoints import Confirmation, ConfirmEndpoint, EndpointChange, EndpointTerms
from schemas.envelope import Message
from schemas.erasure import EraseTenant
from schemas.imports import (
    IMPORTS_OPEN_MAX,
    EndImport,
    ImportOutcome,
    ImportResult,
    ImportTerms,
    RecordImport,
    StartImport,
)
from schemas.integrations import RemoveTrackingServer, SetTrackingServer, TrackingServer
from schemas.keys import KeyRotation, KeyTerms
from schemas.prepaid import GrantPrepaid, RevokePrepaid
from schemas.sealed import Sealed
from schemas.topics import POOL
from schemas.units import DAY_MS, HOUR_MS, Ms
from simulator.control_plane import node_errands as nodes
from simulator.control_plane import work_errands as work
from simulator.control_plane.nodes import SimMachine
from simulator.control_plane.plan import ERRANDS as NAMES
from simulator.control_plane.plan import LATER_ERRANDS, LONG_ERRANDS
from simulator.control_plane.samples import BASE
from simulator.control_plane.samples import POOL as POOL_NAME
from simulator.control_plane.sessions import loop_at_clients
from simulator.control_plane.sim_context import SimContext
from simulator.control_plane.tenants import CURRENCY, SimTenant
from simulator.engine.faulty_port import FaultyPort
from tunery.billing.periods import CLOSE_AFTER_MS, period_of
from tunery.runtime.bus.sender import Sender

LINES: Final = FileContent(bytes=10, sha256="ab" * 32, blob="t/lines")


@dataclass
class SimWorld:
    """Whom an errand may meet. `machines`: more may come."""

    context: SimContext
    tenants: Sequence[SimTenant]
    machines: list[SimMachine]
    _operator: tuple[FaultyPort, Sender] | None = None
    _orders: int = 0

    async def wait(self, rng: Random) -> None:
        """The time that a person takes between two requests."""
        await asyncio.sleep(rng.uniform(0, 8))

    async def order(self, body: Message) -> tuple[Any, ...]:
        """Send an operator's command about nodes to the pool and return the resulting events."""
        context = self.context
        if self._operator is None:
            port, sender_as = context.port("operator")
            self._operator = port, sender_as("gateway")
        self._orders += 1
        return await context.ask(
            *self._operator, POOL.name, POOL_NAME, f"order {self._orders}", body
        )


Errand = Callable[[SimWorld, Random], Coroutine[Any, Any, None]]


def _sealed(text: str) -> Sealed:
    return Sealed(key_id="", nonce=b"", ciphertext=text.encode())


def _hash(text: str) -> str:
    return sha256(text.encode()).hexdigest()


# --- keys and endpoints ---------------------------------------------------------------------------


async def keep_keys(world: SimWorld, rng: Random) -> None:
    """Keys are made, rotated and revoked, by those who may and by those who may not."""
    tenant = rng.choice(world.tenants)
    names = [f"key-{tenant.name}-{number}" for number in range(3)]
    secrets = {name: _hash(name) for name in names}
    for name, scopes in zip(names, (("write",), ("write", KEYS_SCOPE), ("read",)), strict=True):
        terms = KeyTerms(
            key_id=name, name=_sealed(name), sha256=secrets[name], hint="…", scopes=scopes
        )
        await tenant.ask("account", CreateKey(terms=terms))
    for number in range(rng.randint(3, 7)):
        await world.wait(rng)
        name, shown = rng.choice(names), rng.choice((None, *secrets.values()))
        if rng.random() < 0.6:
            fresh = _hash(f"{name}/{number}")
            until = tenant.port.now_ms() + HOUR_MS
            rotation = KeyRotation(sha256=fresh, hint="…", previous_until=until)
            rotate = RotateKey(key_id=name, rotation=rotation, secret=shown)
            if await tenant.ask("account", rotate) is None:
                secrets[name] = fresh
        else:
            await tenant.ask("account", RevokeKey(key_id=name, secret=shown))


async def keep_endpoints(world: SimWorld, rng: Random) -> None:
    """An endpoint that mails, and one that does not: confirmed, changed, rotated, deleted."""
    tenant = rng.choice(world.tenants)
    ids = [f"we-{tenant.name}-{number}" for number in range(2)]
    for endpoint_id, mails in zip(ids, (True, False), strict=True):
        confirmation = _confirmation(endpoint_id) if mails else None
        terms = EndpointTerms(
            endpoint_id=endpoint_id,
            name=_sealed(endpoint_id),
            url=_sealed(f"{endpoint_id}.example"),
            event_types=(*rng.sample(EVENT_TYPES, 4), EVENT_TYPES[0]),
            confirmation=confirmation,
        )
        await tenant.ask("account", CreateEndpoint(terms=terms))
    if rng.random() < 0.6:
        sure = ConfirmEndpoint(endpoint_id=ids[0], code_sha256=_hash(ids[0]))
        await tenant.ask("account", sure)
    for number in range(rng.randint(4, 9)):
        await world.wait(rng)
        await tenant.ask("account", _of_endpoint(rng, rng.choice(ids), number, tenant))


def _confirmation(name: str) -> Confirmation:
    return Confirmation(code_sha256=_hash(name), delivery_id=f"code-{name}")


def _of_endpoint(rng: Random, endpoint_id: str, number: int, tenant: SimTenant) -> Any:
    """One request about an endpoint. Its code is right more often than not."""
    now = tenant.port.now_ms()
    match rng.randrange(7):
        case 0 | 1:
            code = _hash(rng.choice((endpoint_id, endpoint_id, "guessed")))
            return ConfirmEndpoint(endpoint_id=endpoint_id, code_sha256=code)
        case 2:
            moved = EndpointChange(
                url=_sealed(f"{endpoint_id}.example/{number}"),
                confirmation=_confirmation(f"{endpoint_id}/{number}")
                if rng.random() < 0.3
                else None,
            )
            return ChangeEndpoint(endpoint_id=endpoint_id, change=moved)
        case 3:
            types = EndpointChange(event_types=tuple(rng.sample(EVENT_TYPES, 3)))
            return ChangeEndpoint(endpoint_id=endpoint_id, change=types)
        case 4:
            return RotateEndpoint(endpoint_id=endpoint_id, previous_until=now + HOUR_MS)
        case 5:
            event = WebhookEvent(
                event_id=f"evt-{endpoint_id}-{number}",
                event_type=EVENT_TYPES[0],
                object_id="ftjob-0",
                created_at=now,
            )
            name = f"test-{endpoint_id}-{number}"
            return Deliver(endpoint_id=endpoint_id, delivery_id=name, event=event, once=True)
        case _:
            return DeleteEndpoint(endpoint_id=endpoint_id)


async def track_elsewhere(world: SimWorld, rng: Random) -> None:
    """A tenant has a tracking server, and later none; a budget comes and goes, too."""
    tenant = rng.choice(world.tenants)
    server = TrackingServer(url=_sealed("mlflow.example"), authorization=_sealed("Bearer 1"))
    await tenant.ask("account", SetTrackingServer(server=server))
    terms = BudgetTerms(budget_id=TENANT_BUDGET, currency=CURRENCY, max_amount_micro=10**12)
    if not tenant.has_budget:
        await tenant.ask("job", SetBudget(terms=terms))
        await world.wait(rng)
        await tenant.ask("job", RemoveBudget(budget_id=TENANT_BUDGET))
    await world.wait(rng)
    await tenant.ask("account", RemoveTrackingServer())


# --- money ----------------------------------------------------------------------------------------


async def agree_on_terms(world: SimWorld, rng: Random) -> None:
    """Contract terms, twice."""
    tenant = rng.choice(world.tenants)
    for _ in range(2):
        terms = BillingTerms(
            taxes=(TaxRate(name="VAT", rate_ppm=rng.choice((0, 190_000, 77_007))),),
            due_days=rng.randint(0, 60),
            discounts=(Discount(reference="c-1", rate_ppm=rng.randrange(500_000)),)
            if rng.random() < 0.5
            else (),
            overage=OveragePrice(surcharge_ppm=250_000) if rng.random() < 0.5 else None,
            commitment=Commitment(
                reference="c-2", amount_micro=rng.randrange(10**9), currency=CURRENCY
            )
            if rng.random() < 0.5
            else None,
        )
        await tenant.ask("account", SetBillingTerms(terms=terms))
        await world.wait(rng)


async def adjust(world: SimWorld, rng: Random) -> None:
    """Charges and credits of this month and of others, one reference twice."""
    tenant = rng.choice(world.tenants)
    now = tenant.port.now_ms()
    months = (None, None, period_of(now).name, period_of(now - 40 * DAY_MS).name)
    for number in range(rng.randint(3, 7)):
        adjustment = InvoiceAdjustment(
            reference=f"a-{rng.randint(0, number)}-{tenant.name}-{now}",
            amount_micro=rng.choice((-1, -1, 1))
            * rng.choice((10_000, 100_000, rng.randrange(1, 10**6))),
            currency=rng.choice((CURRENCY, CURRENCY, "USD")),
            reason="goodwill",
        )
        order = AdjustInvoice(adjustment=adjustment, period=rng.choice(months))
        await tenant.ask("account", order)
        await world.wait(rng)


async def correct_bills(world: SimWorld, rng: Random, month: str) -> None:
    """Operators give back something of a closed month, as often as they are let."""
    for tenant in world.tenants:
        for number in range(rng.randint(0, 5)):
            adjustment = InvoiceAdjustment(
                reference=f"c-{month}-{number}",
                amount_micro=-rng.choice((10_000, 50_000, 100_000)),
                currency=rng.choice((CURRENCY, CURRENCY, "USD")),
                reason="correction",
            )
            await tenant.ask("account", AdjustInvoice(adjustment=adjustment, period=month))


async def pay_in_advance(world: SimWorld, rng: Random) -> None:
    """Prepaid credits, some for this month alone, of which one is taken back, perhaps twice."""
    tenant = rng.choice(world.tenants)
    mark = tenant.port.now_ms()
    for number in range(rng.randint(2, 4)):
        await _pay(tenant, rng, f"p-{mark}-{number}")
        await world.wait(rng)
    for _ in range(rng.randint(0, 3)):
        reference = f"p-{mark}-{rng.randrange(2)}"
        await tenant.ask("account", RevokePrepaid(reference=reference))


async def _pay(tenant: SimTenant, rng: Random, reference: str) -> None:
    now = tenant.port.now_ms()
    credit = PrepaidCredit(
        reference=reference,
        amount_micro=10_000 * rng.randint(1, 300),
        currency=rng.choice((CURRENCY, CURRENCY, "USD")),
        last_month=rng.choice((None, period_of(now).name, period_of(now + 31 * DAY_MS).name)),
    )
    await tenant.ask("account", GrantPrepaid(credit=credit))


async def let_a_month_pass(world: SimWorld, rng: Random) -> None:
    """All sleep until the month's end has been over for long enough to be billed, with jobs.

    In half of these runs all pay in advance between the end and the bill, which is not paid from
    that; in the others what ran over the end is late.
    """
    clock = world.context.broker.clock
    month = period_of(clock.true_ms() - DAY_MS)
    bills_ms = month.end_ms + CLOSE_AFTER_MS + rng.randint(-HOUR_MS, HOUR_MS)
    if bills_ms - clock.true_ms() < DAY_MS:
        if bills_ms % 2 == 0:  # no draw of its own, so that known seeds keep their meaning
            _sleep(world, month.end_ms)
            for tenant in world.tenants:
                await _pay(tenant, rng, f"n-{month.name}-{tenant.name}")
        _sleep(world, bills_ms)


def _sleep(world: SimWorld, until_ms: Ms) -> None:
    clock = world.context.broker.clock
    asleep_ms = until_ms - clock.true_ms()
    if asleep_ms > 0:
        world.context.broker.trace(f"all sleep for {asleep_ms} ms, beyond the end of a month")
        clock.epoch_ms += asleep_ms


async def ask_in_batches(world: SimWorld, rng: Random) -> None:
    """One batch is answered by two processes that know nothing of each other, one is cancelled,
    and the window of one is over before all its rows are answered.
    """
    tenant = rng.choice(world.tenants)
    for ending in rng.sample(("completed", "cancelled", "expired"), 3):
        batch_id = f"batch-{ending}-{tenant.name}"
        rows = rng.randint(1, 6)
        window_ms = rng.randint(1, 20) * 1_000 if ending == "expired" else DAY_MS
        terms = BatchTerms(
            batch_id=batch_id,
            endpoint="/v1/chat/completions",
            input_file_id="file-of-questions",
            content=LINES,
            key_id=f"{tenant.name}'s key",
            window_ms=window_ms,
        )
        await tenant.ask("account", CreateBatch(terms=terms))
        await tenant.ask("account", BeginBatch(batch_id=batch_id, rows=rows))
        for first in sorted((*range(rows), *range(rng.randint(0, rows)))):
            await tenant.ask("account", _answered(batch_id, first))
            if ending == "cancelled" and rng.random() < 0.5:
                break
            await world.wait(rng)
        if ending == "cancelled":
            await tenant.ask("account", CancelBatch(batch_id=batch_id))
        await tenant.port.sleep(window_ms if ending == "expired" else 0)
        for _ in range(rng.randint(1, 2)):
            await tenant.ask("account", EndBatch(result=BatchResult(batch_id=batch_id)))


def _answered(batch_id: str, first: int) -> AnswerBatchRows:
    use = AnswerUse(
        key_id="k",
        model=BASE.base_id,
        requests=1,
        prompt_tokens=1_000,
        cached_tokens=0,
        completion_tokens=100_000,
        engine_ms=1_000,
    )
    counts = BatchCounts(completed=first + 1)
    part = BatchPart(first=first, counts=counts, lines=LINES)
    return AnswerBatchRows(batch_id=batch_id, part=part, uses=(use,))


# --- the end --------------------------------------------------------------------------------------


async def erase(world: SimWorld, rng: Random) -> None:
    """A tenant is erased, perhaps one with an operator's key, and what it asks for then."""
    tenant = rng.choice(world.tenants)
    if rng.random() < 0.3:
        name = f"admin-{tenant.name}"
        terms = KeyTerms(
            key_id=name, name=_sealed(name), sha256=_hash(name), hint="…", scopes=(ADMIN_SCOPE,)
        )
        await tenant.ask("account", CreateKey(terms=terms))
        await tenant.ask("account", EraseTenant())
        await tenant.ask("account", RevokeKey(key_id=name))
    await tenant.ask("account", EraseTenant())
    world.context.broker.tally.add("tenant erased")
    await world.wait(rng)
    await tenant.ask("account", EraseTenant())
    await tenant.submit(900 + rng.randrange(99))


async def import_accounts(world: SimWorld, rng: Random) -> None:
    """Import more accounts at a time than a tenant may, and end each twice, as a retry does."""
    tenant = rng.choice(world.tenants)
    sealed = _sealed("of an account")
    names = [f"import-{number}-{tenant.name}" for number in range(IMPORTS_OPEN_MAX + 1)]
    for name in names:
        terms = ImportTerms(
            import_id=name, source="openai", url=sealed, key=sealed, key_id=f"{tenant.name}'s key"
        )
        await tenant.ask("account", StartImport(terms=terms))
    for name in rng.sample(names, len(names)):
        await tenant.ask("account", RecordImport(import_id=name, progress=sealed))
        await world.wait(rng)
        outcomes: tuple[ImportOutcome, ...] = ("completed", "failed", "cancelled")
        result = ImportResult(import_id=name, outcome=rng.choice(outcomes))
        for _ in range(2):
            await tenant.ask("account", EndImport(result=result))


ERRANDS: Final[Mapping[str, Errand]] = dict(
    zip(
        (*NAMES, *LONG_ERRANDS, *LATER_ERRANDS),
        (
            *(keep_keys, keep_endpoints, track_elsewhere),
            *(agree_on_terms, adjust, pay_in_advance, let_a_month_pass, erase),
            *(work.sweep, work.take_looks, work.judge_again, work.report_on_jobs),
            *(work.demand_nodes, work.order_nodes, work.break_devices, work.withdraw_keys),
            *(nodes.forget_nodes, nodes.give_up_spot, nodes.lose_spot, nodes.serve_across_months),
            *(ask_in_batches, import_accounts, loop_at_clients),
        ),
        strict=True,
    )
)
