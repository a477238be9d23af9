"""`integrations` of OpenAI's body: a real MLflow gets a job's figures from the server, and what the
server writes for TensorBoard and W&B is read back by their own packages. The job is submitted by
the unmodified `openai` package.
"""

import asyncio
import json
import zipfile
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest
import pytest_asyncio
from openai import AsyncOpenAI

from tests.clients.mlflow_servers import free_port, mlflow_server
from tests.clients.programs import MLFLOW, TENSORBOARD, WANDB, command_of
from tests.e2e.stories import RunningStack, running_stack, tunery
from tests.environments import site_packages

pytestmark = pytest.mark.timeout(600)

SEEN_S_MAX: Final = 120
EPOCHS: Final = 24  # long enough for a server to be killed and started while it trains


class Stack(NamedTuple):
    """A running stack, the programs of MLflow, and a client of the API."""

    home: RunningStack
    mlflow: Path
    openai: AsyncOpenAI


@pytest_asyncio.fixture(scope="module", loop_scope="session", name="stack")
async def stack_with_wandb(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Stack]:
    """W&B's package, and what it needs, are installed for the gateway alone."""
    folder = tmp_path_factory.mktemp("wandb")
    wandb = await asyncio.to_thread(command_of, WANDB, folder)
    mlflow = await asyncio.to_thread(command_of, MLFLOW, folder)
    ours = {path.name for path in site_packages().iterdir()}
    for path in site_packages(Path(wandb[0]).parent).iterdir():
        if path.name not in ours:
            (folder / path.name).symlink_to(path)
    root = Path(__file__).parents[2]
    environment = {"PYTHONPATH": f"{root}:{folder}"}
    async with (
        running_stack(gateway=environment) as home,
        AsyncOpenAI(base_url=f"{home.stack.api_url}/v1", api_key=home.stack.admin_key) as client,
    ):
        yield Stack(home, Path(mlflow[0]).parent, client)


async def submit(stack: Stack, *integrations: dict[str, Any], epochs: int) -> str:
    """The id of a job that was submitted by the package."""
    home = stack.home
    job = await stack.openai.fine_tuning.jobs.create(
        model=home.base,
        training_file=home.file_id,
        method=home.request(n_epochs=epochs)["method"],
        integrations=integrations,  # type: ignore[arg-type]  # two of the types are ours
        extra_body={"training": {"max_length": 128}},
    )
    assert [asked.type for asked in job.integrations or ()] == [
        asked["type"] for asked in integrations
    ]
    return job.id


async def read_by(program: str, folder: Path, *words: str) -> Any:
    """Run the script of a program, and return its report on a job."""
    command = await asyncio.to_thread(command_of, program, folder, f"{program}_mirror")
    process = await asyncio.create_subprocess_exec(
        *(*command, *words),
        cwd=folder,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    out, _ = await process.communicate()
    said = out.decode()
    assert process.returncode == 0, said
    return json.loads([line for line in said.splitlines() if line.startswith("{")][-1])


async def figures(home: RunningStack, job_id: str) -> dict[str, float]:
    """The losses of a job, by step, as the API has them."""
    path, losses = f"/fine_tuning/jobs/{job_id}/metrics", dict[str, float]()
    after: dict[str, str] = {}
    while True:
        page = await home.api.get(path, limit=100, **after)
        losses |= {str(step["step"]): step["train_loss"] for step in page["data"]}
        if not page["has_more"]:
            return losses
        after = {"after": page["data"][-1]["id"]}


async def until_message(home: RunningStack, job_id: str, words: str) -> None:
    path = f"/fine_tuning/jobs/{job_id}/events"

    def is_said(page: Any) -> bool:
        return any(words in event["message"] for event in page["data"])

    await home.api.until(path, is_said, SEEN_S_MAX, limit=1_000)


async def test_mlflow_is_killed_and_started_again_while_a_job_is_written_to_it(
    stack: Stack, tmp_path: Path
) -> None:
    home, port = stack.home, free_port()
    async with AsyncExitStack() as first:
        url = await first.enter_async_context(mlflow_server(stack.mlflow, tmp_path, port))
        for words in (("set", url), ("show",)):
            status, said = await tunery(home.stack.folders.root, "mlflow", *words)
            assert (status, url in said) == (0, True), said
        asked = {"type": "mlflow", "mlflow": {"experiment": "lamps"}}
        job_id = await submit(stack, asked, epochs=EPOCHS)
        async with asyncio.timeout(SEEN_S_MAX):
            while True:
                try:
                    early = await read_by(MLFLOW, tmp_path, job_id, url, "running")
                except AssertionError:
                    early = {"points": 0}  # its run is not there yet
                if early["points"] > 0:
                    break
                await asyncio.sleep(0.5)
    job = await home.api.get(f"/fine_tuning/jobs/{job_id}")
    assert job["status"] == "running"
    await until_message(home, job_id, "The figures are not in MLflow yet: the server does not")
    async with mlflow_server(stack.mlflow, tmp_path, port):
        job = await home.api.ended(job_id)
        await until_message(home, job_id, "The figures are in MLflow")
        shown = await read_by(MLFLOW, tmp_path, job_id, url)
    losses = await figures(home, job_id)
    assert early["points"] < len(losses)
    assert (shown["runs"], shown["points"]) == (1, len(losses))
    assert shown["losses"] == pytest.approx(losses, rel=1e-6)
    assert shown["parameters"]["training_file"] == home.file_id
    assert shown["parameters"]["n_epochs"] == str(EPOCHS)
    assert shown["summary"]["status"] == "succeeded"
    assert shown["summary"]["fine_tuned_model"] == job["fine_tuned_model"]
    status, said = await tunery(home.stack.folders.root, "mlflow", "remove")
    assert status == 0, said
    failing = [text for text in await home.api.messages(job_id) if "not in MLflow" in text]
    assert len(failing) == 1


async def test_result_files_are_read_by_tensorboard_and_by_the_package_of_wandb(
    stack: Stack, tmp_path: Path
) -> None:
    home = stack.home
    wandb = {"type": "wandb", "wandb": {"project": "lamps", "name": "try 1", "tags": ["a"]}}
    job_id = await submit(stack, wandb, {"type": "tensorboard"}, epochs=1)
    asked = (await stack.openai.fine_tuning.jobs.retrieve(job_id)).integrations
    assert asked is not None
    assert (asked[0].wandb.project, asked[0].wandb.name) == ("lamps", "try 1")
    await home.api.ended(job_id)
    path = f"/fine_tuning/jobs/{job_id}"
    await home.api.until(path, lambda job: len(job["result_files"]) == 3, SEEN_S_MAX)
    job = await stack.openai.fine_tuning.jobs.retrieve(job_id)
    names = {}
    for file_id in job.result_files:
        file = await stack.openai.files.retrieve(file_id)
        assert file.purpose == "fine-tune-results"
        content = await stack.openai.files.content(file_id)
        (tmp_path / job_id).mkdir(exist_ok=True)
        names[file.filename] = tmp_path / job_id / file.filename
        names[file.filename].write_bytes(content.content)
    (archive,) = [path for name, path in names.items() if name.endswith(".zip")]
    with zipfile.ZipFile(archive) as packed:
        packed.extractall(tmp_path / WANDB)  # written by our own server
    losses = await figures(home, job_id)
    for program in (TENSORBOARD, WANDB):
        shown = await read_by(program, tmp_path, job_id)
        assert shown["losses"] == pytest.approx(losses, rel=1e-6)
        assert shown["points"] == len(losses)
        assert shown["parameters"]["n_epochs"] == "1"
        assert shown["summary"]["status"] == "succeeded"
