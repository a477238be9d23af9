"""The story, chapter by chapter. Every sentence that promises something checks it."""

import asyncio
import shutil
import tempfile
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tunery.cli._stack_view import Lines
from tunery.cli.demo.claims import Told
from tunery.cli.demo.context import Scene
from tunery.cli.demo.display import View
from tunery.cli.demo.polling import Late
from tunery.cli.demo.receiver import receiving
from tunery.cli.demo.steps import results, submission, training
from tunery.client import AsyncApi, Refused, Unreachable
from tunery.local.errors import LocalError
from tunery.local.initial_setup import run_setup_steps
from tunery.local.lifecycle import stop_signals
from tunery.local.stack import AGENT, SERVICES, ServiceSpec, stack

CHAPTERS: Final = (
    submission.bad_file,
    submission.good_file,
    submission.estimate,
    submission.submit,
    training.train_and_kill,
    training.resume,
    results.gate,
    results.registry,
    results.answers,
    results.webhook,
    results.bill,
    results.replay,
)
NEXT: Final = """
What to try next
   tunery up                 the same stack, to keep; it prints two exports, and your OpenAI code
                             runs against it as it is
   tunery data check FILE    every bad row of your own file, no server needed
   tunery job submit --help  a job of your own"""


@dataclass(frozen=True)
class Options:
    data: Path | None
    keep: bool


async def tell(options: Options, view: View) -> Told:
    """Run the demo. Breaking off is told, not raised."""
    told = Told()
    folder = Path(tempfile.mkdtemp(prefix="tunery-demo-"))
    folder.chmod(0o711)  # PostgreSQL runs as another user when we are root
    telling = asyncio.create_task(_tell(options, view, told, folder))
    with stop_signals() as end:
        ending = asyncio.create_task(end.wait())
        await asyncio.wait({telling, ending}, return_when=asyncio.FIRST_COMPLETED)
        ending.cancel()
        telling.cancel()  # does nothing when it is over; else everything is stopped in order
    try:
        await telling
    except asyncio.CancelledError:
        told.trouble = "it was told to stop"
    except (LocalError, Refused, Unreachable, Late, OSError) as error:
        told.trouble = f"{type(error).__name__}: {error}"
    told.figures["demo_seconds"] = round(view.seconds, 1)
    if options.keep or not told.all_held:
        view.line(f"kept: {folder} (logs in {folder}/logs)")
    else:
        await asyncio.to_thread(shutil.rmtree, folder, True)
    if told.all_held:
        view.console.print(NEXT, soft_wrap=True)
    return told


def services() -> list[str | ServiceSpec]:
    """All but the agent; the notifier may call our receiver on 127.0.0.1."""
    return [
        ServiceSpec(name, env={"TUNERY_NOTIFIER_ALLOW_PRIVATE": "1"})
        if name == "notifier"
        else name
        for name in SERVICES
        if name != AGENT
    ]


async def _tell(options: Options, view: View, told: Told, folder: Path) -> None:
    async with AsyncExitStack() as cleanup:
        receiver = cleanup.enter_context(receiving())
        view.chapter("Kafka, PostgreSQL, Valkey, S3 and eight services on this machine")
        running = await cleanup.enter_async_context(
            stack(folder, services(), listen=Lines(view.console).hear)
        )
        await run_setup_steps(running, view.line)
        api = await cleanup.enter_async_context(
            AsyncApi(f"{running.api_url}/v1", running.admin_key)
        )
        scene = Scene(running, api, view, told, receiver, options.data)
        await training.agents(scene)
        for chapter in CHAPTERS:
            await chapter(scene)
