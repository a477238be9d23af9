"""A model of an OpenAI account moves to a whole stack: read, planned, trained, and only once."""

import json
from pathlib import Path

import pytest

from tests.bases import tiny_base
from tests.e2e.shared.guests import Guest
from tests.e2e.stories import TINY, rows
from tunery.exit_kit.stand_in import KEY, account_stub

pytestmark = pytest.mark.timeout(900)


async def test_exit_kit_a_model_moves_with_one_command_and_is_trained_once(
    home: Guest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await home.operator.post("/bases", {"id": TINY, "path": str(tiny_base().dir), "shared": True})
    monkeypatch.setenv("OPENAI_EXPORT_KEY", KEY)
    table = tmp_path / "bases.toml"
    table.write_text(f'[[replacement]]\nold = ["gpt-4o-mini*"]\nnew = [{json.dumps(TINY)}]\n')
    with account_stub() as account:
        account.add_file("file-a", rows() + b"{broken\n")
        hyper = {"n_epochs": 1, "batch_size": 1, "learning_rate_multiplier": 1.8}
        method = {"type": "supervised", "supervised": {"hyperparameters": hyper}}
        account.add_job("ftjob-old", "file-a", hyperparameters=hyper, method=method)
        command = ("import", "openai", "--to", str(tmp_path / "acme"), "--base-url", account.url)
        moved = await home.command(*command, "--bases", str(table), "--go", "--yes")
        again = await home.command(*command, "--bases", str(table), "--go", "--yes")
    assert moved["plan"][0]["left_out"] == 1
    [submitted] = moved["submitted"]
    assert submitted["job_id"] == "ftjob-old"
    assert again["submitted"] == [{**submitted, "new": False}]
    job = await home.api.ended(submitted["id"])
    assert job["metadata"] == {"team": "search", "openai_job": "ftjob-old"}
    assert ":faq:" in job["fine_tuned_model"]
    assert job["hyperparameters"]["n_epochs"] == 1
    page = tmp_path / "job.html"
    await home.command("job", "report", submitted["id"], "--output", str(page))
    text = page.read_text(encoding="utf-8")
    for words in ("<polyline", "<h2>Gate: ", "The job has successfully completed"):
        assert words in text
