"""One run of the control plane: a time of faults, then the end of every job."""

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Any, Final

import msgspec

from schemas.account import InvoiceAdjusted, InvoiceClosed, PeriodEnded
from schemas.answers import AnswersCounted, AnswerUse
from schemas.billing import BillingTerms, Statement
from schemas.sealed import Sealed
from schemas.streams import PARTITIONS
from schemas.topics import DATASET, MODEL, SESSION, STREAMS, TOPICS
from schemas.units import HOUR_MS
from services.billing.adapters.ledger import LEDGER, read_reached
from simulator.control_plane.bills import SimBill, books_on_log, make_bills
from simulator.control_plane.elastic import ELASTIC, QUOTA_MAX, resize
from simulator.control_plane.errands import ERRANDS, SimWorld, adjust, correct_bills, pay_in_advance
from simulator.control_plane.exports import SimExporter
from simulator.control_plane.hosts import hosts
from simulator.control_plane.nodes import SimMachine
from simulator.control_plane.plan import SESSIONS, ControlPlanePlan, Size
from simulator.control_plane.sim_context import SimContext, active, tenants
from simulator.control_plane.tenants import (
    CURRENCY,
    NO_TEXT,
    PLAYED,
    AnsweringServices,
    SimTenant,
)
from simulator.engine.broker import EPOCH_MS, Broker
from simulator.engine.cluster import Action, Cluster
from simulator.engine.faults import FaultTally
from simulator.engine.stores import Database
from simulator.engine.virtual_loop import RUN_S_MAX, run_virtual
from tunery.billing.answers import AnswersOfMonth
from tunery.billing.invoice import BilledMonth, make_invoices, statement_of
from tunery.billing.lines import LedgerRow, select_usage
from tunery.billing.periods import CLOSE_AFTER_MS, BillShare, Cut, Period, period_of
from tunery.runtime.store.abstract import StoreUnavailable

# Closing of months in a run: the effect of production over the rows in billing's store.
#
# What is besides use on a bill is taken from the journal, where production has tables of it.


class SimBooks:
    """Implements the port `Books`."""

    def __init__(self, context: SimContext, database: Database) -> None:
        self._context, self._database = context, database

    async def reached(self) -> Cut:
        """How far the ledger is. Raises StoreUnavailable."""
        if self._database.away:
            raise StoreUnavailable("the database is away")
        return await read_reached(self._database)

    async def stored(self) -> Mapping[tuple[str, int], int]:
        """Nothing is stored in a run, and so all of it is known."""
        memory = self._context.broker.memory
        return {
            (stream.name, number): (await memory.bounds(stream.journal.name, number))[1]
            for stream in (DATASET, MODEL, SESSION)
            for number in range(PARTITIONS)
        }

    async def statement(self, tenant: str, ended: PeriodEnded, share: BillShare) -> Statement:
        """The bills of a month. Raises PriceMissing."""
        rows = await self._database.rows(LEDGER, {"tenant": tenant})
        mine = [msgspec.convert(row, LedgerRow) for row in rows]
        books = books_on_log(self._context.decisions["account"])
        currency = books[ended.price_version].currency
        billed = BilledMonth(
            tenant=tenant,
            month=share.month,
            soft_gpu_ms=ended.soft_gpu_ms,
            currency=currency,
            terms=ended.terms or BillingTerms(),
            adjustments=tuple(
                event.adjustment
                for event in self._of(tenant, InvoiceAdjusted)
                if event.period == share.month.name
            ),
            answers=self._answers(tenant, share.month),
        )
        invoices = make_invoices(billed, select_usage(mine, share), books)
        return statement_of(ended, share, invoices, currency)

    def _of(self, tenant: str, kind: type[Any]) -> list[Any]:
        return [
            event
            for decision in self._context.decisions["account"]
            if decision.header.key == tenant
            for event in decision.events
            if isinstance(event, kind)
        ]

    def _answers(self, tenant: str, month: Period) -> tuple[AnswersOfMonth, ...]:
        uses: dict[str, list[AnswerUse]] = {}
        for decision in self._context.decisions["account"]:
            hour = decision.header.at // HOUR_MS
            if decision.header.key == tenant and month.first_hour <= hour < month.end_hour:
                for event in decision.events:
                    if isinstance(event, AnswersCounted):
                        uses.setdefault(event.price_version, []).extend(event.uses)
        return tuple(
            AnswersOfMonth(
                price_version=version,
                prompt_tokens=sum(use.prompt_tokens for use in of_book),
                cached_tokens=sum(use.cached_tokens for use in of_book),
                completion_tokens=sum(use.completion_tokens for use in of_book),
            )
            for version, of_book in sorted(uses.items())
        )


SLOTS_MAX: Final = 3
ALIKE: Final = ("g0", "g1")  # machines that together have the slots of a gang
RESIZED: Final = 5  # times
FRESH: Final = ("fresh", "fresh2")
NEW_MONTH_MS: Final = 1_701_388_800_000  # 2023-12-01T00:00Z, a fortnight after the epoch of runs
LATE_S: Final = 15  # records in flight when faults stop
SETTLE_S: Final = 5
CLOSING_S_MAX: Final = 300
NO_URLS: Final[Mapping[str, Sealed]] = {}
Act = Callable[[], Coroutine[Any, Any, None]]


@dataclass
class ControlPlaneRun:
    """The result of a run."""

    plan: ControlPlanePlan
    context: SimContext
    machines: list[SimMachine]
    cluster: Cluster
    exporter: SimExporter
    trace: list[str]
    ledger: Sequence[dict[str, Any]] = ()
    bills: Sequence[SimBill] = ()
    finished: bool = False


class ControlPlaneSim:
    def __init__(self, context: SimContext, urls: Mapping[str, Sealed]) -> None:
        self.context, self.rng = context, context.chance("town")
        build = partial(hosts, sessions=SESSIONS in context.plan.errands)
        self.cluster = Cluster(
            context.broker,
            context.plan.seed,
            STREAMS,
            lambda process: build(context.size, self.cluster, process),
        )
        self.cluster.actions |= {
            "power cut": self._machines(SimMachine.lose_power),
            "agent killed": self._machines(SimMachine.lose_agent),
            "agent frozen": self._machines(SimMachine.freeze),
            "node departed": self._machines(SimMachine.depart),
            "attempt cancelled": self._machines(SimMachine.cancel_attempt),
            "machine asleep": self._machines(SimMachine.sleep),
            "node broken": self._machines(SimMachine.break_down),
            "machine taken away": self._machines(SimMachine.be_taken_away),
            "zone lost": self._lose_zone,
            "all asleep": self._sleep,
        }
        size = context.size
        # One machine is large enough for every job.
        slots = [SLOTS_MAX, *(self.rng.randint(1, SLOTS_MAX) for _ in range(size.nodes - 1))]
        self.machines = [
            SimMachine(context, f"n{number}", slots[number]) for number in range(size.nodes)
        ]
        if context.plan.gangs:
            self.machines += [SimMachine(context, name, SLOTS_MAX) for name in ALIKE]
        if context.plan.gangs > 1:
            for machine in self.machines[size.nodes :]:
                machine.accelerator = "h1"
        if context.plan.elastic:
            self.machines.append(SimMachine(context, ELASTIC, QUOTA_MAX))
        self.tenants = [
            SimTenant(context, name, urls.get(name, NO_TEXT)) for name in tenants(size.tenants)
        ]
        billing = SimBooks(context, self.cluster.database("billing"))
        self.answering_services = AnsweringServices(context, billing)
        self.exporter = SimExporter(context)

    async def live(self) -> bool:
        """Play the plan. True when all jobs have ended and the ledger is complete."""
        context = self.context
        living = [
            *(asyncio.create_task(context.follow(stream)) for stream in context.streams),
            *(asyncio.create_task(self.answering_services.listen(stream)) for stream in PLAYED),
        ]
        self.cluster.start()
        for machine in self.machines:
            machine.boot()
        await asyncio.gather(*(tenant.move_in() for tenant in self.tenants))
        chaos = asyncio.create_task(self.cluster.chaos(context.plan.faults))
        acts = [asyncio.create_task(self._at(second, act)) for second, act in self._acts()]
        await asyncio.sleep(context.size.faulty_s)
        await chaos
        self._heal()
        await asyncio.gather(*acts)
        await asyncio.sleep(LATE_S)
        finished = await self._settled()
        await self.exporter.import_prices()
        finished = finished and await self._settled()
        self.exporter.start()
        if context.plan.closings:
            finished = finished and await self._close_months()
        if finished:
            await self.exporter.finish()
            finished = await self._settled()  # what is exported is announced
        self.exporter.end()
        self.cluster.end()
        for task in living:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
        return finished

    def _acts(self) -> list[tuple[float, Act]]:
        """The requests of the tenants, each with its second of the run."""
        rng, plan, faulty_s = self.rng, self.context.plan, self.context.size.faulty_s
        acts: list[tuple[float, Act]] = []
        for number in range(plan.jobs):
            submit = partial(rng.choice(self.tenants).submit, number)
            acts.append((rng.uniform(0, faulty_s / 2), submit))
        for count, what, until_s in (
            (plan.changes, SimTenant.change_mind, faulty_s - 3),
            (plan.new_limits, SimTenant.change_plan, faulty_s - 3),
            (plan.new_prices, SimTenant.change_prices, faulty_s / 2),  # while jobs are submitted
            (plan.suspensions, SimTenant.suspend, faulty_s / 2),
        ):
            for _ in range(count):
                act = partial(what, rng.choice(self.tenants))
                acts.append((rng.uniform(3, until_s), act))
        chance = self.context.chance("serving")
        for _ in range(plan.serving):
            serve = partial(SimTenant.serve, chance.choice(self.tenants))
            acts.append((chance.uniform(0, faulty_s / 2), serve))
        chance = self.context.chance("answers")
        for number in range(plan.answers):
            answer = partial(SimTenant.answer, chance.choice(self.tenants), number)
            acts.append((chance.uniform(3, faulty_s - 3), answer))
        chance = self.context.chance("quota")
        for machine in self.machines:
            for _ in range(RESIZED if machine.is_elastic else 0):
                act = partial(resize, machine, chance.randint(0, QUOTA_MAX))
                acts.append((chance.uniform(3, faulty_s - 3), act))
        world = SimWorld(self.context, self.tenants, self.machines)
        for name in plan.errands:
            chance = self.context.chance(f"errand {name}")
            acts.append((chance.uniform(3, faulty_s - 10), partial(ERRANDS[name], world, chance)))
        if plan.new_month and plan.month_outage:
            acts.append(self._outage_across_the_month())
        return acts

    def _outage_across_the_month(self) -> tuple[float, Act]:
        """The broker goes some seconds before the month turns, and comes back after it."""
        broker, chance = self.context.broker, self.context.chance("month")
        turns_s = (NEW_MONTH_MS - broker.clock.true_ms()) / 1_000
        before_s, after_s = chance.uniform(1, 10), chance.uniform(1, 20)

        async def act() -> None:
            if broker.clock.true_ms() >= NEW_MONTH_MS:  # all slept until the next month
                return
            broker.trace("the broker goes down before the month turns")
            await self.cluster.lose_broker(before_s + after_s)
            broker.tally.add("outage across a month")

        return max(turns_s - before_s, 0), act

    def _machines(self, fault: Callable[[SimMachine], Coroutine[Any, Any, None]]) -> Action:
        """A fault that hits one of the machines."""

        async def act(rng: Random) -> None:
            await fault(rng.choice(self.machines))

        return act

    async def _lose_zone(self, rng: Random) -> None:
        """Most machines lose power at once."""
        self.context.broker.tally.add("zone lost")
        for machine in rng.sample(self.machines, len(self.machines) // 2 + 1):
            await machine.lose_power()

    async def _sleep(self, rng: Random) -> None:
        """Broker time runs on by hours, and no monotonic clock does: a laptop with all services."""
        broker, asleep_ms = self.context.broker, rng.randint(HOUR_MS // 6, 3 * HOUR_MS)
        broker.tally.add("all asleep")
        broker.trace(f"all sleep for {asleep_ms} ms")
        broker.clock.epoch_ms += asleep_ms

    async def _at(self, second: float, act: Act) -> None:
        await asyncio.sleep(second)
        await act()

    def _heal(self) -> None:
        """Faults stop. Some machine is new to every job, whatever has failed under it elsewhere."""
        self.cluster.heal()
        for name in FRESH[: 2 if self.context.plan.gangs else 1]:
            self.machines.append(SimMachine(self.context, name, SLOTS_MAX))
            self.machines[-1].boot()

    async def _close_months(self) -> bool:
        """Let months end until two are closed; correct the first, with the next one under way."""
        world, clock = (
            SimWorld(self.context, self.tenants, self.machines),
            self.context.broker.clock,
        )
        for number in range(2):
            month = period_of(clock.true_ms() - CLOSE_AFTER_MS)
            clock.epoch_ms += month.end_ms + CLOSE_AFTER_MS + 1_000 - clock.true_ms()
            if not (await self._are_closed(month.name) and await self._settled()):
                return False
            chance = self.context.chance(f"months later {number}")
            await correct_bills(world, chance, month.name)
            await adjust(world, chance)
            await pay_in_advance(world, chance)
        return await self._settled()

    async def _are_closed(self, month: str) -> bool:
        """Wait until every tenant has the bill of a month, without sending any command."""
        loop, names = asyncio.get_running_loop(), {tenant.name for tenant in self.tenants}
        deadline = loop.time() + CLOSING_S_MAX
        while loop.time() < deadline:
            closed = {
                decision.header.key
                for decision in self.context.decisions["account"]
                for event in decision.events
                if isinstance(event, InvoiceClosed) and event.statement.period == month
            }
            if closed == names:
                return True
            await asyncio.sleep(SETTLE_S)
        return False

    async def _settled(self) -> bool:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self.context.size.patience_s
        while loop.time() < deadline:
            await asyncio.gather(*(tenant.settle() for tenant in self.tenants))
            quiet = self._quiet()
            await asyncio.sleep(SETTLE_S)
            if quiet and self._quiet():
                return True
        return False

    def _quiet(self) -> bool:
        """True if every job has ended, every command is decided, and nothing runs or is in flight.

        When this holds for a while, reactions and the ledger have arrived as well.
        """
        busy = (
            *(t.jobs or t.terms or t.is_served or t.sweeps for t in self.tenants),
            *(machine.running for machine in self.machines),
            self.answering_services.answering,
        )
        return self.context.all_decided() and not any(busy)


def play(
    plan: ControlPlanePlan, size: Size, trace: bool = False, urls: Mapping[str, Sealed] = NO_URLS
) -> ControlPlaneRun:
    """Run a plan on virtual time. The same plan gives the same run, to the byte."""
    rng = Random(f"{plan.seed}/broker")

    async def main() -> ControlPlaneRun:
        broker = Broker(
            rng, plan.faults, FaultTally(), active(size, sessions=SESSIONS in plan.errands)
        )
        lines: list[str] = []
        if trace:
            broker.trace_into(lines)
        await broker.memory.create(TOPICS, PARTITIONS)
        # A full hour, perhaps a month as well, begins while jobs run.
        boundary = NEW_MONTH_MS if plan.new_month else -(-EPOCH_MS // HOUR_MS) * HOUR_MS
        broker.clock.epoch_ms = boundary - 1_000 * rng.randint(20, size.faulty_s)
        context = SimContext(plan, size, broker, rng)
        simulation = ControlPlaneSim(context, urls)
        run = ControlPlaneRun(
            plan, context, simulation.machines, simulation.cluster, simulation.exporter, lines
        )
        run.finished = await simulation.live()
        run.ledger = await simulation.cluster.database("billing").rows("ledger")
        run.bills = make_bills(run.ledger, books_on_log(context.decisions["account"]))
        if any(bill.key[-1] != CURRENCY for bill in run.bills):
            broker.tally.add("second currency billed")
        if any(bill.has_rates for bill in run.bills):
            broker.tally.add("rate billed")
        return run

    return run_virtual(main(), max(RUN_S_MAX, 2 * size.faulty_s))
