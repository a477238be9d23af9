"""State machine of a cluster with gangs and exact durations."""

from typing import ClassVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from tests.simulation.scheduling.planner_world import MINUTE, PlannerWorld, Want
from tests.simulation.scheduling.rules import Judge, Rule

wants = st.builds(
    Want,
    lane=st.integers(0, 2),
    tenant=st.integers(0, 2),
    slots=st.sampled_from((1, 1, 2, 4, 8, 12, 16)),
    hours=st.sampled_from((1, 2, 4, 10, 30)),
)


class PlannerMachine(RuleBasedStateMachine):
    """Requests come, leases save and end; the planner looks each time."""

    watched: ClassVar[frozenset[Rule]] = frozenset(Rule)
    world: PlannerWorld

    @initialize(
        sizes=st.one_of(
            st.lists(st.just(8), min_size=2, max_size=4),
            st.lists(st.sampled_from((1, 4, 8)), min_size=1, max_size=4),
        ),
        tenants=st.sampled_from((1, 3)),
    )
    def begin(self, sizes: list[int], tenants: int) -> None:
        self.world = PlannerWorld(Judge(self.watched), sizes, tenants)

    @rule(wanted=st.lists(wants, min_size=1, max_size=4))
    def submit(self, wanted: list[Want]) -> None:
        for want in wanted:
            self.world.submit(want)

    @rule(minutes=st.sampled_from((1, 11, 25, 60, 240)))
    def pass_time(self, minutes: int) -> None:
        self.world.pass_time(minutes * MINUTE)

    @rule(want=wants)
    def work_on(self, want: Want) -> None:
        """Leases have worked for some time and saved; then somebody else wants slots."""
        self.world.pass_time(12 * MINUTE)
        self.world.save_all()
        self.world.submit(want)

    def teardown(self) -> None:
        if not self.world.judge.has_raised:
            self.world.calm_down()
