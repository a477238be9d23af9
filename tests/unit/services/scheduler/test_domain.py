"""Over random faults every job ends, and independent accounts agree with the journals."""

from collections import Counter
from collections.abc import Sequence

import msgspec
import pytest
from msgspec.structs import replace

from schemas.account import STANDARD_EVENT_TYPES
from schemas.envelope import Context, Tick
from schemas.job import CancelJob, Event, RecordRegistered, RecordVerdict, ResumeJob, SubmitJob
from schemas.pool import PlacementClosed
from schemas.units import HOUR_MS, month_of
from services.scheduler.domain.job import decide, steps, submitting
from services.scheduler.domain.job.quota import terms_at
from services.scheduler.domain.job.state import TenantJobs
from services.scheduler.domain.pool import closing, evolve, nodes
from services.scheduler.domain.pool.faults import BACK_OFF_MS
from services.scheduler.domain.pool.state import open_leases
from services.scheduler.domain.pool.usage import ChargedHour
from simulator.control_plane.bills import SimBill, compare_bills, make_bills
from simulator.control_plane.samples import MINUTE, PASSED, POOL, T0, submit
from simulator.control_plane.usage_books import WHOLE
from tests.searches import UNIT_WORLDS
from tests.unit.services.scheduler.fold import open_gpu_ms
from tests.unit.services.scheduler.joined import TENANT, Joined
from tests.unit.services.scheduler.world import BOOKS, STEPS_MAX, TENANTS, World
from tunery.runtime.journal.codec import canonical
from tunery.runtime.journal.snapshots import revive

CHAOTIC_STEPS = 120
SEEDS = UNIT_WORLDS.full


def settled(world: World) -> World:
    """Stop all faults and resume all paused jobs; then every job ends."""
    world.calm()
    for job_id, tenant in world.jobs.items():
        world.send("job", tenant, ResumeJob(job_id=job_id))
    world.drain()
    for _ in range(STEPS_MAX):
        if not any(world.job.state[tenant].jobs for tenant in TENANTS) and not world.held:
            return world
        world.step()
    left = [job for tenant in TENANTS for job in world.job.state[tenant].jobs.values()]
    unfinished = [(job.job_id, job.wanted, job.phase, job.open) for job in left]
    raise AssertionError(f"not done after {STEPS_MAX} steps: {unfinished}; {world.held}")


def bills_of(world: World) -> tuple[SimBill, ...]:
    """What production bills for the lines of the ledger."""
    lines = world.books.meter.lines.elements()
    return make_bills([msgspec.to_builtins(line) for line in lines], BOOKS)


def chaotic(seed: int) -> World:
    world = World(seed)
    world.drain()
    for _ in range(CHAOTIC_STEPS):
        if world.random.random() < 0.15:
            world.submit(world.random.choice(TENANTS), late=world.random.random() < 0.4)
        if world.jobs and world.random.random() < 0.1:
            world.meddle()
        world.step()
    return world


@pytest.mark.parametrize("seed", UNIT_WORLDS.beginnings())
def test_every_job_ends_and_the_books_agree_under_faults(seed: int) -> None:
    world = settled(chaotic(seed))
    books = world.books
    assert books.violations_at_the_end() == []
    lines, charges = books.meter.lines, books.quota.charges
    assert compare_bills(bills_of(world), lines, charges, BOOKS) == []
    for tenant in TENANTS:
        state = world.job.state[tenant]
        assert open_gpu_ms(state) == 0
        ledger = Counter[str]()
        for (owner, _, hour_utc), gpu_ms in books.meter.net.items():
            ledger[month_of(hour_utc)] += gpu_ms if owner == tenant else 0
        assert {m: n for m, n in state.used_gpu_ms.items() if n} == {
            m: n for m, n in ledger.items() if n
        }, "quota used is not the ledger's sum"
    assert sorted(world.unpinned) == sorted(books.quota.ended)
    ends = {
        announced.event_id
        for announced in world.announced
        if announced.event_type in STANDARD_EVENT_TYPES
    }
    assert len(ends) == len(books.quota.ended)
    assert world.job.refolded() == world.job.state
    assert world.pool.refolded() == world.pool.state


def violated(seeds: range) -> str:
    """What the second books say first over these seeds; empty: they agree with all of them."""
    for seed in seeds:
        try:
            violations = settled(chaotic(seed)).books.violations_at_the_end()
        except AssertionError as violation:
            return str(violation)
        if violations:
            return violations[0]
    return ""


@pytest.mark.long
def test_money_a1_without_the_agents_clock_sleep_is_billed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Finding A1: with the node's last heartbeat as proof the second books disagree."""
    monkeypatch.setattr(evolve, "_proof", lambda _lease, node: node.last_seen)
    assert violated(range(7, SEEDS)).startswith("ledger: ")


@pytest.mark.long
def test_money_a1_without_unlisted_leases_ending_a_dead_task_holds_its_slot_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Finding A1: the task of an attempt is dead, and its agent lives."""
    monkeypatch.setattr(nodes, "_unlisted", lambda *_: [])
    assert violated(range(76, 300)).startswith("not done after")


@pytest.mark.long
def test_money_b4_a_credit_in_the_hour_of_the_end_leaves_less_than_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Finding B4: one line for work of several hours takes back more than its hour has."""

    def in_one_hour(
        charged: Sequence[ChargedHour], gpu_ms: int, _tokens: int
    ) -> tuple[ChargedHour, ...]:
        return (replace(charged[-1], gpu_ms=gpu_ms),) if charged and gpu_ms else ()

    monkeypatch.setattr(closing, "newest_hours", in_one_hour)
    assert violated(range(14, SEEDS)).endswith("leaves less than nothing in its hour")


@pytest.mark.long
def test_money_a2_without_refunds_a_platform_error_is_billed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Finding A2: a job whose verdict or publication failed was billed."""
    monkeypatch.setattr(steps, "job_refund", lambda _: None)
    assert violated(range(SEEDS)).startswith("refund: ")


@pytest.mark.long
def test_money_b6_without_the_comparison_of_prices_an_admission_has_another_price(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Finding B6: a submission that crosses a change of the plan."""
    admit = submitting.submit_job

    def at_any_price(tenant: TenantJobs, command: SubmitJob, ctx: Context) -> tuple[Event, ...]:
        terms, spec = terms_at(tenant, ctx.at), command.spec
        if terms is None:
            return admit(tenant, command, ctx)
        price = replace(spec.price, version=terms.price_version, lane=terms.lane)
        return admit(tenant, replace(command, spec=replace(spec, price=price)), ctx)

    monkeypatch.setattr(decide, "submit_job", at_any_price)
    worlds = (settled(chaotic(seed)) for seed in range(7, SEEDS))
    violations = (
        compare_bills(bills_of(w), w.books.meter.lines, w.books.quota.charges, BOOKS)
        for w in worlds
    )
    assert next(filter(None, violations))[0].startswith("price: ")


def test_the_same_seed_gives_the_same_journals() -> None:
    first, second = chaotic(7), chaotic(7)
    assert first.job.journal == second.job.journal
    assert first.pool.journal == second.pool.journal


@pytest.mark.long
def test_every_kind_of_fault_occurs_over_the_seeds() -> None:
    """Over the seeds, every situation occurs for which there is a rule."""
    worlds = [settled(chaotic(seed)) for seed in range(48)]
    outcomes = {e.outcome for w in worlds for e in w.books.quota.ended.values()}
    codes = {e.failure.code for w in worlds for e in w.books.quota.ended.values() if e.failure}
    closed = {
        (event.end.outcome, event.end.cause)
        for world in worlds
        for _, events in world.pool.journal
        for event in events
        if isinstance(event, PlacementClosed)
    }
    assert outcomes == {"succeeded", "failed", "cancelled"}
    assert {"budget_exhausted", "out_of_memory", "diverged", "platform_error"} <= codes
    assert {cause for w in worlds for _, cause in w.books.meter.refunded} == {
        *WHOLE,
        "estimate_exceeded",
    }
    causes = {line.cause for w in worlds for line in w.books.meter.lines if line.kind == "credit"}
    assert {"correction", "lost", "oom", "platform", "skipped_checkpoint"} <= causes
    assert {("lost", None), ("preempted", None), ("failed", "budget"), ("not_started", None)} <= (
        closed
    )
    kinds = set().union(*(world.faults for world in worlds))
    assert {"zone lost", "outage", "plan changed", "attempt task died"} <= kinds
    assert {"node failed by itself", "loaded node left"} <= kinds
    assert {"prices changed", "tenant suspended", "slow disk", "dead disk"} <= kinds
    assert "machine taken away" in kinds
    billed = {bill.key[-1] for world in worlds for bill in bills_of(world)}
    assert billed == {"EUR", "USD"}
    months = {month for w in worlds for t in TENANTS for month in w.job.state[t].used_gpu_ms}
    assert months == {"2025-11", "2025-12", "2026-01"}
    refused = sum((world.rejected for world in worlds), Counter())
    assert {"stale_token", "hard_limit_exceeded", "illegal_state"} <= set(refused)
    assert "tenant_suspended" in set(refused)


def test_without_faults_every_job_succeeds() -> None:
    world = World(3, chaos=False)
    for _ in range(3):
        world.submit("acme")
        world.drain()
    settled(world)
    ended = world.books.quota.ended.values()
    assert [(e.outcome, e.failure) for e in ended] == [("succeeded", None)] * 3
    assert all(e.lost_gpu_ms == 0 for e in ended)
    assert len(world.pool.state[POOL].leases) == 0


@pytest.mark.parametrize("name", ["job", "pool"])
def test_states_survive_encoding_as_snapshots(name: str) -> None:
    world = chaotic(11)
    decider = world.job if name == "job" else world.pool
    encoded = canonical(decider.state)
    decoder = msgspec.json.Decoder(decider.aggregate.state_type, dec_hook=revive)
    assert decoder.decode(encoded) == decider.state


def run_job(joined: Joined, number: int) -> None:
    """One job more, to one of its ends; an hour later nothing of it is open."""
    job_id, kind = f"ftjob-{number}", number % 5
    joined.send("job", TENANT, submit(job_id, 20_000))
    if kind == 0:
        joined.start()
        joined.to_job(CancelJob(job_id=job_id))
        joined.exit("preempted", 0)
    elif kind == 1:
        joined.start()
        joined.wait(MINUTE)
        joined.exit("failed", MINUTE, "bad_data")
    else:
        while job_id in joined.job.state[TENANT].jobs and open_leases(joined.pool.state[POOL]):
            joined.start()
            if kind == 2 and joined.lease.ref.role == "train":
                joined.save(10, 0)
            joined.wait(20 * MINUTE if kind == 3 else MINUTE)
            if kind != 4:
                joined.exit("succeeded", MINUTE)
                continue
            joined.exit("failed", MINUTE, "platform")
            joined.wait(BACK_OFF_MS[-1])
            joined.to_pool(Tick())
        joined.to_job(RecordVerdict(job_id=job_id, summary=PASSED))
        joined.to_job(RecordRegistered(job_id=job_id, model_id="ft:smol"))
    assert job_id not in joined.job.state[TENANT].jobs, f"{job_id} has not ended"
    joined.wait(HOUR_MS)


@pytest.mark.parametrize(
    "jobs", [300, pytest.param(6_000, marks=(pytest.mark.long, pytest.mark.soak))]
)
def test_sched_nothing_of_a_job_that_ended_stays_for_ever(jobs: int) -> None:
    """Section 4 of the review of the scheduler: attempts of all jobs ever stayed in the state.

    A job begins each hour: 6,000 are eight months.
    """
    joined = Joined(T0)
    joined.exit("failed", 0, "bad_data")
    sizes: list[tuple[int, int]] = []
    for number in range(10, 10 + jobs):
        run_job(joined, number)
        sizes.append((len(canonical(joined.pool.state)), len(canonical(joined.job.state))))
        joined.rows.clear()
        for history in (joined.events, joined.pool.journal, joined.job.journal):
            history.clear()
    early, late = sizes[jobs // 2 - 100 : jobs // 2], sizes[-100:]
    of_pool, of_jobs = (
        max(size[n] for size in late) / max(size[n] for size in early) for n in (0, 1)
    )
    assert of_pool < 1.02
    assert of_jobs < 1.10  # what months have used stays: one entry a month
    assert max(size[0] for size in sizes) < 4_000
