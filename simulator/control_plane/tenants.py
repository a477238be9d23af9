"""Tenants that submit and change jobs, and stubs of the services that are not simulated."""

import asyncio
from collections.abc import Coroutine
from typing import Any, Final

from msgspec.structs import replace

from schemas import errors
from schemas.account import (
    PRICES_PARTITION,
    CreateEndpoint,
    CreateTenant,
    DeliveryDue,
    DeliveryReport,
    EndDelivery,
    Lane,
    PeriodEnded,
    PlanStart,
    PlanTerms,
    ResumeTenant,
    SetPlan,
    SuspendTenant,
)
from schemas.account import Limits as PlanLimits
from schemas.admission import TENANT_BUDGET, BudgetTerms, SetBudget
from schemas.answers import AnswersCounted, AnswerUse, CountAnswers
from schemas.dataset import PinDataset
from schemas.endpoints import EndpointTerms
from schemas.enrolment import NodeEnrolled, RecordNodeKeys
from schemas.envelope import Message, Rejected
from schemas.erasure import EraseFiles, EraseModels, ErasurePartDone, RecordErasedPart
from schemas.gate import RecordGateRun
from schemas.job import (
    CancelJob,
    JobEnded,
    JobSubmitted,
    PauseJob,
    RecordBase,
    RecordDataset,
    RecordFile,
    RecordLook,
    RecordRegistered,
    RecordVerdict,
    ResumeJob,
    VerdictDue,
    Wanted,
    WantedSet,
)
from schemas.lease_keys import LeaseKeysRequested, RecordLeaseKeys
from schemas.model import PinBase, RegisterVersion
from schemas.reasons import Failure, failing
from schemas.sealed import Sealed
from schemas.serving import (
    RemoveServingPool,
    ReplicaTerms,
    ServingPoolRemoved,
    ServingPoolSet,
    ServingPoolTerms,
    ServingTermBegun,
    ServingTermEnded,
    SetServingPool,
)
from schemas.streams import GLOBAL, Stream
from schemas.submission import KeyCap, Price
from schemas.sweep import CancelSweep, SweepEnded, SweepSubmitted
from schemas.topics import ACCOUNT, DATASET, MODEL
from schemas.units import HOUR_MS, GpuMs
from services.billing.effect import Behind, close
from services.billing.ports import Books
from simulator.control_plane.bills import LATER_BOOKS, import_of, own_books
from simulator.control_plane.samples import BASE, PASSED, POOL, PREPARED, SLOT_BYTES, submit, tokens
from simulator.control_plane.sim_context import SimContext
from simulator.engine.sim_log import RETRY_MS, insist
from tunery.billing.periods import period_of
from tunery.plan.estimate import AS_EXPECTED
from tunery.plan.price import lane_price
from tunery.runtime.bus.abstract import Unavailable
from tunery.runtime.bus.sender import Sender
from tunery.runtime.journal.reader import Accepted
from tunery.runtime.store.abstract import StoreUnavailable

NO_TEXT: Final = Sealed(key_id="", nonce=b"", ciphertext=b"")
LANES: Final[tuple[Lane, ...]] = ("premium", "standard", "free")
PRICE: Final = "2026-11"
CURRENCY: Final = "EUR"  # of this book
CROSSED: Final = ("prices_changed", "plan_changed")  # a submission was priced by another plan
EVENT_TYPES: Final = tuple(
    f"fine_tuning.job.{outcome}" for outcome in ("succeeded", "failed", "cancelled")
)
TOKENS_PER_SLOT: Final = 26_000  # so that ten minutes of each are held for a training
GANG_SLOTS: Final = 4  # more than any machine has
REPLICAS: Final = ((1, 60_000), (1, 1_500_000), (2, 90_000))  # slots, time of a term
REPLICAS_MAX: Final = 3
ENDPOINT: Final = "we_tenant"


class SimTenant:
    """One tenant: its jobs, and the requests that it makes."""

    def __init__(self, context: SimContext, name: str, url: Sealed = NO_TEXT) -> None:
        self.context, self.name, self._url = context, name, url
        self.rng = context.chance(name)
        self.port, sender_as = context.port(f"{name}'s client")
        self._sender, self._checker = sender_as("gateway"), sender_as("ingest")
        self._engine = sender_as("engine")
        self._cap = self._draw_cap()
        self._budget = self._draw_budget()
        self._plans = {0: self._draw_plan()}  # as the gateway knows them, by their beginning
        self.jobs: dict[str, Wanted] = {}  # those that have not ended
        self.terms: set[str] = set()  # of replicas; those that have not ended
        self.is_served = False  # it has a serving pool
        self.sweeps: set[str] = set()  # those that have not ended
        self._asked = 0
        context.readers.append(self._read)

    def _read(self, decision: Accepted) -> None:
        if decision.header.key != self.name:
            return
        for event in decision.events:
            match event:
                case JobSubmitted():
                    self.jobs[event.job_id] = "run"
                case WantedSet():
                    self.jobs[event.job_id] = event.wanted
                case JobEnded():
                    self.jobs.pop(event.job_id, None)
                case ServingPoolSet() | ServingPoolRemoved():
                    self.is_served = isinstance(event, ServingPoolSet)
                case SweepSubmitted():
                    self.sweeps.add(event.terms.sweep_id)
                case SweepEnded():
                    self.sweeps.discard(event.sweep_id)
                case ServingTermBegun():
                    if int(event.placement.job_id.rpartition("-")[2]) > REPLICAS_MAX:
                        self.context.broker.tally.add("serving term renewed")
                    self.terms.add(event.placement.job_id)
                case ServingTermEnded():
                    self.terms.discard(event.term_id)
                case AnswersCounted() if event.costs:
                    self.context.broker.tally.add("answers priced")
                case _:
                    pass

    async def ask(self, stream: str, body: Message, key: str | None = None) -> Rejected | None:
        """Send a request until it is decided; why it is refused."""
        self._asked += 1
        mark = f"{self.name}/{self._asked}"
        came = await self.context.ask(
            self.port, self._sender, stream, self.name, mark, body, key=key
        )
        return next((event for event in came if isinstance(event, Rejected)), None)

    async def move_in(self) -> None:
        await self.ask("account", CreateTenant(name=NO_TEXT, terms=self._plan))
        endpoint = EndpointTerms(
            endpoint_id=ENDPOINT, name=NO_TEXT, url=self._url, event_types=EVENT_TYPES
        )
        await self.ask("account", CreateEndpoint(terms=endpoint))
        if self._budget is not None:
            await self.ask("job", SetBudget(terms=self._budget))
        await self.port.sleep(5_000)  # until `job` knows the limits

    def _draw_plan(self, price_version: str = PRICE) -> PlanTerms:
        """Limits for one to three of the smallest holds, or for all of them."""
        narrow = self.context.plan.narrow
        hard = self.rng.randint(HOUR_MS // 2, 2 * HOUR_MS) if narrow else 10_000 * HOUR_MS
        concurrency = self.rng.randint(1, 3) if narrow else 10_000
        soft = hard // 2
        limits = PlanLimits(soft_gpu_ms=soft, hard_gpu_ms=hard, concurrency=concurrency)
        return PlanTerms(lane=self.rng.choice(LANES), limits=limits, price_version=price_version)

    def _draw_cap(self) -> KeyCap | None:
        """Draw the spending cap of the tenant's API key: the cost of about one to four holds."""
        rng = self.context.chance(f"{self.name}'s cap")
        if not self.context.plan.narrow or rng.random() < 0.4:
            return None
        most = rng.randint(1_000_000, 4_000_000)
        return KeyCap(key_id=f"{self.name}'s key", spend_cap_micro=most)

    def _draw_budget(self) -> BudgetTerms | None:
        """Draw the monthly budget of the tenant's jobs: the cost of about one to five holds."""
        rng = self.context.chance(f"{self.name}'s budget")
        if not self.context.plan.narrow or rng.random() < 0.5:
            return None
        most = rng.randint(1_000_000, 5_000_000)
        return BudgetTerms(budget_id=TENANT_BUDGET, currency=CURRENCY, max_amount_micro=most)

    async def change_plan(self) -> None:
        plan = self._draw_plan(self._plan.price_version)
        await self._move_to(plan, self.rng.choice(("now", "now", "next_month")))

    async def _move_to(self, plan: PlanTerms, start: PlanStart = "now") -> None:
        """Ask for a plan. The gateway knows of it later, perhaps after `job` does."""
        while True:
            begins = self.port.now_ms() if start == "now" else period_of(self.port.now_ms()).end_ms
            refused = await self.ask("account", SetPlan(terms=plan, start=start))
            if refused is None or refused.reason.code != "prices_not_here":
                break
            if plan.price_version in own_books():  # on the log once jobs have ended: it stays
                return
            self.context.broker.tally.add("prices on their way")
            await self.port.sleep(RETRY_MS)
        await self.port.sleep(self.rng.randint(0, 10_000))
        self._plans[begins] = plan
        if start == "next_month":
            self.context.broker.tally.add("plan to come")

    async def limit(self, hard_gpu_ms: GpuMs) -> bool:
        """Have another limit of the month and no other, with all else as it is; whether it may."""
        limits = PlanLimits(soft_gpu_ms=0, hard_gpu_ms=hard_gpu_ms, concurrency=10_000)
        plan = replace(self._plan, limits=limits)
        if max(self._plans) > self.port.now_ms():  # another one is to come
            return False
        if await self.ask("account", SetPlan(terms=plan)) is not None:
            return False
        self._plans[self.port.now_ms()] = plan
        await self.port.sleep(5_000)  # until `job` knows it
        return True

    @property
    def has_budget(self) -> bool:
        """True if the tenant has a monthly budget."""
        return self._budget is not None

    @property
    def is_bounded(self) -> bool:
        """True if a budget or a key's spending cap limits the tenant in addition to its plan."""
        return self.has_budget or self._cap is not None

    @property
    def _plan(self) -> PlanTerms:
        """The plan in force, as the gateway knows it: it prices submissions."""
        begun = (begins for begins in self._plans if begins <= self.port.now_ms())
        return self._plans[max(begun)]

    async def change_prices(self) -> None:
        """An operator imports a price book, and moves the plan to it."""
        tally, book = self.context.broker.tally, self.rng.choice(LATER_BOOKS)
        await insist(
            *(self.port, self._sender, ACCOUNT.name, GLOBAL, import_of(book)),
            partition=PRICES_PARTITION,
        )
        tally.add("prices changed")
        await self._move_to(self._draw_plan(book.version))

    async def suspend(self) -> None:
        """An operator suspends the tenant for some seconds."""
        self.context.broker.tally.add("tenant suspended")
        await self.ask("account", SuspendTenant())
        await self.port.sleep(self.rng.randint(1_000, 30_000))
        self.context.broker.tally.add("tenant resumed")
        await self.ask("account", ResumeTenant())

    async def submit(self, number: int) -> None:
        """Submit job `number`; the report on its file may come only after that."""
        late = self.rng.random() < 0.2  # its file is being validated
        job_id = f"ftjob-{number}"
        drawn = 0 if late else self.rng.randrange(1_000, 60_000)
        slots = self.rng.randint(1, 2)
        if number < self.context.plan.gangs:
            slots = GANG_SLOTS
        count = None if late else drawn + slots * TOKENS_PER_SLOT
        body = submit(job_id, count, slots=slots, training_file=f"file-{number}")
        price = _price(self._plan)
        refusal = await self.ask(
            "job",
            replace(body, spec=replace(body.spec, price=price, pace=AS_EXPECTED), cap=self._cap),
        )
        if refusal is not None and refusal.code == errors.SUSPENDED:
            self.context.broker.tally.add("submission of a suspended tenant")
        if refusal is not None and refusal.reason.code in CROSSED:
            self.context.broker.tally.add("submission crossed a plan change")
        if late:
            await self.port.sleep(self.rng.randint(0, 10_000))
            accepted = self.rng.random() < 0.8
            count = self.rng.randrange(1_000, 60_000) + slots * TOKENS_PER_SLOT if accepted else 0
            counts = (tokens(count),) if accepted else ()
            fact = RecordFile(file_id=f"file-{number}", accepted=accepted, tokens=counts)
            await insist(self.port, self._checker, "job", self.name, fact)

    async def submit_as(self, job_id: str, count: int, **changes: Any) -> None:
        """Submit a job with so many tokens; `changes` are fields of its spec."""
        spec = submit(job_id, count, **changes).spec
        body = replace(
            submit(job_id, count), spec=replace(spec, price=self.price, pace=AS_EXPECTED)
        )
        await self.ask("job", replace(body, cap=self._cap))

    @property
    def price(self) -> Price:
        """The gateway's current price for a request of this tenant."""
        return _price(self._plan)

    async def change_mind(self) -> None:
        """Pause, resume or cancel one job, one to three times in a row."""
        if not self.jobs:
            return
        job_id = self.rng.choice(sorted(self.jobs))
        for _ in range(self.rng.randint(1, 3)):
            kind = self.rng.choice((PauseJob, PauseJob, PauseJob, ResumeJob, ResumeJob, CancelJob))
            await self.ask("job", kind(job_id=job_id))

    async def serve(self) -> None:
        """Ask for a serving pool, for another number of its replicas, or remove it."""
        rng, tally = self.context.chance(f"{self.name}/{self._asked}"), self.context.broker.tally
        name, plan = f"sp_{self.name}", self._plan
        if self.is_served and rng.random() < 0.2:
            await self.ask("job", RemoveServingPool(serving_pool_id=name))
            tally.add("serving pool removed")
            return
        slots, term_ms = self.context.chance(f"{name}/replica").choice(REPLICAS)
        terms = ServingPoolTerms(
            serving_pool_id=name,
            replicas=rng.randint(0, REPLICAS_MAX),
            replica=ReplicaTerms(
                base=BASE, pool=POOL, slots=slots, memory_bytes=SLOT_BYTES // 4, term_ms=term_ms
            ),
            price=_price(plan),
            key_id=None if self._cap is None else self._cap.key_id,
            cap=self._cap,
        )
        if await self.ask("job", SetServingPool(terms=terms)) is None:
            tally.add("serving pool set")

    async def answer(self, number: int) -> None:
        """An engine has counted tokens of a question, some of which turn out to be from memory."""
        rng = self.context.chance(f"answers {number}")
        read = rng.choice((0, rng.randrange(5_000_000)))
        use = AnswerUse(
            key_id=f"{self.name}'s key",
            model=BASE.base_id,
            requests=1,
            prompt_tokens=read,
            cached_tokens=rng.randrange(1_000_000),
            completion_tokens=rng.randrange(1_000_000),
            engine_ms=1_000,
        )
        counted = CountAnswers(uses=(use,) * rng.randint(1, 2))
        await insist(self.port, self._engine, ACCOUNT.name, self.name, counted)

    async def settle(self) -> None:
        """Resume what is paused, or cancel it; have no replicas any more.

        A sweep none of whose jobs is open waits for another month, and is cancelled.
        """
        for sweep_id in sorted(self.sweeps) if not self.jobs else ():
            await self.ask("job", CancelSweep(sweep_id=sweep_id))
        if self.is_served:
            await self.ask("job", RemoveServingPool(serving_pool_id=f"sp_{self.name}"))
        for job_id in sorted(job_id for job_id, wanted in self.jobs.items() if wanted == "paused"):
            refusal = await self.ask("job", ResumeJob(job_id=job_id))
            if refusal is not None and job_id in self.jobs:
                await self.ask("job", CancelJob(job_id=job_id))


def _price(plan: PlanTerms) -> Price:
    """Return the gateway's price for a request under this plan."""
    books = {**own_books(), **{book.version: book for book in LATER_BOOKS}}
    return lane_price(books[plan.price_version], plan.lane)


class AnsweringServices:
    """Stubs of ingest, registry, eval and notifier, and of what billing does with keys.

    books: billed months.
    """

    def __init__(self, context: SimContext, books: Books) -> None:
        self.context, self.rng = context, context.chance("neighbours")
        self.port, self._sender_as = context.port("neighbours")
        self._close = close(self.port, books)
        self.answering: set[asyncio.Task[None]] = set()
        context.readers.append(self._read)

    async def listen(self, stream: Stream) -> None:
        """Answer each command of a stream that has no owner in the simulation, once."""
        await self.context.listen(stream, lambda envelope, body: self._respond(envelope.key, body))

    def _respond(self, tenant: str, body: object) -> None:
        match body:
            case PinDataset():
                done = RecordDataset(job_id=body.job_id, prepared=PREPARED)
                if self.context.happens(self.context.plan.failures // 3):
                    reason = failing("file_unaccepted", file_id=body.terms.training_file)
                    failure = Failure(code=errors.FILE_REJECTED, reason=reason)
                    done = RecordDataset(job_id=body.job_id, prepared=None, failure=failure)
                self._answer("ingest", "job", tenant, done)
            case PinBase():
                self._answer("registry", "job", tenant, RecordBase(job_id=body.job_id, base=BASE))
            case RegisterVersion():
                job_id = body.terms.lineage.job_id
                full = Failure(
                    code=errors.ILLEGAL_STATE, reason=failing("versions_at_most", limit=10)
                )
                failed = self._fails(f"publication of {job_id}")
                registered = RecordRegistered(
                    job_id=job_id, model_id=body.terms.model_id, failure=full if failed else None
                )
                self._answer("registry", "job", tenant, registered)
            case RecordGateRun(run=run):
                judged = RecordRegistered(job_id=run.job_id, model_id=run.model_id)
                self._answer("registry", "job", tenant, judged)
            case EraseFiles():
                self._answer("ingest", "account", tenant, RecordErasedPart(part="files"))
            case EraseModels():
                self._answer("registry", "account", tenant, RecordErasedPart(part="models"))
            case _:
                pass

    def _fails(self, what: str) -> bool:
        """True if a service fails a job after its training was paid for."""
        return self.context.chance(what).random() < self.context.plan.failures / 200

    def _looks_on(self, due: VerdictDue) -> bool:
        """True if the items scored so far do not decide the verdict."""
        return self.context.chance(f"look {due.look} of {due.job_id}").random() < 0.7

    def _read(self, decision: Accepted) -> None:
        for event in decision.events:
            match event:
                case VerdictDue() if event.look < len(event.looks_ppm) and self._looks_on(event):
                    look = RecordLook(job_id=event.job_id, look=event.look, comparisons=())
                    self._answer("eval", "job", decision.header.key, look)
                case VerdictDue():
                    summary = replace(PASSED, look=event.look)
                    verdict = RecordVerdict(job_id=event.job_id, summary=summary)
                    if self._fails(f"verdict of {event.job_id}"):
                        lost = Failure(code=errors.PLATFORM, reason=failing("scores_unjudged"))
                        verdict = RecordVerdict(job_id=event.job_id, summary=None, failure=lost)
                    self._answer("eval", "job", decision.header.key, verdict)
                case DeliveryDue():
                    report = DeliveryReport(
                        delivery_id=event.delivery_id, outcome="delivered", attempts=1, status=200
                    )
                    ended = EndDelivery(report=report)
                    self._answer("notifier", "account", decision.header.key, ended)
                case NodeEnrolled():
                    sealed = RecordNodeKeys(
                        node_id=event.node_id, public_key=event.public_key, sealed_keys="keys"
                    )
                    self._answer("scheduler", "pool", decision.header.key, sealed)
                case LeaseKeysRequested():
                    self._give_keys(decision.header.key, event)
                case ErasurePartDone() if "key" in event.begins:
                    gone = RecordErasedPart(part="key")
                    self._answer("billing", "account", decision.header.key, gone)
                case PeriodEnded():
                    self._begin(self._bill(decision.header.key, event))
                case _:
                    pass

    def _give_keys(self, pool: str, event: LeaseKeysRequested) -> None:
        """Billing's part; it may be away for longer than an agent waits."""
        lease, incarnation = event.holder.lease, event.holder.incarnation
        mark = f"keys of {incarnation}/{lease}"
        if self.context.chance(mark).randrange(100) < self.context.plan.keyless:
            self.context.broker.tally.add("keys withheld")
            return
        answer = RecordLeaseKeys(
            lease=lease,
            incarnation=incarnation,
            public_key=event.public_key,
            sealed_keys=mark,
        )
        self._answer("billing", "pool", pool, answer)

    def _answer(self, service: str, stream: str, tenant: str, body: Message) -> None:
        sender = self._sender_as(service)
        self._begin(self._send_later(sender, stream, tenant, body))

    async def _bill(self, tenant: str, ended: PeriodEnded) -> None:
        """The effect that closes a month, until it has done so; now and then it does it twice."""
        for _ in range(self.rng.choice((1, 1, 2))):
            while True:
                await self.port.sleep(self.rng.randint(50, 5_000))
                try:
                    done = await self._close.run(ended, tenant, 1)
                except (Behind, Unavailable, StoreUnavailable):
                    continue
                assert done is not None
                break
            await insist(self.port, self._sender_as("billing"), done.stream, tenant, done.body)

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self.answering.add(task)
        task.add_done_callback(self.answering.discard)

    async def _send_later(self, sender: Sender, stream: str, tenant: str, body: Message) -> None:
        await self.port.sleep(self.rng.randint(50, 4_000))
        await insist(self.port, sender, stream, tenant, body)


PLAYED: Final = (DATASET, MODEL)
