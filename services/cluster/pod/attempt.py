"""The attempt of a lease in its pod: fetch the lease, run it, and report progress."""

import asyncio
import dataclasses
import logging
import os
import signal
from pathlib import Path
from typing import Any, Final, cast

import uvloop
from msgspec.structs import replace

from schemas.training import EvalWork, ServeWork, TrainWork
from services.cluster.adapters.certificates import client_context
from services.cluster.domain.link import Pulse, Welcome
from services.cluster.domain.manifests import AGENT_URL, LINK_DIR, WORK_DIR
from services.cluster.pod.agent_blobs import AgentBlobs
from services.cluster.pod.agent_client import AgentAway, AgentClient, AgentRefuses
from services.trainer.adapters.hardware import probe
from services.trainer.adapters.memory_kills import count_memory_kills
from services.trainer.adapters.processes import ProcessGroups, Walls
from services.trainer.domain.state import Grant
from services.trainer.effect.attempt import LeaseAttempt
from services.trainer.effect.evaluation import Evaluation
from services.trainer.effect.lease_keys import LeaseKeys
from services.trainer.effect.program import Program, Tools
from services.trainer.effect.training import Training
from services.trainer.settings import TrainerSettings
from tunery.confinement.confined import ConfineMode
from tunery.platform.confining import confinement_of
from tunery.platform.ports import Runtime
from tunery.platform.seal.absent import NoKeys
from tunery.platform.seal.sealer import Sealer
from tunery.platform.settings import RuntimeSettings
from tunery.runtime.bus.abstract import Log
from tunery.runtime.bus.sender import Sender
from tunery.runtime.clock import SystemClock
from tunery.runtime.store.absent import absent_store
from tunery.runtime.tasks import stop_tasks
from tunery.runtime.telemetry.logs import configure, log_event

PULSE_MS: Final = 1_000
AWAY_MS_MAX: Final = 600_000  # a new agent deletes the pods of the one before
EXIT_REFUSED: Final = 70
NAME: Final = "pod"
LOG: Final = logging.getLogger(__name__)


class _NoLog:
    """Stands for the log, which a pod does not reach."""

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(f"the pod of a lease has no log: {name}")


def main() -> int:
    """Run the attempt of this pod's lease; the exit status of the pod."""
    configure(NAME, os.environ.get("TUNERY_LOG_LEVEL", "INFO"))
    return uvloop.run(run())


async def run() -> int:
    """Fetch the lease, run its attempt, and follow its agent; the exit status of the pod."""
    clock = SystemClock()
    context = client_context(Path(os.environ[LINK_DIR]))
    agent = AgentClient(os.environ[AGENT_URL], context, clock)
    try:
        welcome = await agent.hello()
    except AgentRefuses as error:
        log_event(LOG, logging.ERROR, "pod.unwelcome", why=error)
        await agent.close()
        return EXIT_REFUSED
    work = Path(os.environ[WORK_DIR])
    blobs = AgentBlobs(agent, work)
    attempt = await _attempt(welcome, agent, _runtime(welcome, blobs, clock), work)
    loop = asyncio.get_running_loop()
    # The cluster takes the pod away, as for an eviction: there is time for a checkpoint.
    loop.add_signal_handler(signal.SIGTERM, attempt.set_target, "drain")
    running = asyncio.create_task(attempt.run(), name="attempt")
    beating = asyncio.create_task(_pulse(attempt, agent, clock), name="pulse")
    try:
        await asyncio.wait((running, beating), return_when=asyncio.FIRST_COMPLETED)
        for task in (running, beating):
            if task.done():
                task.result()
    except (AgentAway, AgentRefuses) as error:  # the lease has ended without us
        log_event(LOG, logging.ERROR, "pod.abandoned", why=error)
        return EXIT_REFUSED
    finally:
        await stop_tasks((running, beating))
        await blobs.close()
        await agent.close()
    return 0


async def _pulse(attempt: LeaseAttempt, agent: AgentClient, clock: SystemClock) -> None:
    """Send a pulse each second, and follow the pool's orders.

    Raises AgentAway when the agent was away for so long that the lease is lost.
    """
    answered_ms = clock.monotonic_ms()
    while True:
        own = Pulse(
            idle_ms=attempt.idle_ms,
            elapsed_ms=attempt.elapsed_ms,
            prepared_bytes=attempt.prepared_bytes(),
        )
        try:
            orders = await agent.pulse(own)
        except AgentAway:
            if clock.monotonic_ms() - answered_ms > AWAY_MS_MAX:
                raise
        else:
            answered_ms = clock.monotonic_ms()
            if orders.sealed_keys:
                attempt.take_keys(orders.sealed_keys)
            if orders.target != "run":
                attempt.set_target(orders.target)
        await clock.sleep(PULSE_MS)


def _runtime(welcome: Welcome, blobs: AgentBlobs, clock: SystemClock) -> Runtime:
    """The ports of an attempt: blobs and a clock; it is never given the others."""
    log = cast("Log", _NoLog())
    mode = cast("ConfineMode", os.environ.get("TUNERY_CONFINE", "require"))
    encryption = "on" if welcome.encrypts else "off"
    return Runtime(
        name=NAME,
        settings=RuntimeSettings.model_construct(blob_encryption=encryption, confine=mode),
        log=log,
        store=absent_store(NAME),
        blobs=blobs,
        seal=Sealer(NoKeys(NAME)),
        sender=Sender(log, {}),
        clock=clock,
    )


async def _attempt(
    welcome: Welcome, agent: AgentClient, runtime: Runtime, work: Path
) -> LeaseAttempt:
    grant, hardware = as_seen_here(welcome.grant), probe()
    settings = TrainerSettings(
        id=grant.node_id, pool=grant.token.pool, slots=grant.slots, threads=welcome.threads
    )
    walls = Walls(await confinement_of(runtime), hardware.device == "cuda")
    launcher = ProcessGroups(str(work), walls)
    keys = LeaseKeys(grant, welcome.incarnation, runtime, agent)
    own = dataclasses.replace(runtime, blobs=keys.blobs, seal=keys.seal)
    tools = Tools(
        *(own, launcher, agent, welcome.incarnation, count_memory_kills),
        device_names=hardware.device_names,
    )
    folder = work / "leases" / str(grant.token.lease)
    folder.parent.mkdir(mode=0o700, exist_ok=True)
    return LeaseAttempt(grant, tools, _program(grant, tools, settings), folder, keys)


def _program(grant: Grant, tools: Tools, settings: TrainerSettings) -> Program:
    match grant.work:
        case TrainWork():
            return Training(grant, grant.work, tools, settings)
        case EvalWork():
            return Evaluation(grant, grant.work, tools, settings)
        case ServeWork():
            raise NotImplementedError("a replica has no pod: its agent refuses such a lease")


def as_seen_here(grant: Grant) -> Grant:
    """Number the devices of the lease as this pod sees them, which sees no others."""
    member = replace(grant.member, devices=tuple(range(grant.slots)))
    return replace(grant, member=member)
