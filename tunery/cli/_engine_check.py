"""What an engine can do with models of Tunery, and what a server of it says of itself."""

import os
from collections.abc import Iterator
from importlib.metadata import version
from itertools import takewhile
from typing import Any, Final

import httpx

from tunery.local.errors import LocalError
from tunery.work.engine_rows import ENGINES, Driver

PACKAGES: Final[dict[Driver, str]] = {"llama": "xllamacpp", "peft": "peft"}  # in our own process
VERSION_ROUTE: Final[dict[Driver, str]] = {"vllm": "/version", "sglang": "/server_info"}
LOADS: Final = "load_lora_adapter"  # ends the route that loads an adapter
ANSWER_S_MAX: Final = 10


def check_engine(driver: Driver, url: str) -> dict[str, Any]:
    """The capability row of an engine, with its version here and the reasons why it cannot serve.

    url: of a vLLM or SGLang server. Raises LocalError where none answers.
    """
    row = ENGINES[driver]
    running_version = version(PACKAGES[driver]) if driver in PACKAGES else None
    lacks = []
    if running_version is None:
        said, routes = _ask(url, VERSION_ROUTE[driver]), _ask(url, "/openapi.json").get("paths")
        running_version = said.get("version")
        if routes is not None and not any(route.endswith(LOADS) for route in routes):
            lacks.append(
                "it loads no adapters while it runs: start vLLM with --enable-lora and "
                "VLLM_ALLOW_RUNTIME_LORA_UPDATING=True, SGLang with --enable-lora"
            )
    if running_version is not None and _numbers(running_version) < _numbers(row.version):
        lacks.append(f"it is older than {row.version}")
    return {**row._asdict(), "running_version": running_version, "lacks": lacks}


def row_lines(checked: dict[str, Any]) -> Iterator[tuple[str, object]]:
    """The row as a person reads it."""
    yield "engine", checked["name"]
    yield (
        "version",
        f"{checked['running_version'] or 'not said'}; known from {checked['version']} on",
    )
    yield "run by us", checked["proof"]
    yield "refuses adapters with", ", ".join(checked["adapters_refused"]) or "nothing"
    yield "embeddings", "yes" if checked["embeds"] else "no"
    both = "schema or calls of tools" if checked["schema_beside_tools"] else "one of the two"
    yield "a schema beside tools", both
    for reason in checked["lacks"]:
        yield "cannot serve", reason


def _ask(url: str, route: str) -> dict[str, Any]:
    """An answer in JSON; empty where the server has no such route. Raises LocalError."""
    key = os.environ.get("TUNERY_ENGINE_SERVER_KEY")
    headers = {} if key is None else {"authorization": f"Bearer {key}"}
    try:
        reply = httpx.get(
            f"{url.rstrip('/')}{route}", headers=headers, timeout=ANSWER_S_MAX, trust_env=False
        )
        content = reply.json() if reply.is_success else {}
    except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
        text = f"no engine answers at {url}: {error}"
        raise LocalError(text, "start it, or name another one with --server URL") from error
    return content if isinstance(content, dict) else {}


def _numbers(text: str) -> tuple[int, ...]:
    """The leading numbers of a version: `0.32.1rc1` is 0, 32."""
    return tuple(int(part) for part in takewhile(str.isdigit, text.split(".")))
