"""`python -m services.engine.replica SPEC`: a replica of a serving pool, under a lease of its node.

It is llama.cpp as in the engine of one machine. Its agent relays questions to its socket, fetches
files of adapters, and sends the tokens that it counts.
"""

import asyncio
import os
import signal
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Final, NoReturn, TypeAlias

from schemas.training import FailureCause
from services.engine.adapters.llama import LlamaEngine
from services.engine.adapters.relayed_files import RelayedFiles
from services.engine.adapters.weights import ConvertedWeights
from services.engine.host import EngineHost, QuestionLimits
from services.engine.loaded_models import LoadedModels
from services.engine.meter import AnswerMeter
from services.engine.ports import Refusal
from services.engine.settings import EngineSettings
from tunery.platform.settings import load
from tunery.work.codec import encode_event
from tunery.work.engine import STALE_BASE
from tunery.work.events import AnyWorkEvent, Failed, Preempted, ReplicaAlive, ReplicaReady
from tunery.work.exits import EXIT_OF_CAUSE, ExitCode
from tunery.work.replica import ReplicaSpec, decode_replica_spec

QUESTIONS_MAX: Final = 64  # a full replica says so, and another one is asked
EVERY_S: Final = 5.0  # between two signs of life, and two files of counted tokens
Emit: TypeAlias = Callable[[AnyWorkEvent], None]


def main() -> NoReturn:
    """Answer until SIGTERM, and leave with an exit code of `tunery.work.exits`."""
    emit = events_on_stdout()
    try:
        code = asyncio.run(replicate(decode_replica_spec(Path(sys.argv[1]).read_bytes()), emit))
    except BrokenPipeError:
        code = ExitCode.ORPHANED
    with suppress(OSError):
        sys.stderr.flush()
    os._exit(code)  # threads of answers must not delay or change it


def events_on_stdout() -> Emit:
    """Use standard output for events alone; output of libraries goes to standard error."""
    stream, began = os.dup(sys.stdout.fileno()), time.monotonic()
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())

    def emit(event: AnyWorkEvent) -> None:
        elapsed_ms = int(1_000 * (time.monotonic() - began))
        os.write(stream, encode_event(event, elapsed_ms) + b"\n")

    return emit


async def replicate(spec: ReplicaSpec, emit: Emit) -> ExitCode:
    """Answer questions until SIGTERM, then finish those that are being answered.

    Raises BrokenPipeError when the agent is gone, which also relays the questions.
    """
    stopping = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopping.set)
    settings = load(EngineSettings)
    folder = Path(spec.models_dir)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    weights = ConvertedWeights(
        RelayedFiles(Path(spec.files_socket)), folder, settings.converted_max
    )
    try:
        is_there = await unless_stopping(weights.fetch(spec.base), stopping)
    except Refusal as refused:
        return fail(emit, refused)
    if is_there:
        await answer_until(stopping, spec, weights, settings, emit)
    emit(Preempted())
    return ExitCode.PREEMPTED


async def answer_until(
    stopping: asyncio.Event,
    spec: ReplicaSpec,
    weights: ConvertedWeights,
    settings: EngineSettings,
    emit: Emit,
) -> None:
    """Answer until it is time to stop, and end when all that was begun is answered."""
    engine = LlamaEngine(
        answers_max=settings.answers_max,
        context_tokens=settings.context_tokens,
        threads=spec.threads,
    )
    models = LoadedModels(
        weights, engine, models_max=settings.models_max, answers_max=settings.answers_max
    )
    meter = AnswerMeter(Path(spec.answers_dir))
    limits = QuestionLimits(
        all_max=QUESTIONS_MAX, tenant_max=QUESTIONS_MAX, answer_ms_max=settings.answer_ms_max
    )
    host = EngineHost(models, Path(spec.socket), meter, limits)
    answering = asyncio.create_task(host.run(), name="replica")
    try:
        await unless_stopping(ready_or_ended(host, answering), stopping)
        emit(ReplicaReady())
        while not await is_set_within(EVERY_S, stopping):
            await asyncio.to_thread(meter.close_file)
            emit(ReplicaAlive())
            if answering.done():
                answering.result()
        await host.drain()
    finally:
        answering.cancel()
        await asyncio.wait((answering,))
        meter.close_file()


async def ready_or_ended(host: EngineHost, answering: asyncio.Task[None]) -> None:
    """Return when it answers. Raises what has ended it before, such as OSError."""
    ready = asyncio.ensure_future(host.ready())
    try:
        await asyncio.wait((ready, answering), return_when=asyncio.FIRST_COMPLETED)
    finally:
        ready.cancel()
    if answering.done():
        answering.result()


async def unless_stopping(work: Awaitable[object], stopping: asyncio.Event) -> bool:
    """Wait for work; return False if stopping came first. Raises the errors of the work."""
    doing = asyncio.ensure_future(work)
    stopped = asyncio.ensure_future(stopping.wait())
    try:
        await asyncio.wait((doing, stopped), return_when=asyncio.FIRST_COMPLETED)
        if not doing.done():
            return False
        doing.result()
        return True
    finally:
        doing.cancel()
        stopped.cancel()


async def is_set_within(seconds: float, event: asyncio.Event) -> bool:
    with suppress(TimeoutError):
        await asyncio.wait_for(event.wait(), seconds)
    return event.is_set()


def fail(emit: Emit, refused: Refusal) -> ExitCode:
    """Report why this node cannot serve the base model; other nodes may have what it lacks."""
    cause: FailureCause = "bad_node" if refused.code == STALE_BASE else "platform"
    advice = "The engine's log on the node says more."
    emit(Failed(cause=cause, message=refused.message, advice=advice))
    return EXIT_OF_CAUSE[cause]


if __name__ == "__main__":
    main()
