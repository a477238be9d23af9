"""Runs the demo step by step. Every line that promises something is checked."""

import asyncio
import shutil
import tempfile
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tunery.cli._stack_view import EventPrinter
from tunery.cli.console import new_code
from tunery.cli.demo.claims import CLAIMS, CLAIMS_IN_PODS, CLAIMS_OF_A_MOVE, DemoResult
from tunery.cli.demo.context import DemoContext
from tunery.cli.demo.display import Display
from tunery.cli.demo.polling import DeadlineExceeded
from tunery.cli.demo.receiver import receiving
from tunery.cli.demo.steps import moving, results, serving, submission, training
from tunery.client import ApiRefusal, AsyncApi, Unreachable
from tunery.exit_kit.stand_in import account_stub
from tunery.local.errors import LocalError
from tunery.local.initial_setup import run_setup_steps
from tunery.local.kubernetes import laptop
from tunery.local.lifecycle import stop_signals
from tunery.local.stack import AGENT, SERVICES, ServiceSpec, stack

STEPS: Final = (
    submission.bad_file,
    submission.good_file,
    submission.estimate,
    submission.submit,
    training.train_and_kill,
    training.resume,
    results.gate,
    results.registry,
    results.webhook,
    results.bill,
    serving.submit_second,
    serving.answers,
    serving.verify,
    serving.share,
    results.replay,
)
STEPS_OF_A_MOVE: Final = (
    moving.read,
    moving.teach,
    moving.train,
    moving.compare,
    moving.chat,
)
NEXT: Final = """
What to try next
   tunery up                 the same stack, to keep; it prints two exports, and your OpenAI code
                             runs against it as it is
   tunery data check FILE    every bad row of your own file, no server needed
   tunery job submit --help  a job of your own"""


@dataclass(frozen=True)
class DemoOptions:
    """Options of the demo."""

    data: Path | None  # the user's training file; None: the example
    from_openai: bool  # the move from an account instead of the whole loop
    kubernetes: bool  # trains in pods of a small cluster
    keep: bool  # stay up after the last step, and leave the data directory


async def run_demo(options: DemoOptions, display: Display) -> DemoResult:
    """Run every step in a new data directory. A failure is in the result, not raised."""
    claims = CLAIMS_IN_PODS if options.kubernetes else CLAIMS
    if options.from_openai:
        claims = CLAIMS_OF_A_MOVE
    result = DemoResult(held=dict.fromkeys(claims, False))
    folder = Path(tempfile.mkdtemp(prefix="tunery-demo-"))
    folder.chmod(0o711)  # PostgreSQL runs as another user when we are root
    steps = asyncio.create_task(_run_steps(options, display, result, folder))
    with stop_signals() as stop:
        stopping = asyncio.create_task(stop.wait())
        await asyncio.wait({steps, stopping}, return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        steps.cancel()  # does nothing when they are done; else the stack is stopped in order
    try:
        await steps
    except asyncio.CancelledError:
        result.failure = "it was asked to stop"
    except (LocalError, ApiRefusal, Unreachable, DeadlineExceeded, OSError) as error:
        result.failure = f"{type(error).__name__}: {error}"
    result.figures["demo_seconds"] = round(display.seconds, 1)
    if options.keep or not result.all_held:
        display.line(f"data directory kept: {folder} (logs in {folder}/logs)")
    else:
        await asyncio.to_thread(shutil.rmtree, folder, True)
    if result.all_held:
        display.console.print(NEXT, soft_wrap=True)
    return result


def services() -> list[str | ServiceSpec]:
    """Services other than the agent; the notifier may call our receiver on 127.0.0.1."""
    return [
        ServiceSpec(name, env={"TUNERY_NOTIFIER_ALLOW_PRIVATE": "1"})
        if name == "notifier"
        else name
        for name in SERVICES
        if name != AGENT
    ]


async def _run_steps(
    options: DemoOptions, display: Display, result: DemoResult, folder: Path
) -> None:
    async with AsyncExitStack() as cleanup:
        receiver = cleanup.enter_context(receiving())
        display.step("Kafka, PostgreSQL, Valkey, S3 and ten services on this machine")
        if options.kubernetes:
            await asyncio.to_thread(laptop.install)
        running = await cleanup.enter_async_context(
            stack(
                folder,
                services(),
                listen=EventPrinter(display.console).print_event,
                kubernetes=options.kubernetes,
            )
        )
        await run_setup_steps(running, display.line)
        api = await cleanup.enter_async_context(
            AsyncApi(f"{running.api_url}/v1", running.admin_key)
        )
        context = DemoContext(
            running, api, display, result, receiver, options.data, options.kubernetes
        )
        if options.from_openai:
            context.account = cleanup.enter_context(account_stub())
        await training.start_agents(context, to_lose_one=not options.from_openai)
        await show_console(context, "the console, while this runs")
        for step in STEPS_OF_A_MOVE if options.from_openai else STEPS:
            await step(context)
        if options.keep:
            await stay_up(context)


async def show_console(context: DemoContext, what: str) -> None:
    """Print an address that signs one browser in. A recording has no use for it."""
    site = context.stack.api_url
    code = await asyncio.to_thread(new_code, site, context.stack.admin_key)
    text = f"   {what}: {site}{code['path']} (once, within two minutes)"
    context.display.console.print(text, soft_wrap=True, markup=False)


async def stay_up(context: DemoContext) -> None:
    """Leave everything up until the command is asked to stop, which is no failure."""
    await show_console(context, "everything stays up until Ctrl-C; the console")
    with suppress(asyncio.CancelledError):
        await asyncio.Event().wait()
