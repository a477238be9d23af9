"""A model is trained and then asked, with the same client of the `openai` package."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import asyncpg
import httpx
import openai
import pytest
import pytest_asyncio
from transformers import AutoTokenizer

from tests.e2e import stories
from tests.e2e.stories import POLL_S, TINY, Api, RunningStack, running_stack, tunery
from tunery.local import processes

pytestmark = pytest.mark.train

ASKED: list[Any] = [{"role": "user", "content": "What is 3 plus 6?"}]
LOADED_S_MAX = 480.0


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def home() -> AsyncIterator[RunningStack]:
    async with running_stack() as running:
        yield running


def sdk(home: RunningStack, retries: int = 2, key: str = "") -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(
        base_url=f"{home.stack.api_url}/v1",
        api_key=key or home.stack.admin_key,
        timeout=LOADED_S_MAX,
        max_retries=retries,
    )


async def asked(client: openai.AsyncOpenAI, model: str, tokens: int = 12) -> str:
    """The likeliest answer, in one piece."""
    answer = await client.chat.completions.create(
        model=model, messages=ASKED, temperature=0, max_tokens=tokens
    )
    assert answer.usage is not None
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens
    assert 0 < answer.usage.completion_tokens <= tokens
    return answer.choices[0].message.content or ""


async def streamed(client: openai.AsyncOpenAI, model: str) -> tuple[str, int]:
    """The likeliest answer in parts, and the number of its chunks."""
    stream = await client.chat.completions.create(
        model=model,
        messages=ASKED,
        temperature=0,
        max_tokens=12,
        stream=True,
        stream_options={"include_usage": True},
    )
    chunks = [chunk async for chunk in stream]
    assert chunks[-1].usage is not None
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    return text, len(chunks)


async def test_a_trained_model_answers_in_the_client_that_trained_it(home: RunningStack) -> None:
    async with sdk(home) as client:
        job_id = await home.submit()
        job = await client.fine_tuning.jobs.retrieve(job_id)
        await home.api.ended(job_id)
        job = await client.fine_tuning.jobs.retrieve(job_id)
        assert job.fine_tuned_model is not None
        tuned, base = [await asked(client, model) for model in (job.fine_tuned_model, TINY)]
        many = await asyncio.gather(*(asked(client, TINY, 4) for _ in range(60)))
        assert len(set(many)) == 1  # U23: all of them are answered, and alike
        assert tuned != base
        words = ("job", "answers", job_id, "--prompt", ASKED[0]["content"], "--json")
        status, said = await tunery(home.stack.folders.root, *words)
        assert status == 0, said
        (pair,) = json.loads(said)
        assert pair["base"] != pair["adapter"]
        for model, whole in ((job.fine_tuned_model, tuned), (TINY, base)):
            text, chunks = await streamed(client, model)
            assert text == whole
            response = await client.responses.create(
                model=model, input=ASKED[0]["content"], temperature=0, max_output_tokens=12
            )
            assert response.output_text == whole
            completed = await client.completions.create(
                model=model, prompt="3 plus 6 is", temperature=0, max_tokens=4
            )
            assert completed.choices[0].text
            assert chunks > 3


OWN_TEMPLATE = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' }}"
    "{{ message['content'] + '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


async def test_bases_f7_a_model_with_a_template_of_its_job_is_asked_with_it(
    home: RunningStack, tmp_path: Path
) -> None:
    """The base model's template begins with a system message, and that of the job does not."""
    training = {"chat_template": OWN_TEMPLATE, "eot_tokens": ["<|endoftext|>"]}
    job = await home.api.ended(await home.submit(training=training))
    model, folder = str(job["fine_tuned_model"]), tmp_path / "adapter"
    root = home.stack.folders.root
    for words in (("download", model, str(folder)), ("verify", str(folder))):
        status, said = await tunery(root, "model", *words)
        assert status == 0, said
    tokenizer = AutoTokenizer.from_pretrained(folder)
    assert (tokenizer.chat_template, tokenizer.eos_token) == (OWN_TEMPLATE, "<|endoftext|>")
    ends = json.loads((folder / "generation_config.json").read_bytes())["eos_token_id"]
    assert ends[0] == tokenizer.eos_token_id
    lineage = json.loads((folder / "lineage.json").read_bytes())["lineage"]
    assert len(lineage["chat_sha256"]) == 64
    own = tokenizer.apply_chat_template(ASKED, add_generation_prompt=True, return_dict=True)
    checkpoints = await home.api.get(f"/fine_tuning/jobs/{job['id']}/checkpoints")
    checkpoint = checkpoints["data"][0]["fine_tuned_model_checkpoint"]
    async with sdk(home) as client:
        answers = [
            await client.chat.completions.create(model=name, messages=ASKED, max_tokens=4)
            for name in (model, checkpoint, TINY)
        ]
    read = [answer.usage.prompt_tokens for answer in answers if answer.usage is not None]
    assert read[0] == read[1] == len(own["input_ids"]) < read[2]
    shown = await home.api.get(f"/fine_tuning/jobs/{job['id']}/answers")
    assert all(pair["base"] and pair["adapter"] for pair in shown["data"])
    again = await home.api.ended(await home.submit(model=model))
    recipe = (await home.api.get(f"/fine_tuning/jobs/{again['id']}/recipe"))["recipe"]
    assert {name: recipe["training"][name] for name in training} == training


async def test_a_question_above_the_context_is_refused_as_openai_does(home: RunningStack) -> None:
    async with sdk(home) as client:
        await asked(client, TINY)
        with pytest.raises(openai.BadRequestError) as refused:
            await client.chat.completions.create(
                model=TINY, messages=[{"role": "user", "content": "who are you? " * 4_000}]
            )
        assert refused.value.code == "context_length_exceeded"
        with pytest.raises(openai.NotFoundError) as unknown:
            await asked(client, "ft:tiny:another::12345678")
        assert unknown.value.code == "model_not_found"


async def counted(home: RunningStack, key_id: str, requests: int) -> dict[str, int]:
    """Sums of a key's counts of this month, once they have this number of requests."""

    def sums(page: Any) -> dict[str, int]:
        results = [result for bucket in page["data"] for result in bucket["results"]]
        names = ("num_model_requests", "input_tokens", "output_tokens")
        of_key = [result for result in results if result["api_key_id"] == key_id]
        return {name: sum(result[name] for result in of_key) for name in names}

    async with asyncio.timeout(LOADED_S_MAX):
        while True:
            counts = sums(await home.api.get("/usage/completions", limit=31, group_by="key"))
            if counts["num_model_requests"] >= requests:
                return counts
            await asyncio.sleep(POLL_S)


@asynccontextmanager
async def engine_brought_back(home: RunningStack) -> AsyncIterator[None]:
    """Restart the engine after a block that kills it, also if the test fails."""
    try:
        yield
    finally:
        await home.stack.stop("engine")  # returns when the process is gone
        await home.stack.start("engine")


async def parts_until_killed(home: RunningStack, client: openai.AsyncOpenAI) -> int:
    """Parts of a long answer that came until the end of the engine, which is killed."""
    parts = 0
    stream = await client.chat.completions.create(
        model=TINY, messages=ASKED, temperature=0, max_tokens=400, stream=True
    )
    try:
        async for chunk in stream:
            if chunk.choices[0].delta.content:
                if not parts:  # the other parts are written while this test reads this one
                    home.stack.kill("engine", restart=False)
                parts += 1
    except openai.APIError:
        return parts
    raise AssertionError(f"the answer ended after {parts} parts although its engine was killed")


async def test_each_token_is_counted_once_whatever_is_killed(home: RunningStack) -> None:
    key = await home.api.post("/tenants/local/keys", {"name": "asks", "scopes": ["read", "write"]})
    async with sdk(home, retries=0, key=key["key"]) as client:
        alone = await client.chat.completions.create(
            model=TINY, messages=ASKED, temperature=0, max_tokens=9, n=3
        )
        async with engine_brought_back(home):
            parts = await parts_until_killed(home, client)
        again = await client.chat.completions.create(
            model=TINY, messages=ASKED, temperature=0, max_tokens=9
        )
        counts = await counted(home, key["id"], 3)
    assert alone.usage is not None
    assert again.usage is not None
    assert counts["num_model_requests"] == 3
    # the killed answer had read the same question
    assert counts["input_tokens"] == alone.usage.prompt_tokens + 2 * again.usage.prompt_tokens
    complete = alone.usage.completion_tokens + again.usage.completion_tokens
    assert complete + parts <= counts["output_tokens"] <= complete + 400


async def test_while_the_engine_is_away_the_answer_is_503_and_it_comes_back(
    home: RunningStack,
) -> None:
    async with sdk(home, retries=0) as client:
        before = await asked(client, TINY)
        async with engine_brought_back(home):
            home.stack.kill("engine", restart=False)
            await home.stack.stop("engine")
            with pytest.raises(openai.InternalServerError) as away:
                await asked(client, TINY)
        assert away.value.status_code == 503
        assert int(away.value.response.headers["retry-after"]) > 0
        assert await asked(client, TINY) == before


def beside(home: RunningStack) -> list[int]:
    """The processes that answer questions beside the API."""
    below = processes.descendants(home.stack.supervisor.pid("gateway") or 0)
    lines = {pid: Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0") for pid in below}
    return [pid for pid, line in lines.items() if b"services.gateway.inference" in line]


async def test_answers_come_from_beside_the_api_and_from_it_while_that_process_is_killed(
    home: RunningStack,
) -> None:
    async with sdk(home) as client:
        whole = await asked(client, TINY)
        ask = client.chat.completions.with_raw_response.create
        async with asyncio.timeout(LOADED_S_MAX):
            while True:
                answer = await ask(model=TINY, messages=ASKED, max_tokens=1)
                if answer.headers.get("connection") == "close":
                    break  # that process closes connections, and the API keeps them
        (answering,) = beside(home)
        stream = await client.chat.completions.create(
            model=TINY, messages=ASKED, temperature=0, max_tokens=400, stream=True
        )
        killed = False
        try:
            async for _ in stream:
                if not killed:
                    os.kill(answering, signal.SIGKILL)
                    killed = True
        except (openai.APIError, httpx.TransportError):
            pass
        else:
            raise AssertionError("the answer ended although its process was killed")
        assert await asked(client, TINY) == whole
        assert (await home.api.get("/models"))["data"]
        assert answering not in beside(home)


async def test_a_batch_goes_on_after_its_process_was_killed_and_answers_each_row_once(
    home: RunningStack,
) -> None:
    key = await home.api.post("/tenants/local/keys", {"name": "bulk", "scopes": ["read", "write"]})
    rows = [
        {
            "custom_id": f"row-{number}",
            "method": "POST",
            "url": "/v1/chat/completions",
            "body": {"model": TINY, "messages": ASKED, "max_tokens": 6 + number % 5},
        }
        for number in range(60)
    ]
    content = "\n".join([json.dumps(row) for row in rows]).encode()
    async with sdk(home, key=key["key"], retries=8) as client:
        file = await client.files.create(file=("rows.jsonl", content), purpose="batch")
        batch = await client.batches.create(
            input_file_id=file.id, endpoint="/v1/chat/completions", completion_window="24h"
        )
        killed = False
        async with asyncio.timeout(LOADED_S_MAX):
            while batch.status != "completed":
                batch = await client.batches.retrieve(batch.id)
                assert batch.request_counts is not None
                if not killed and batch.request_counts.completed:
                    assert batch.request_counts.completed < len(rows)
                    assert home.stack.kill("gateway")
                    killed = True
                await asyncio.sleep(POLL_S)
        assert killed
        text = (await client.files.content(batch.output_file_id or "")).text
        counts = await counted(home, key["id"], len(rows))
    answered = [json.loads(line) for line in text.splitlines()]
    assert [line["custom_id"] for line in answered] == [row["custom_id"] for row in rows]
    usages = [line["response"]["body"]["usage"] for line in answered]
    assert counts == {
        "num_model_requests": len(rows),
        "input_tokens": sum(usage["prompt_tokens"] for usage in usages),
        "output_tokens": sum(usage["completion_tokens"] for usage in usages),
    }


async def test_the_page_of_batches_runs_as_it_is(home: RunningStack, tmp_path: Path) -> None:
    page = Path("docs/how-to/batches.md").read_text("utf-8")
    program = tmp_path / "batch.py"
    program.write_text(
        page.split("```python\n")[1].split("```")[0].replace("smollm2-135m-instruct", TINY),
        "utf-8",
    )
    stack = home.stack
    names = {"OPENAI_BASE_URL": f"{stack.api_url}/v1", "OPENAI_API_KEY": stack.admin_key}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, str(program)),
        env=os.environ | names,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    said, wrong = (text.decode() for text in await process.communicate())
    assert process.returncode == 0, wrong
    assert said.startswith("completed BatchRequestCounts(completed=10, failed=0, total=10)"), said
    assert [line.split()[0] for line in said.splitlines() if line.startswith("question-")] == [
        f"question-{number}" for number in range(10)
    ]


TEXTS = (
    *("tenant", "key", "file", "dataset", "question", "answer", "metadata", "owner", "hook"),
    *("host", "path", "upload", "part", "prompt", "system", "idempotency", "broken", "suffix"),
)


def planted(text: str) -> str:
    """A word that nothing but its tenant has ever written."""
    return f"zanzibar{text}quince"


async def plant(home: RunningStack, tenant: str) -> str:
    """Write each text somewhere as a new tenant; returns its key."""
    await home.api.post("/tenants", {"id": tenant, "name": planted("tenant")})
    created = await home.api.post(f"/tenants/{tenant}/keys", {"name": planted("key")})
    async with stories.client(home.stack.api_url, created["key"]) as http:
        api = Api(http)
        texts = (
            [
                {"role": "user", "content": f"{planted('question')} {number}, captain?"},
                {"role": "assistant", "content": f"{planted('answer')} {2 * number + 3}."},
            ]
            for number in range(stories.ROWS)
        )
        rows = "".join(json.dumps({"messages": messages}) + "\n" for messages in texts)
        file_id = await api.upload(rows.encode(), planted("file"))
        broken = f'{{"messages": "{planted("broken")}"}}\n'.encode()
        named = {"purpose": "fine-tune", "dataset": planted("dataset")}
        files = {"file": (planted("file"), broken)}
        assert (await api.call("POST", "/files", data=named, files=files)).is_success
        begun = {"bytes": 90, "purpose": "fine-tune", "mime_type": "text/jsonl"}
        upload = await api.post("/uploads", {**begun, "filename": planted("upload")})
        part = {"data": ("part", planted("part").encode())}
        sent = await api.call("POST", f"/uploads/{upload['id']}/parts", files=part)
        assert sent.is_success, sent.text
        hook = f"https://{planted('host')}.example.com/{planted('path')}"
        await api.post("/webhook_endpoints", {"url": hook, "name": planted("hook")})
        metadata = {planted("owner"): planted("metadata")}
        body = home.request(training_file=file_id, suffix=planted("suffix"), metadata=metadata)
        await api.submit(body, planted("idempotency"))
        asks = [("system", planted("system")), ("user", planted("prompt"))]
        messages = [{"role": role, "content": text} for role, text in asks]
        await api.post("/chat/completions", {"model": TINY, "messages": messages, "max_tokens": 2})
    return str(created["key"])


def holding(folder: Path) -> dict[str, list[str]]:
    """The files below a folder that have planted texts in the clear, by text."""
    words = {text: planted(text).encode() for text in TEXTS}
    held: dict[str, list[str]] = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file() and not path.is_symlink():
            body = path.read_bytes().lower()
            for text, word in words.items():
                if word in body:
                    held.setdefault(text, []).append(str(path.relative_to(folder)))
    return held


async def rotate_keys(home: RunningStack, tenant: str, key: str) -> None:
    """Rotate its data key and the root key while services run: what is stored stays readable."""
    for words in (("rotate-key", tenant), ("rotate-root", "--forget")):
        status, said = await tunery(home.stack.folders.root, "encryption", *words, "--json")
        assert status == 0, said
    async with stories.client(home.stack.api_url, key) as http:
        api = Api(http)
        later = await api.upload(stories.rows(24), "later.jsonl")
        listed = (await api.call("GET", "/files")).json()["data"]
        named = {file["id"]: file["filename"] for file in listed}
        assert named[later] == "later.jsonl"
        paths = [f"/files/{file_id}/content" for file_id in named]
        contents = [(await api.call("GET", path)).text for path in paths]
    assert sum(planted("question") in content for content in contents) == 1


async def test_security_h4_nothing_of_an_erased_tenant_is_left_readable(home: RunningStack) -> None:
    """Services are killed on the way. PostgreSQL is rewritten first, because it keeps dead rows."""
    root = home.stack.folders.root
    key = await plant(home, "zanzibar")
    stored = [path for path in (root / "s3").rglob("*.sealed") if "zanzibar" in path.parts]
    assert len(stored) >= 3, "rows, a part and a broken file"
    assert holding(root / "s3") == {}, "object storage has ciphertext alone"
    await rotate_keys(home, "zanzibar", key)
    erasing = asyncio.create_task(tunery(root, "tenant", "erase", "zanzibar", "--yes", "--json"))
    for name in ("scheduler", "ingest", "billing"):
        await asyncio.sleep(1)
        home.stack.kill(name)
    status, said = await erasing
    assert status == 0, said
    state = json.loads(said)
    assert (state["status"], len(state["sha256"])) == ("done", 64)
    async with stories.client(home.stack.api_url, key) as http:
        assert (await Api(http).call("GET", "/files")).status_code == 401
    connection = await asyncpg.connect(home.dsn)
    try:
        for statement in ("VACUUM FULL", "CHECKPOINT", "SELECT pg_switch_wal()", "CHECKPOINT"):
            await connection.execute(statement)
    finally:
        await connection.close()
    assert holding(root) == {}
    assert (root / "keystore" / "zanzibar.key").read_bytes() == b""
    report = await stories.replayed(root)
    differing = [part for part in report["parts"] if part["difference"] is not None]
    assert report["equal"], differing
