"""Attempts under leases as tasks on virtual time, on one node or several."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from schemas.ids import SESSION
from schemas.pool import ReportRendezvous
from schemas.sealed import Sealed
from schemas.training import AttemptOutcome, FailureCause
from schemas.units import Ms
from services.trainer.domain.state import TargetState
from simulator.control_plane.agent import STEPS, STEPS_PER_CHECKPOINT, SimAttempt
from simulator.control_plane.sessions import CommandLoop

if TYPE_CHECKING:
    from simulator.control_plane.nodes import AgentTasks

SERVED_MS: Final = 7_000  # between two looks at what its process does
JOIN_MS_MAX: Final[Ms] = 60_000  # for all members of a lease to meet
SETTLE_MS_MAX: Final[Ms] = 15_000  # for all of them to end
GANG_LOOK_MS: Final[Ms] = 1_000
NO_TEXT: Final = Sealed(key_id="", nonce=b"", ciphertext=b"")
READ_MS: Final[Ms] = 30_000  # of a slow disk, for something that its agent can see
KEYS_MS_MAX: Final[Ms] = 30_000  # that an agent waits for the keys of a lease
KEYS_LOOK_MS: Final[Ms] = 1_000
STILL_MS_MAX: Final[Ms] = 600_000  # idle limit, a step's share of the cap, and delays by faults
CAUSES: Final[tuple[FailureCause, ...]] = (
    *("oom", "divergence", "bad_data", "user"),
    *("bad_node", "bad_node", "platform", "platform"),
)


class AttemptTask:
    """An attempt on virtual time, from its grant to the report that its slots are free."""

    def __init__(self, agent: "AgentTasks", attempt: SimAttempt) -> None:
        self.agent, self.attempt, self.rng = agent, attempt, agent.rng
        self.machine = agent.machine
        self.context = agent.machine.context
        self.name = f"{agent.incarnation}/{attempt.grant.token.lease}"
        self._noticed: TargetState = "run"
        self._woken = asyncio.Event()
        self._broken_off = False
        self.task = asyncio.create_task(self._run())

    def set_target(self, target: TargetState) -> None:
        if self.attempt.harden(target):
            self._woken.set()
            if target == "kill" and self._broken_off:
                self.task = asyncio.create_task(self._sweep())

    @property
    def is_running(self) -> bool:
        """Its process runs, and its task waits for it."""
        return self.name in self.machine.running and not self._broken_off

    def break_off(self) -> None:
        """Cancel the task by mistake; its process runs on until the pool's order to kill it."""
        self.machine.note(f"{self.name} is cancelled by mistake")
        self.task.cancel()
        self.attempt.is_over = self._broken_off = True
        if self._target == "kill":  # that order has come already
            self.task = asyncio.create_task(self._sweep())

    async def _sweep(self) -> None:
        """Kill a process whose attempt is over, and free its slots."""
        self.machine.stop(self.name)
        await self.agent.fact(self.attempt.free())

    @property
    def _target(self) -> TargetState:
        return self.attempt.target

    async def _run(self) -> None:
        agent, attempt = self.agent, self.attempt
        has_keys = await self._prepare()
        outcome, cause = await self._outcome(has_keys=has_keys)
        ended_ms = agent.port.monotonic_ms()
        if attempt.diary.began_ms is not None and self.context.happens(self.context.plan.unnoticed):
            self.context.broker.tally.add("exit noticed late")
            await agent.port.sleep(self.rng.randint(1_000, 20_000))
        await agent.fact(attempt.exit(ended_ms, outcome, cause, keyless=not has_keys))
        await self._say_more()
        await agent.fact(attempt.free())
        attempt.is_over = True

    async def _say_more(self) -> None:
        """Nothing: it has ended."""

    async def _outcome(self, *, has_keys: bool) -> tuple[AttemptOutcome, FailureCause | None]:
        """Work, if it is still to and can; how that ended."""
        if self._target != "run":
            return "not_started", None
        return await self._begin() if has_keys else ("failed", "platform")

    async def _begin(self) -> tuple[AttemptOutcome, FailureCause | None]:
        """Work as a process of the machine."""
        self.machine.start(self.name, self.attempt.grant.slots)
        ended = await self._work()
        self.machine.stop(self.name)
        return ended

    async def _prepare(self) -> bool:
        """Get what it needs for its start; whether it has keys."""
        await self.agent.port.sleep(self.rng.randint(200, 4_000))  # it fetches its inputs
        has_keys = await self._await_keys()
        await self._read_slowly()
        return has_keys

    async def _await_keys(self) -> bool:
        """Ask for the keys of the lease, and wait; whether they have come in time."""
        await self.agent.fact(self.attempt.request_keys())
        until_ms = self.agent.port.monotonic_ms() + KEYS_MS_MAX
        while self._target == "run" and self.agent.port.monotonic_ms() < until_ms:
            if self.agent.agent.has_keys(self.attempt):
                return True
            await self._until(self.agent.port.monotonic_ms() + KEYS_LOOK_MS)
        return self.agent.agent.has_keys(self.attempt)

    async def _read_slowly(self) -> None:
        """The base model is large, or the disk is old: it may take twice the limit of a start."""
        disk = self.context.chance(f"{self.name}/disk")
        if disk.randrange(100) >= self.context.plan.slow_disks:
            return
        self.context.broker.tally.add("slow disk")
        for _ in range(disk.randint(1, 40)):
            await self._until(self.agent.port.monotonic_ms() + READ_MS)
            self.attempt.prepared_bytes += 1
            if self._target != "run":
                return

    async def _work(self) -> tuple[AttemptOutcome, FailureCause | None]:
        """Run steps and checkpoints until the attempt succeeds, fails or is stopped."""
        attempt = self.attempt
        started = attempt.start(
            self.agent.port.monotonic_ms,
            lambda: self.context.happens(self.context.plan.rotten),
        )
        await self.agent.fact(started)
        step_ms = self._step_ms()
        listens = not self.context.happens(self.context.plan.stubborn)
        fails_at = self.rng.randrange(STEPS) if self._fails() else STEPS
        if self.context.plan.stuck and self.context.happens(self.context.plan.stuck):
            await self._stand_still()
            return "preempted", None
        if attempt.grant.job_id.startswith(SESSION):
            return await CommandLoop(self, started.start.loaded, listens=listens).run()
        if attempt.grant.role == "serve":
            return await self._serve(fails=fails_at < STEPS, listens=listens)
        while attempt.step < min(STEPS, max(fails_at, attempt.step)):
            await self._until(self.agent.port.monotonic_ms() + step_ms * STEPS_PER_CHECKPOINT)
            if self._target == "kill":
                await asyncio.sleep(self.rng.uniform(0, 3))  # a process takes its time to die
                return "preempted", None
            failure = self.failure()
            if failure is not None:
                return "failed", failure
            drained = self._drains and listens
            attempt.step = min(STEPS, attempt.step + (1 if drained else STEPS_PER_CHECKPOINT))
            await self._checkpoint()
            if drained:
                return "preempted", None
        if fails_at < STEPS:
            return "failed", self.rng.choice(CAUSES)
        return "succeeded", None

    def failure(self) -> FailureCause | None:
        """Return why the attempt fails now, in any phase of its work; None: it does not."""
        if not self.machine.is_broken:
            return None
        self.context.broker.tally.add("node failed by itself")
        return self.context.chance(self.name).choice(("bad_node", "platform"))

    @property
    def _drains(self) -> bool:
        return self._target == "drain"

    async def _serve(
        self, *, fails: bool, listens: bool
    ) -> tuple[AttemptOutcome, FailureCause | None]:
        """Answer until the order to end. No checkpoint has anything of it."""
        while not (self._target == "kill" or (self._target == "drain" and listens)):
            await self._until(self.agent.port.monotonic_ms() + SERVED_MS)
            if self.machine.is_broken:
                return "failed", "bad_node"
            if fails and self._target == "run":
                return "failed", "platform"
        return "preempted", None

    async def _stand_still(self) -> None:
        """Make no progress until killed; notices are ignored, too."""
        since_ms = self.attempt.still_since_ms = self.agent.port.monotonic_ms()
        self.context.broker.tally.add("process stuck")
        while self._target != "kill":
            await self._until(since_ms + 1e9)
        still_ms = self.agent.port.monotonic_ms() - since_ms
        if still_ms > STILL_MS_MAX:
            self.context.violations.append(f"stuck: {self.name} stood still for {still_ms} ms")

    def _step_ms(self) -> float:
        """A job's own speed; an evaluation is short."""
        grant = self.attempt.grant
        rng = self.context.chance(grant.job_id)
        long = self.context.plan.long and rng.random() < 0.5
        whole_s = rng.uniform(400, 1_200) if long else rng.uniform(8, 50)
        return (whole_s if grant.role == "train" else rng.uniform(3, 10)) * 1_000 / STEPS

    def _fails(self) -> bool:
        return self.context.happens(self.context.plan.failures)

    async def _until(self, until_ms: float) -> None:
        """Wait for a time or for another target state; a frozen agent notices neither."""
        left_ms = until_ms - self.agent.port.monotonic_ms()
        while self._target == self._noticed and left_ms > 0:
            self._woken.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(left_ms / 1_000):
                    await self._woken.wait()
            await self.agent.port.pass_through(0)
            slept_ms = until_ms - self.agent.port.monotonic_ms()
            left_ms = slept_ms if slept_ms >= 1 else 0  # clocks show whole milliseconds
        await self.agent.port.pass_through(0)
        self._noticed = self._target

    async def _checkpoint(self) -> None:
        report = self.attempt.capture(self.agent.port.monotonic_ms())
        if report is None:
            return
        await self.agent.port.sleep(self.rng.randint(0, 2_000))  # the upload
        await self.agent.fact(report)


class GangTask(AttemptTask):
    """A member of a lease of several nodes. The first works and reports for all."""

    def __init__(self, agent: "AgentTasks", attempt: SimAttempt) -> None:
        first, *self._others = (member.node_id for member in attempt.grant.members)
        self._first, self._node_id = first, attempt.grant.node_id
        self._gang = agent.machine.context.gangs[attempt.grant.token.lease]
        self._faulty_node: str | None = None
        super().__init__(agent, attempt)

    async def _run(self) -> None:
        try:
            await (self._lead() if self._node_id == self._first else self._follow())
        finally:  # also where its agent is gone
            self._gang.lose(self._node_id)

    # --- the first member
    async def _lead(self) -> None:
        agent, attempt, gang = self.agent, self.attempt, self._gang
        has_keys = await self._prepare()
        outcome, cause = await self._outcome(has_keys=has_keys)
        attempt.diary.exited_ms = agent.port.monotonic_ms()
        gang.end(self._node_id, outcome, cause)
        await self._look_until(lambda: gang.have_ended(gang.joined), SETTLE_MS_MAX)
        ended_ms = agent.port.monotonic_ms()
        faulty_node = self._faulty_node if outcome == "failed" else None
        end = attempt.exit(ended_ms, outcome, cause, keyless=not has_keys, faulty_node=faulty_node)
        await agent.fact(end)
        await agent.fact(attempt.free())
        attempt.is_over = True

    async def _begin(self) -> tuple[AttemptOutcome, FailureCause | None]:
        """Work once all members are there."""
        token, incarnation = self.attempt.grant.token, self.attempt.incarnation
        await self.agent.fact(
            ReportRendezvous(token=token, incarnation=incarnation, rendezvous=NO_TEXT)
        )
        cause = await self._await_members()
        if cause is not None:
            return "failed", cause
        if self._target != "run":
            return "not_started", None
        self.context.broker.tally.add("several nodes")
        self._gang.has_begun = True
        return await super()._begin()

    async def _await_members(self) -> FailureCause | None:
        """Wait for all members; why they do not come together."""
        gang = self._gang
        await self._look_until(
            lambda: gang.joined >= {*self._others} or gang.failed(self._others) is not None,
            JOIN_MS_MAX,
        )
        if self._target != "run":
            return None
        failed = gang.failed(self._others)
        missing = next((each for each in self._others if each not in gang.joined), None)
        if failed is not None:
            self._faulty_node = failed[0]
            return failed[1]
        self._faulty_node = missing
        return None if missing is None else "bad_node"

    def failure(self) -> FailureCause | None:
        """Return why the lease fails now, for all its members; None: it does not."""
        self._faulty_node = self._node_id
        own = super().failure()
        if own is not None:
            return own
        if self.context.plan.cuts and self.context.happens(self.context.plan.cuts):
            self.context.broker.tally.add("network between nodes cut")
            self._gang.lose(self._others[0])
        failed = self._gang.failed(self._others)
        if failed is None:
            return None
        self.context.broker.tally.add("lost one of several nodes")
        self._faulty_node, cause = failed
        return cause or "platform"

    @property
    def _drains(self) -> bool:
        return super()._drains or self._gang.drains

    # --- the others
    async def _follow(self) -> None:
        agent, attempt, gang = self.agent, self.attempt, self._gang
        has_keys = await self._prepare()
        if self._target == "run" and has_keys:
            await self._look_until(lambda: self._may_join, JOIN_MS_MAX)
        now_ms = agent.port.monotonic_ms()
        if self._target != "run" or not has_keys or not self._may_join:
            is_failed = self._target == "run"
            outcome: AttemptOutcome = "failed" if is_failed else "not_started"
            cause: FailureCause = "bad_node" if has_keys else "platform"
            gang.end(self._node_id, outcome, cause)
            faulty_node = self._node_id if is_failed and has_keys else None
            own = cause if is_failed else None
            await agent.fact(
                attempt.exit(now_ms, outcome, own, keyless=not has_keys, faulty_node=faulty_node)
            )
        else:
            gang.joined.add(self._node_id)
            self.machine.start(self.name, attempt.grant.slots)
            await self._look_until(self._has_ended)
            self.machine.stop(self.name)
            attempt.diary.exited_ms = agent.port.monotonic_ms()
            gang.end(self._node_id, "preempted", None)
        await agent.fact(attempt.free())
        attempt.is_over = True

    @property
    def _may_join(self) -> bool:
        """True if the first member of the gang has published its rendezvous address."""
        assignment = self.agent.agent.state.assignments.get(self.attempt.grant.token.lease)
        return assignment is not None and assignment.rendezvous is not None

    def _has_ended(self) -> bool:
        """Do what its ranks do at this moment; whether they end."""
        gang, diary = self._gang, self.attempt.diary
        if gang.has_begun and diary.began_ms is None:
            diary.began_ms = self.agent.port.monotonic_ms()
        if self.machine.is_broken and gang.has_begun:
            gang.end(self._node_id, "failed", "bad_node")
        gang.drains |= self._target == "drain"
        return self._target == "kill" or bool(gang.ends.keys() & {self._first, self._node_id})

    async def _look_until(self, has_come: Callable[[], bool], ms_max: Ms | None = None) -> None:
        """Wait for something, or so long at most, or until it is to be killed."""
        port = self.agent.port
        until_ms = None if ms_max is None else port.monotonic_ms() + ms_max
        while not has_come() and self._target != "kill":
            if until_ms is not None and port.monotonic_ms() >= until_ms:
                return
            await self._until(port.monotonic_ms() + GANG_LOOK_MS)
