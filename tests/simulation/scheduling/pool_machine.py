"""State machine of a pool: requests, reports, failures, orders and time in any order."""

from dataclasses import replace
from typing import Any, ClassVar, Final

import msgspec
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from schemas.pool import PlacementQueued, RequestPlacement
from tests.simulation.scheduling.asks import DOMAINS, TAINT, Ask
from tests.simulation.scheduling.pool_world import MINUTE, PoolWorld
from tests.simulation.scheduling.rules import Judge, Rule

QUEUE_MAX: Final = 3  # of jobs that wait before more of them are made to
numbers = st.integers(0, 11)
asks = st.builds(
    Ask,
    lane=st.integers(0, 2),
    tenant=st.integers(0, 2),
    slots=st.sampled_from((1, 1, 1, 2, 2, 4, 8)),
    hours=st.sampled_from((1, 2, 4, 10, 30)),
    cuda=st.sampled_from((True, True, True, False)),
    gigabytes=st.sampled_from((1, 1, 10)),
    accelerator=st.sampled_from(("", "", "", "a100", "h200")),
    spot=st.sampled_from((None, None, True, True, False)),
    tolerates=st.booleans(),
    slack=st.sampled_from((0, 0, 1, 4)),
    domain=st.sampled_from((*7 * ("",), *DOMAINS)),
    domain_wait=st.sampled_from((None, 5, 60)),
)
node_slots = st.sampled_from((1, 2, 4, 8))
gigabytes = st.sampled_from((8, 24))
accelerators = st.sampled_from(("", "a100", "h200"))
times = st.sampled_from((0, 1, 5, 12, 30, 120, 20 * 60)).map(lambda minutes: minutes * MINUTE)


def has_short_queue(machine: Any) -> bool:
    """Whether few jobs wait: each step explains all of them."""
    return len(machine.world.books.waiting) < QUEUE_MAX


class PoolMachine(RuleBasedStateMachine):
    """Every rule is something that happens to a pool; its promises are checked each time."""

    watched: ClassVar[frozenset[Rule]] = frozenset(Rule)

    def __init__(self) -> None:
        super().__init__()
        self.world = PoolWorld(Judge(self.watched))

    @initialize(sizes=st.lists(node_slots, min_size=1, max_size=4), spot=st.booleans())
    def begin(self, sizes: list[int], spot: bool) -> None:
        for number, slots in enumerate(sizes):
            is_spot = spot and number % 2 == 0
            self.world.register(number, slots, cuda=True, gigabytes=24, joins=False, spot=is_spot)

    @rule(asked=st.lists(asks, min_size=1, max_size=4))
    def submit(self, asked: list[Ask]) -> None:
        for ask in asked:
            self.world.submit(ask)

    @precondition(has_short_queue)
    @rule(ask=asks)
    def submit_alike(self, ask: Ask) -> None:
        """Jobs that are alike come one after the other; then a lease ends."""
        for _ in range(2):
            self.world.submit(ask)
            self.world.pass_time(MINUTE)
        self.world.finish(0)

    @precondition(has_short_queue)
    @rule()
    def wait_for_two_kinds(self) -> None:
        """Two nodes of different kinds are busy, and jobs wait for each of them alone."""
        for number, model in ((4, ""), (5, "h200")):
            self.world.register(number, 1, bool(model), 24, joins=False, accelerator=model)
            ask = Ask(1, 0, 1, 4, cuda=bool(model), gigabytes=1, accelerator=model)
            self.world.submit(ask)
            self.world.submit(ask)

    @rule(ask=asks)
    def work_on(self, ask: Ask) -> None:
        """Granted leases start, work and save a checkpoint; then another tenant requests slots."""
        self.world.work(12 * MINUTE)
        self.world.save_all()
        self.world.submit(ask)

    @rule(number=numbers, what=st.integers(0, 9))
    def report(self, number: int, what: int) -> None:
        self.world.report(number, what)

    @rule(number=numbers)
    def finish(self, number: int) -> None:
        self.world.finish(number)

    @rule(number=numbers)
    def end_noticed(self, number: int) -> None:
        """Draining leases end, and their jobs come back after others have worked for some time."""
        self.world.end_noticed()
        self.world.work(12 * MINUTE)
        self.world.save_all()
        self.world.retry(number)

    @rule(number=numbers)
    def retry(self, number: int) -> None:
        self.world.retry(number)

    @rule(number=numbers, kill=st.booleans())
    def cancel(self, number: int, kill: bool) -> None:
        self.world.cancel(number, kill)

    @rule(ms=times)
    def pass_time(self, ms: int) -> None:
        self.world.pass_time(ms)

    @rule(
        number=numbers,
        slots=node_slots,
        cuda=st.booleans(),
        memory=gigabytes,
        joins=st.booleans(),
        accelerator=accelerators,
        spot=st.booleans(),
        tainted=st.booleans(),
    )
    def register(
        self,
        number: int,
        slots: int,
        cuda: bool,
        memory: int,
        joins: bool,
        accelerator: str,
        spot: bool,
        tainted: bool,
    ) -> None:
        taints = (TAINT,) if tainted else ()
        self.world.register(number, slots, cuda, memory, joins, accelerator, spot, taints)

    @rule(number=numbers)
    def take_away(self, number: int) -> None:
        """The cloud takes back a machine with a running job, which is queued again."""
        self.world.take_away(number)

    @rule(number=numbers)
    def take_away_twice(self, number: int) -> None:
        """The machine comes back, and is taken away again."""
        self.world.take_away(number)
        self.world.take_away(number)

    @rule(number=numbers, what=st.integers(0, 7))
    def order(self, number: int, what: int) -> None:
        self.world.order(number, what)

    @rule(number=numbers, silent=st.booleans(), zone=st.booleans())
    def watch(self, number: int, silent: bool, zone: bool) -> None:
        self.world.watch(number, silent, zone)

    @rule()
    def repeat(self) -> None:
        self.world.repeat()

    @invariant()
    def explain(self) -> None:
        self.world.check_reasons()

    def teardown(self) -> None:
        if not self.world.judge.has_raised:
            self.world.calm_down()


class EvaluatedPoolMachine(PoolMachine):
    """As `PoolMachine`; trainings have evaluations, and something may happen in between."""

    @precondition(has_short_queue)
    @rule(number=numbers, node=numbers, what=st.integers(0, 12), ask=asks)
    def train_and_evaluate(self, number: int, node: int, what: int, ask: Ask) -> None:
        """A training ends; somebody orders something, a node is silent, another job comes."""
        self.world.work(12 * MINUTE)
        self.world.submit(ask)
        self.world.finish(number)
        match what:
            case 8:
                self.world.watch(node, silent=True, zone=False)
            case 9:
                self.world.submit(replace(ask, lane=0))
            case 10:
                self.world.take_away(node)
            case 11:
                self.world.cancel(node, kill=True)
            case 12:
                self.world.pass_time(MINUTE)
            case _:
                self.world.order(node, what)
        self.evaluate()

    def evaluate(self) -> None:
        """The jobs whose trainings have succeeded ask for their evaluations."""
        world = self.world
        for job_id, closed in sorted(world.books.ended.items()):
            is_trained = (closed.role, closed.end.outcome) == ("train", "succeeded")
            if closed.attempt == world.jobs[job_id] and is_trained:
                world.jobs[job_id] += 1
                placement = next(
                    event.placement
                    for _, events in reversed(world.journal)
                    for event in events
                    if isinstance(event, PlacementQueued) and event.placement.job_id == job_id
                )
                changes = {"role": "eval", "slots": 1, "attempt": world.jobs[job_id]}
                evaluation = msgspec.structs.replace(placement, **changes)
                world.send(RequestPlacement(placement=evaluation))
