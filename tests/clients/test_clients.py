"""Tools that were written for OpenAI's fine-tuning, unchanged, against a whole stack."""

import asyncio
import json
import os
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, nullcontext
from pathlib import Path
from typing import Any, Final

import pytest
import pytest_asyncio
from click.testing import CliRunner

from bench import scoring
from tests.bases import tiny_base
from tests.clients.imported_tasks import score_tasks, write_tasks
from tests.clients.mlflow_servers import mlflow_server
from tests.clients.page_script import code_below
from tests.clients.programs import (
    ASKING,
    HERE,
    LEFT_OUT,
    LLAMA_CPP,
    LM_EVAL,
    MIRRORS,
    MLFLOW,
    NODE,
    ON_PAGE,
    TOOLS,
    WANDB,
    command_of,
)
from tests.e2e.shared.test_tinker import PAGE as TINKER_PAGE
from tests.e2e.shared.test_tinker import run_page
from tests.e2e.stories import TINY, RunningStack, rows, running_stack, tunery
from tests.environments import newest_version
from tests.unit.tunery.provenance.signed import NOW, TERMS, new_key, sign_folder, trust_in
from tunery.cli.main import main
from tunery.provenance.folders import compare_folder

pytestmark = pytest.mark.timeout(600)

RUN_S_MAX: Final = 300
ALIAS: Final = "gpt-4o-mini-2024-07-18"
ANSWERING: Final = frozenset({"dspy", "litellm", "llama_index", "openai_node"})
#: what else they train than the base model; two know by a table which models answer chats
MODELS: Final = {"dspy": ALIAS, "instructor": TOOLS, "llama_index": ALIAS}
TOOLS_SHOWN: Final = (
    "{% if tools %}{{ '<|im_start|>system\n' + (tools | tojson) + '<|im_end|>\n' }}{% endif %}"
)
CONTENT_AND_CALLS: Final = (
    "(message['content'] or '') + ('<tool_call>\n' + (message.tool_calls[0].function | tojson) "
    "+ '\n</tool_call>' if message.tool_calls else '')"
)
GUIDES: Final = Path(__file__).parents[2] / "docs" / "how-to"
PAGE: Final = GUIDES / "run-an-adapter.md"
PROGRAMS_PAGE: Final = GUIDES / "your-model-in.md"
#: programs whose code on that page asks for a type, or forces a call
TYPED: Final = ("instructor", "langchain", "openai_agents", "pydantic_ai")
MIRROR_PAGE: Final = GUIDES / "mirror-metrics.md"


@pytest_asyncio.fixture(scope="module", loop_scope="session", name="home")
async def ready_stack(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RunningStack]:
    folder = tmp_path_factory.mktemp("bases") / TOOLS
    shutil.copytree(tiny_base().dir, folder)
    template = folder / "chat_template.jinja"
    text = template.read_text(encoding="utf-8").replace("message['content']", CONTENT_AND_CALLS)
    template.write_text(TOOLS_SHOWN + text, encoding="utf-8")
    async with running_stack() as home:
        await home.api.post("/bases", {"id": TOOLS, "path": str(folder)})
        await home.api.post(f"/bases/{home.base}/aliases", {"aliases": [ALIAS]})
        yield home


async def test_the_newest_tinker_sdk_runs_the_loop_of_the_page(
    home: RunningStack, tmp_path: Path
) -> None:
    """A newer one than the page names has to be tried, and named there, before people have it."""
    version = await asyncio.to_thread(newest_version, "tinker")
    variables = {
        "OPENAI_BASE_URL": f"{home.stack.api_url}/v1",
        "OPENAI_API_KEY": home.stack.admin_key,
        "TUNERY_MODEL": home.base,
    }
    losses = await run_page(version, variables, tmp_path)
    assert losses[-1] < losses[0]
    assert f"{version} the loop below" in TINKER_PAGE.read_text("utf-8"), version


async def run_script(
    home: RunningStack,
    program: str,
    folder: Path,
    argument: Path | str,
    model: str | None = None,
    script: str | None = None,
) -> Any:
    """The JSON that a program's script prints last. model: None: that of its table. script: another
    one that is run in its environment.
    """
    command = await asyncio.to_thread(command_of, program, folder, script)
    process = await asyncio.create_subprocess_exec(
        *(*command, str(argument)),
        cwd=folder,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        env={
            "PATH": os.environ["PATH"],
            "HOME": str(folder),
            "OPENAI_BASE_URL": f"{home.stack.api_url}/v1",
            "OPENAI_API_KEY": home.stack.admin_key,
            "TUNERY_MODEL": model or MODELS.get(program, home.base),
            "MODEL": model or home.base,  # as the page says
            "WANDB_MODE": "offline",
            "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        },
    )
    async with asyncio.timeout(RUN_S_MAX):
        out, _ = await process.communicate()
    said = out.decode()
    assert process.returncode == 0, said
    return json.loads([line for line in said.splitlines() if line.startswith("{")][-1])


@pytest.mark.parametrize("client", LEFT_OUT)
async def test_first_hour_s02_a_client_trains_a_model_unchanged(
    home: RunningStack, client: str, tmp_path: Path
) -> None:
    (tmp_path / "rows.jsonl").write_bytes(rows())
    said = await run_script(home, client, tmp_path, tmp_path / "rows.jsonl")
    jobs = (await home.api.get("/fine_tuning/jobs", limit=2))["data"]
    (job,) = [job for job in jobs if job["status"] == "succeeded"][:1]
    assert said["model"] == job["fine_tuned_model"]
    assert said.get("job", job["id"]) == job["id"]
    assert client not in ANSWERING or said["answer"].strip()


@pytest.mark.parametrize("program", ASKING)
@pytest.mark.parametrize("base", [TOOLS, TINY])
async def test_first_hour2_u4_a_framework_forces_and_types_calls_by_its_defaults(
    home: RunningStack, program: str, base: str, tmp_path: Path
) -> None:
    """With a template that knows tools, and with one that does not."""
    said = await run_script(home, program, tmp_path, tmp_path, model=base)
    numbers = said["answer"] if isinstance(said["answer"], list) else [said["answer"]]
    assert numbers
    assert set(numbers) <= {3, 9}


@pytest.mark.parametrize("program", ON_PAGE)
async def test_review2_44_the_page_runs_in_each_program_as_it_is_written(
    home: RunningStack, program: str, tmp_path: Path
) -> None:
    heading = ON_PAGE[program]
    argument = f"{PROGRAMS_PAGE}#{heading}"
    if program == NODE:
        page = PROGRAMS_PAGE.read_text(encoding="utf-8")
        code = code_below(page, heading, "js").replace("console.log(", "say(")
        said = "const say = (answer) => console.log(JSON.stringify({ answer }));\n"
        (tmp_path / "page.mjs").write_text(said + code, encoding="utf-8")
    typed = program in TYPED
    for base in (TOOLS, home.base) if typed else (TOOLS,):
        printed = await run_script(home, program, tmp_path, argument, base, "page")
        assert printed["answer"] in ("good", "bad") if typed else printed["answer"].strip()


async def test_first_hour_13_the_page_on_adapters_runs_and_llama_cpp_gives_the_same_answer(
    home: RunningStack, tmp_path: Path
) -> None:
    """A trained adapter, downloaded with its base; then the code of the page."""
    base = {"id": home.base, "path": str(tiny_base().dir), "shared": True}
    await home.api.post("/bases", base)
    model = (await home.api.ended(await home.submit(n_epochs=1)))["fine_tuned_model"]
    words = ("model", "download", model, str(tmp_path / "adapter"), "--with-base")
    status, said = await tunery(home.stack.folders.root, *words)
    assert status == 0, said
    answers = await run_script(home, LLAMA_CPP, tmp_path, PAGE)
    assert answers["transformers"].strip() != ""
    assert answers["llama_cpp"] == answers["transformers"]


# peft 0.21 asks transformers 5 by a name that is going away
@pytest.mark.filterwarnings("ignore:.*gradient_checkpointing:FutureWarning")
async def test_the_scorer_gives_the_likelihoods_of_lm_evaluation_harness(tmp_path: Path) -> None:
    """Each side, five examples before every question; the harness reads each answer by itself."""
    base = tiny_base().dir
    scoring.write_adapter(base, tmp_path / "adapter")
    scoring.write_requests(24, tmp_path / "requests.json")
    (tmp_path / "base.json").write_text(json.dumps(str(base)))
    ours = await asyncio.to_thread(scoring.run_ours, tmp_path, 1)
    command = await asyncio.to_thread(command_of, LM_EVAL, HERE)
    theirs = await asyncio.to_thread(scoring.run, *command, str(tmp_path), "1")
    figures = scoring.compare(ours, theirs)
    assert figures["answers_changed"] == 0
    assert figures["largest_difference"] <= 5e-5
    assert ours["base"] != ours["adapter"]


async def test_a_registered_version_is_read_back_by_mlflow_and_is_as_it_was_signed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, key = tmp_path / "model", new_key(tmp_path / "keys")
    sign_folder(folder, key)
    script = await asyncio.to_thread(command_of, MLFLOW, tmp_path)
    async with mlflow_server(Path(script[0]).parent, tmp_path) as url:
        words = ("model", "register", str(folder), "--server", url, "--alias", "champion")
        for version in ("1", "2"):
            done = await asyncio.to_thread(CliRunner().invoke, main, [*words, "--json"])
            assert done.exit_code == 0, done.output
            known = json.loads(done.output)
            assert known["version"] == version
        monkeypatch.setenv("MLFLOW_TRACKING_URI", url)
        named = f"{known['name']}@champion"
        read = await asyncio.to_thread(
            subprocess.run, [*script, named], cwd=tmp_path, capture_output=True, check=True
        )
    said = json.loads(read.stdout.splitlines()[-1])
    assert said["version"] == "2"
    assert said["tags"] == {"tunery.model_id": TERMS.model_id}
    assert said["params"]["base_sha256"] == TERMS.lineage.base_sha256
    compared = compare_folder(tmp_path / "downloaded", trust_in(key), NOW)
    assert [file.name for file in compared if file.difference] == []


@pytest.mark.parametrize("program", MIRRORS)
async def test_a_mirrored_job_is_read_by_the_program_itself(
    home: RunningStack, program: str, tmp_path: Path
) -> None:
    """The command of the page follows a running job; it is run again when that has ended."""
    script = await asyncio.to_thread(command_of, program, tmp_path, f"{program}_mirror")
    programs = Path(script[0]).parent
    server: AbstractAsyncContextManager[str] = nullcontext("")
    if program == MLFLOW:
        server = mlflow_server(programs, tmp_path)
    async with server as url:
        job_id = await home.submit(n_epochs=1)
        words = mirror_words(program, job_id, url)
        for _ in range(2):
            command = cli_beside(programs if program == WANDB else None)
            mirrored = await finished_in(
                tmp_path, *command, *words, "--json", "--data-dir", str(home.stack.folders.root)
            )
        assert (mirrored["status"], mirrored["steps"] > 0) == ("succeeded", True)
        shown = await finished_in(tmp_path, *script, job_id, url)
    steps = (await home.api.get(f"/fine_tuning/jobs/{job_id}/metrics", limit=1_000))["data"]
    job = await home.api.get(f"/fine_tuning/jobs/{job_id}")
    losses = {str(step["step"]): step["train_loss"] for step in steps}
    assert shown["runs"] == 1
    assert shown["losses"] == pytest.approx(losses, rel=1e-6)
    assert shown["points"] == len(steps) == mirrored["steps"]
    assert shown["parameters"]["training_file"] == job["training_file"]
    assert shown["parameters"]["n_epochs"] == "1"
    assert shown["summary"]["gate"] == job["gate"]["verdict"]
    assert shown["summary"]["cost_micro"] == str(job["cost"]["amount_micro"])


def mirror_words(program: str, job_id: str, url: str) -> list[str]:
    """The command of the page for a program, about another job and server."""
    option = MIRRORS[program]
    commands = [
        line.removeprefix("$ tunery ").split()
        for line in MIRROR_PAGE.read_text(encoding="utf-8").splitlines()
        if line.startswith("$ tunery job mirror") and option in line
    ]
    replaced = {"ftjob-91…": job_id, "http://127.0.0.1:5000": url}
    return [replaced.get(word, word) for word in commands[0]]


def cli_beside(programs: Path | None) -> tuple[str, ...]:
    """The command line, where packages of another environment are installed beside ours."""
    if programs is None:
        return (sys.executable, "-m", "tunery.cli.main")
    (packages,) = programs.parent.glob("lib/python*/site-packages")
    code = (
        f"import sys; sys.path.append({str(packages)!r}); from tunery.cli.main import main; main()"
    )
    return (sys.executable, "-c", code)


async def finished_in(folder: Path, *command: str) -> Any:
    """The JSON that a command prints last, which runs in a folder."""
    process = await asyncio.create_subprocess_exec(
        *command,
        cwd=folder,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        env={**os.environ, "PYTHONPATH": str(HERE.parents[1])},
    )
    async with asyncio.timeout(RUN_S_MAX):
        out, _ = await process.communicate()
    said = out.decode()
    assert process.returncode == 0, said
    return json.loads([line for line in said.splitlines() if line.startswith("{")][-1])


@pytest.mark.filterwarnings("ignore:.*gradient_checkpointing:FutureWarning")
async def test_imported_benchmarks_have_texts_and_scores_of_lm_evaluation_harness(
    tmp_path: Path,
) -> None:
    """Five published formats, imported by us and read by the harness' own tasks: same texts, same
    likelihoods, same scores."""
    base = tiny_base().dir
    scoring.write_adapter(base, tmp_path / "adapter")
    (tmp_path / "base.json").write_text(json.dumps(str(base)))
    contents = write_tasks(tmp_path)
    ours = await asyncio.to_thread(score_tasks, tmp_path, contents)
    command = await asyncio.to_thread(command_of, LM_EVAL, HERE, "lm_eval_tasks")
    theirs = await asyncio.to_thread(scoring.run, *command, str(tmp_path), "1")
    for name, documents in theirs.items():
        for number, document in enumerate(documents):
            context, likelihoods, score = ours[name][number]
            assert context == document["context"], name
            assert likelihoods == pytest.approx(document["likelihoods"], abs=5e-5), name
            assert score == pytest.approx(document["score"], abs=5e-5), name
