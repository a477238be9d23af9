"""Composition root: the only file of the service that names concrete parts."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from schemas.training import EvalWork, ServeWork, TrainWork
from services.trainer.adapters.forks import WorkForks
from services.trainer.adapters.hardware import probe
from services.trainer.adapters.health import MachineHealth
from services.trainer.adapters.leased import LeaseProcesses
from services.trainer.adapters.memory_kills import count_memory_kills
from services.trainer.adapters.notices import notices_of
from services.trainer.adapters.nvml import DeviceWatch
from services.trainer.adapters.processes import MARK, ProcessGroups, Walls
from services.trainer.domain.state import Grant
from services.trainer.effect.agent import NodeAgent
from services.trainer.effect.attempt import LeaseAttempt
from services.trainer.effect.environment import environment_on
from services.trainer.effect.evaluation import Evaluation
from services.trainer.effect.guarding import AnswerGuard
from services.trainer.effect.judging import PairJudge
from services.trainer.effect.lease_keys import LeaseKeys
from services.trainer.effect.own_loop import OwnLoop
from services.trainer.effect.program import Program, Tools
from services.trainer.effect.replica_answers import ReplicaAnswers
from services.trainer.effect.reports import Reports
from services.trainer.effect.serving import Serving
from services.trainer.effect.training import Training
from services.trainer.figures import NodeMeter
from services.trainer.ports import Hardware, ProcessLauncher
from services.trainer.settings import SLOTS_MAX, TrainerSettings, check_keys
from tunery.confinement.confined import Confinement
from tunery.graders.pair_questions import PairsRefused
from tunery.platform.chat_endpoint import ChatEndpoint
from tunery.platform.confining import confinement_of
from tunery.platform.ports import Runtime
from tunery.platform.settings import SettingsError, load
from tunery.runtime.hosts.abstract import Host

LEASES: Final = "leases"  # folder of those of a node, each in one of its own
SCORE_TRIES_MAX: Final = 5  # with pauses of 15 s in all
SCORE_PAUSE_S: Final = 1.0  # before the second try
SCORES_AT_ONCE_MAX: Final = 8  # questions of one agent


async def build(runtime: Runtime) -> Sequence[Host]:
    """The node agent, and what its replicas have counted. Raises SettingsError."""
    settings = load(TrainerSettings)
    check_keys(settings.id, runtime.keys.sender)
    folder = settings.work_dir or runtime.settings.data_dir / "nodes" / settings.id
    folder = folder.absolute()
    for own in (folder, folder / LEASES):
        own.mkdir(mode=0o700, parents=True, exist_ok=True)
        own.chmod(0o700)  # also where an earlier release made it
    hardware, notices = _probe(), notices_of(settings.notices, settings.notices_url)
    settings = _with_slots(settings, hardware)
    launcher = _launcher(settings, folder, hardware, await confinement_of(runtime))
    reports, scores = Reports(runtime, settings.pool), _score_endpoint(settings)
    watch = _device_watch(hardware)
    meter = NodeMeter() if watch is None else NodeMeter(watch.use)
    runtime.figures.add(meter.figures)
    judge, guard = _pair_judge(settings, scores), _answer_guard(settings, scores)

    def attempt(grant: Grant, incarnation: str) -> LeaseAttempt:
        keys = LeaseKeys(grant, incarnation, runtime, reports)
        own = replace(runtime, blobs=keys.blobs, seal=keys.seal)
        tools = Tools(
            *(own, launcher, reports, incarnation, count_memory_kills),
            *(scores, judge, guard, hardware.device_names, meter),
        )
        lease_folder = folder / LEASES / str(grant.token.lease)
        return LeaseAttempt(grant, tools, program(grant, tools), lease_folder, keys)

    def program(grant: Grant, tools: Tools) -> Program:
        match grant.work:
            case TrainWork(takes_commands=True):
                return OwnLoop(grant, grant.work, tools, settings)
            case TrainWork():
                return Training(grant, grant.work, tools, settings)
            case EvalWork():
                return Evaluation(grant, grant.work, tools, settings)
            case ServeWork():
                return Serving(grant, grant.work, tools, settings, answers)

    health = MachineHealth(settings.slots, folder, settings.disk_bytes_min, watch)
    agent = NodeAgent(runtime, settings, launcher, hardware, attempt, notices, health)
    answers = ReplicaAnswers(folder / "answers", runtime.sender, runtime.clock, agent.ready)
    return (agent, answers)


def _probe() -> Hardware:
    try:
        return probe()
    except TimeoutError as error:
        raise SettingsError(f"{error}: restart the machine, or its driver") from None


def _with_slots(settings: TrainerSettings, hardware: Hardware) -> TrainerSettings:
    """A slot for each device where none are set. Raises SettingsError for more than devices."""
    devices = len(hardware.device_names)
    if hardware.device != "cuda":
        return settings
    if "slots" not in settings.model_fields_set:
        return settings.model_copy(update={"slots": min(devices, SLOTS_MAX)})
    if settings.slots > devices:
        said = f"TUNERY_NODE_SLOTS is {settings.slots}, and the driver knows {devices}"
        raise SettingsError(
            f"{said} accelerators of one model and memory: each slot needs one of its own"
        )
    return settings


def _device_watch(hardware: Hardware) -> DeviceWatch | None:
    """Start the watch on the accelerators' health; None: the slots are processors."""
    if not hardware.device_names:
        return None
    watch = DeviceWatch(hardware.device_names)
    watch.start()
    return watch


def _launcher(
    settings: TrainerSettings, folder: Path, hardware: Hardware, confinement: Confinement
) -> ProcessLauncher:
    has_devices = hardware.device == "cuda"
    # Drivers of accelerators reserve far more address space than they use.
    memory_bytes_max = None if has_devices else hardware.memory_bytes
    walls, mark = Walls(confinement, has_devices, memory_bytes_max), str(folder)
    forks = WorkForks(environment_on(()), folder / "forks", {MARK: mark})
    groups = ProcessGroups(mark, walls, forks)
    return LeaseProcesses(groups, folder / "kept", settings.slots, forks if settings.warm else None)


def _score_endpoint(settings: TrainerSettings) -> ChatEndpoint | None:
    """Return the endpoint of models that score for graders; None: the operator configured none."""
    if settings.score_url is None:
        return None
    return ChatEndpoint(
        settings.score_url,
        None if settings.score_key is None else settings.score_key.get_secret_value(),
        timeout_s=settings.score_timeout_s,
        tries_max=SCORE_TRIES_MAX,
        pause_s=SCORE_PAUSE_S,
        at_once_max=SCORES_AT_ONCE_MAX,
    )


def _pair_judge(settings: TrainerSettings, endpoint: ChatEndpoint | None) -> PairJudge | None:
    """Return the judge that compares answers; None: none is configured. Raises SettingsError."""
    model, pairs = settings.judge_model, settings.judge_pairs
    if model is None and pairs is None:
        return None
    if model is None or pairs is None or endpoint is None:
        raise SettingsError(
            "a judge needs TUNERY_NODE_JUDGE_MODEL, TUNERY_NODE_JUDGE_PAIRS and "
            "TUNERY_NODE_SCORE_URL: set all three, or none of the first two"
        )
    try:
        return PairJudge(endpoint, model, pairs.read_bytes())
    except OSError as error:
        problem = f"TUNERY_NODE_JUDGE_PAIRS: {pairs} is not read: {error.strerror}"
        raise SettingsError(problem) from None
    except PairsRefused as error:
        raise SettingsError(f"TUNERY_NODE_JUDGE_PAIRS: {pairs}: {error}") from None


def _answer_guard(settings: TrainerSettings, endpoint: ChatEndpoint | None) -> AnswerGuard | None:
    """Return the guard model for safety answers; None: none is configured. Raises SettingsError."""
    if settings.guard_model is None:
        return None
    if endpoint is None:
        raise SettingsError("TUNERY_NODE_GUARD_MODEL needs TUNERY_NODE_SCORE_URL: set both")
    return AnswerGuard(endpoint, settings.guard_model)
