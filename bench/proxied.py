"""Answers through the API beside those of llama.cpp's own server, in one run, for `bench.serve`.

Both have the same file, threads, places and priority, and get the same requests in turn.
"""

import asyncio
import os
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from statistics import median
from typing import Any, Final

import httpx
import xllamacpp

from bench.measures import data_folder, ok, percentile
from services.engine.settings import EngineSettings
from tunery.local.initial_setup import run_setup_steps
from tunery.local.paths import BASE_MODEL_ID
from tunery.local.stack import NICE, SERVICES, stack

URL: Final = "/v1/chat/completions"
STREAMS: Final = (1, 8)
ROUNDS: Final = 5
FIRSTS: Final = 100  # answers of one token, from which the time to the first comes
PAUSE_S: Final = 8  # while the process that answers starts


async def measure(asked: Sequence[str], tokens: int) -> dict[str, float]:
    """Return ratios of tokens a second with one stream and eight, and what is added to the first
    token.
    """
    with data_folder() as folder:
        async with stack(folder, list(SERVICES)) as running:
            await run_setup_steps(running, lambda line: print(line, file=sys.stderr))
            headers = {"authorization": f"Bearer {running.admin_key}"}
            async with httpx.AsyncClient(
                base_url=running.api_url, headers=headers, timeout=600, trust_env=False
            ) as ours:
                for _ in range(2):
                    ok(await ours.post(URL, json=body_of(asked[0], 1) | {"stream": False}))
                    await asyncio.sleep(PAUSE_S)
                (base,) = (folder / "engine").glob("*.gguf")
                async with bare_server(base, folder / "bare.sock") as bare:
                    return await compare(ours, bare, asked, tokens)


async def compare(
    ours: httpx.AsyncClient, bare: httpx.AsyncClient, asked: Sequence[str], tokens: int
) -> dict[str, float]:
    """Figures of both, which are asked in turn."""
    figures: dict[str, float] = {}
    for streams in STREAMS:
        rates: dict[bool, list[float]] = {True: [], False: []}
        for number in range(ROUNDS + 1):
            for client in (bare, ours):
                began = time.perf_counter()
                answers = (answer(client, asked[at], tokens) for at in range(streams))
                written = sum(count for _, count in await asyncio.gather(*answers))
                if number:  # the first round loads what is not loaded yet
                    rates[client is ours].append(written / (time.perf_counter() - began))
        ratios = [a / b for a, b in zip(rates[True], rates[False], strict=True)]
        figures[f"proxied_{streams}_ratio"] = round(median(ratios), 3)
    firsts: dict[bool, list[float]] = {True: [], False: []}
    for number in range(FIRSTS):
        for client in (bare, ours):
            first_ms, _ = await answer(client, asked[number % len(asked)], 1)
            firsts[client is ours].append(first_ms)
    for percent in (50, 99):
        added = percentile(firsts[True], percent) - percentile(firsts[False], percent)
        figures[f"proxied_added_first_p{percent}_ms"] = round(added, 1)
    return figures


def body_of(text: str, tokens: int) -> dict[str, Any]:
    """A question whose likeliest answer is streamed. Neither side reads from a cache."""
    return {
        "model": BASE_MODEL_ID,
        "messages": [{"role": "user", "content": text}],
        "temperature": 0,
        "max_tokens": tokens,
        "stream": True,
        "stream_options": {"include_usage": True},
    }


async def answer(client: httpx.AsyncClient, text: str, tokens: int) -> tuple[float, int]:
    """Milliseconds until the first text, and the number of tokens."""
    began, first_ms, written = time.perf_counter(), 0.0, 0
    body = body_of(text, tokens)
    if client.headers.get("x-bare"):
        body["cache_prompt"] = False
    async with client.stream("POST", URL, json=body) as reply:
        async for line in reply.aiter_lines():
            if '"content":"' in line and '"content":""' not in line:
                first_ms = first_ms or 1_000 * (time.perf_counter() - began)
            if '"usage":{' in line:
                written = int(line.split('"completion_tokens":')[1].split(",")[0])
    return first_ms, written


@asynccontextmanager
async def bare_server(base: Path, path: Path) -> AsyncIterator[httpx.AsyncClient]:
    """llama.cpp's server with the settings of `tunery up`."""
    settings, params = EngineSettings(), xllamacpp.CommonParams()
    params.model.path, params.hostnames = str(base), [str(path)]
    params.n_parallel = settings.answers_max
    params.n_ctx = settings.context_tokens * settings.answers_max
    params.cpuparams.n_threads, params.verbosity = settings.threads, 1
    params.warmup = params.fit_params = False

    def start() -> xllamacpp.Server:
        os.nice(NICE)  # of this thread, and so of the server's
        return xllamacpp.Server(params)

    server = await asyncio.to_thread(start)
    transport = httpx.AsyncHTTPTransport(uds=str(path))
    async with httpx.AsyncClient(
        transport=transport, base_url="http://bare", headers={"x-bare": "1"}, timeout=600
    ) as client:
        yield client
    del server
