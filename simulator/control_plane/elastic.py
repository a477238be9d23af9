"""A node that is the quota of a cluster: it admits leases late, never, twice, and it lies."""

from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from schemas.envelope import Message
from schemas.node import ResizeNode
from schemas.pool import ClusterWait, ReportStarted, ReportWait
from schemas.training import AttemptStart
from schemas.units import Ms
from simulator.control_plane.agent import STEPS, SimAttempt
from simulator.control_plane.attempts import AttemptTask

if TYPE_CHECKING:
    from simulator.control_plane.nodes import AgentTasks, SimMachine

ELASTIC: Final = "k0"  # name of the node
QUOTA_MAX: Final = 3
Way: TypeAlias = Literal["at once", "late", "twice", "gives up", "never", "lies"]
WAYS: Final[tuple[Way, ...]] = ("at once", "late", "late", "twice", "gives up", "never", "lies")
HEALED: Final[tuple[Way, ...]] = ("at once", "late")
LATE_S: Final = ((5, 60), (5, 60), (650, 1_500))  # the last is longer than a start may take
NEVER_S: Final = 1e6


class ElasticTask(AttemptTask):
    """An attempt that its cluster has to admit first."""

    def __init__(self, agent: "AgentTasks", attempt: SimAttempt) -> None:
        context = agent.machine.context
        self._luck = context.chance(f"{agent.incarnation}/{attempt.grant.token.lease}/cluster")
        self._way: Way = self._luck.choice(HEALED if context.healed else WAYS)
        super().__init__(agent, attempt)

    async def _run(self) -> None:
        agent, attempt = self.agent, self.attempt
        if await self._is_admitted():
            await super()._run()
        else:
            await agent.fact(attempt.exit(agent.port.monotonic_ms(), "not_started"))
            await self._say_more()
            await agent.fact(attempt.free())
            attempt.is_over = True

    async def _say_more(self) -> None:
        """Lie about a lease that has ended, perhaps unstarted."""
        attempt = self.attempt
        if self._way in ("lies", "gives up", "never"):
            start = AttemptStart(loaded=None, loaded_step=0, skipped=(), total_steps=STEPS)
            token, incarnation = attempt.grant.token, attempt.incarnation
            runs = ReportStarted(token=token, incarnation=incarnation, start=start)
            await self._say("ended lease said to run", runs)
            await self._say("ended lease said to run", self._wait("no room"))

    async def _is_admitted(self) -> bool:
        """Wait for the cluster; False: the lease goes back unstarted."""
        luck = self._luck
        match self._way:
            case "at once":
                return True
            case "lies":
                await self._say("running lease said to wait", self._wait("no room"))
                return True
            case "gives up":
                await self._wait_for(luck.uniform(20, 60))
                self.context.broker.tally.add("lease given back")
                return False
            case "late" | "twice" | "never":
                never = self._way == "never"
                await self._wait_for(NEVER_S if never else luck.uniform(*luck.choice(LATE_S)))
        if self._target != "run":
            return False
        await self._say("lease admitted late", self._wait())
        if self._way == "twice":
            await self._say("lease admitted twice", self._wait())
            await self._say("lease admitted twice", self._wait("taken back"))
        return True

    async def _wait_for(self, seconds: float) -> None:
        """Say now and then that the lease waits, and why, until it is to end."""
        until_ms = self.agent.port.monotonic_ms() + 1_000 * seconds
        while self._target == "run" and self.agent.port.monotonic_ms() < until_ms:
            needed = self._luck.randint(1, 3)
            await self._say("lease waited", self._wait(f"{needed} more needed"))
            pause_ms: Ms = self._luck.randint(5_000, 60_000)
            await self._until(min(until_ms, self.agent.port.monotonic_ms() + pause_ms))

    def _wait(self, condition: str | None = None) -> ReportWait:
        wait = None if condition is None else ClusterWait(cause="quota", condition=condition)
        token, incarnation = self.attempt.grant.token, self.attempt.incarnation
        return ReportWait(token=token, incarnation=incarnation, wait=wait)

    async def _say(self, what: str, report: Message) -> None:
        self.context.broker.tally.add(what)
        await self.agent.fact(report)


async def resize(machine: "SimMachine", slots: int) -> None:
    """The quota is another one; an agent that comes later registers with it."""
    machine.slots = slots
    machine.context.broker.tally.add("node resized")
    if machine.agent is not None:
        node = machine.agent.agent.node
        machine.agent.tell(
            ResizeNode(node_id=node.node_id, incarnation=node.incarnation, slots=slots)
        )
