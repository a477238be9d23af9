"""`tunery model serve --check`: the row of an engine's version, and why a server cannot serve."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from tests.inference_server import InferenceServer, serving
from tests.unit.services.ingest.base import make_base
from tunery.cli.main import main


def check(*words: str) -> Result:
    return CliRunner().invoke(main, ["model", "serve", "--check", *words])


@pytest.mark.parametrize("kind", ["vllm", "sglang"])
@pytest.mark.parametrize("loads", [True, False])
def test_a_server_is_asked_for_its_version_and_whether_it_loads_adapters(
    tmp_path: Path, kind: Any, loads: bool
) -> None:
    with serving(
        InferenceServer(make_base(tmp_path / "base"), _writer, kind, loads=loads)
    ) as server:
        done = check("--engine", kind, "--server", server.url, "--json")
    row = json.loads(done.output)
    assert row["running_version"] == {"vllm": "0.32.0", "sglang": "0.5.23"}[kind]
    assert "use_dora" in row["adapters_refused"]
    assert done.exit_code == len(row["lacks"]) == int(not loads)


def test_a_server_that_is_too_old_cannot_serve(tmp_path: Path) -> None:
    with serving(
        InferenceServer(make_base(tmp_path / "base"), _writer, version="0.9.2rc1")
    ) as server:
        done = check("--engine", "vllm", "--server", f"{server.url},http://127.0.0.1:1")
    assert done.exit_code == 1
    assert "it is older than 0.32" in done.output
    assert "never ran on a GPU" in done.output


def test_our_own_engine_needs_no_server_and_nobody_answers_without_one() -> None:
    assert check().exit_code == 0
    assert "--server URL" in check("--engine", "vllm", "--server", "http://127.0.0.1:1").output
    assert "name --check" in CliRunner().invoke(main, ["model", "serve"]).output


def _writer(*_: object) -> Any:
    """Write no line for a request."""
