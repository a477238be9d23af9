"""The command line against real services."""

import asyncio
import json
import os
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tests.integration.services.gateway.control_plane import ROWS
from tunery.local.stack import Stack


async def tunery(plane: Stack, *words: str, code: int = 0) -> str:
    env = {
        **os.environ,
        "OPENAI_BASE_URL": f"{plane.api_url}/v1",
        "OPENAI_API_KEY": plane.admin_key,
    }
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "tunery.cli.main",
        *words,
        env=env,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, errors = await process.communicate()
    assert process.returncode == code, (out + errors).decode()
    return (out if code == 0 else out + errors).decode()


async def as_json(plane: Stack, *words: str, code: int = 0) -> Any:
    return json.loads(await tunery(plane, *words, "--json", code=code))


async def test_upload_estimate_submit_and_cancel_a_job(running: Stack, tmp_path: Path) -> None:
    data = tmp_path / "rows.jsonl"
    data.write_text("\n".join(json.dumps(row) for row in ROWS))
    file = await as_json(running, "file", "upload", str(data))
    assert file["status"] == "processed"
    options = ("--model", "tiny", "--file", file["id"], "--epochs", "1", "--set", "lora.rank=4")
    estimate = await as_json(running, "job", "estimate", *options)
    assert estimate["steps"] >= 1
    job = await as_json(running, "job", "submit", *options)
    assert job["hyperparameters"]["rank"] == 4
    assert job["id"] in await tunery(running, "job", "list")
    assert "Created fine-tuning job" in await tunery(running, "job", "events", job["id"])
    assert "status" in await tunery(running, "job", "show", job["id"])
    assert (await as_json(running, "job", "cancel", job["id"]))["status"] == "cancelled"
    watched = await tunery(running, "job", "watch", job["id"], code=1)
    assert "The job was cancelled" in watched
    assert "final: 0.000 GPU-h, 0.0000" in await tunery(running, "job", "cost", job["id"])


async def test_versions_of_a_dataset_are_addressed_by_name(running: Stack, tmp_path: Path) -> None:
    before, after = tmp_path / "monday.jsonl", tmp_path / "tuesday.jsonl"
    before.write_text("\n".join(json.dumps(row) for row in ROWS[:30]))
    after.write_text("\n".join(json.dumps(row) for row in ROWS[1:]))
    files = [
        await as_json(running, "file", "upload", str(path), "--dataset", "sums")
        for path in (before, after)
    ]
    assert [file["dataset"] for file in files] == ["sums@1", "sums@2"]
    listed = await as_json(running, "file", "list", "--dataset", "sums")
    assert [file["id"] for file in listed] == [files[1]["id"], files[0]["id"]]
    plane = await tunery(running, "data", "diff", "sums@1", "sums@2", code=1)
    assert "sums@1 → sums@2: 29 rows are the same" in plane
    assert "removed: 1 (row 1)" in plane
    options = ("--model", "tiny", "--file", "sums@2", "--epochs", "1")
    job = await as_json(running, "job", "submit", *options)
    assert job["training_file"] == files[1]["id"]
    assert "in use" in await tunery(running, "file", "delete", "sums@2", code=1)
    await tunery(running, "job", "cancel", job["id"])
    assert "sums@1 deleted" in await tunery(running, "file", "delete", "sums@1")


async def test_long_text_is_split_and_too_few_rows_are_refused(
    running: Stack, tmp_path: Path
) -> None:
    data = tmp_path / "texts.jsonl"
    texts = [{"text": f"Lamp {number} " * 200} for number in range(12)]
    data.write_text("\n".join(json.dumps(row) for row in texts))
    file = await as_json(running, "file", "upload", str(data))
    options = ("--model", "tiny", "--file", file["id"], "--set", "training.max_length=64")
    whole = await as_json(running, "job", "estimate", *options)
    split = ("--set", "training.length_policy=split")
    parts = await as_json(running, "job", "estimate", *options, *split)
    assert parts["trained_tokens"] > whole["trained_tokens"]
    data.write_text("\n".join(json.dumps(row) for row in texts[:7]))
    few = await as_json(running, "file", "upload", str(data), code=1)
    assert few["validation"]["errors"] == 1
    refused = await tunery(running, "job", "submit", "--model", "tiny", "--file", few["id"], code=1)
    assert "invalid_n_examples" in refused
    assert "must have at least 10 examples" in refused


async def test_the_problems_of_a_bad_file_are_shown_by_row(running: Stack, tmp_path: Path) -> None:
    data = tmp_path / "bad.jsonl"
    lines = [json.dumps(row) for row in ROWS]
    lines[3] = "{not json"
    data.write_text("\n".join(lines))
    refusal = await tunery(running, "file", "upload", str(data), code=1)
    assert "invalid_json" in refusal


async def test_tenants_keys_and_webhooks(running: Stack) -> None:
    tenant = await as_json(running, "tenant", "create", "cli-tenant", "--plan", "free")
    assert tenant["limits"]["concurrency"] == 1
    key = await as_json(running, "key", "create", "cli-tenant", "--name", "ci", "--days", "3")
    assert key["key"].startswith("tun-")
    assert key["id"] in await tunery(running, "key", "list", "cli-tenant")
    assert "revoked" in await tunery(running, "key", "revoke", "cli-tenant", key["id"])
    endpoint = await as_json(running, "webhook", "create", "https://example.com/h")
    assert endpoint["id"] in await tunery(running, "webhook", "list")
    assert await as_json(running, "webhook", "deliveries", endpoint["id"]) == []
    assert "deleted" in await tunery(running, "webhook", "delete", endpoint["id"])


async def test_bases_and_models(running: Stack, tiny: Path) -> None:
    again = await as_json(running, "base", "add", str(tiny), "--id", "tiny")
    assert again["id"] == "tiny"
    assert "tiny" in await tunery(running, "base", "list")
    assert await as_json(running, "model", "list") == []
    missing = await tunery(running, "model", "show", "ft:nothing", code=1)
    assert "The model 'ft:nothing' does not exist" in missing


async def test_money_b3_a_price_book_is_imported_while_everything_runs(
    running: Stack, tmp_path: Path
) -> None:
    book = {
        "version": "2031-01",
        "currency": "EUR",
        "effective_from": "2031-01-01",
        "gpu_hour_micro": {"premium": 3_500_000, "standard": 2_600_000, "free": 0},
        "token_micro_per_million": 0,
    }
    file = tmp_path / "2031-01.json"
    file.write_text(json.dumps(book))
    imported = await as_json(running, "prices", "import", str(file))
    assert await as_json(running, "prices", "import", str(file)) == imported
    assert imported in await as_json(running, "prices", "list")
    assert "standard 2.60" in await tunery(running, "prices", "show", "2031-01")
    file.write_text(json.dumps(book | {"gpu_hour_micro": {"standard": -1}, "version": "x"}))
    refused = await tunery(running, "prices", "import", str(file), code=1)
    assert "between 0 and" in refused
    assert "(gpu_hour_micro.standard)" in refused


async def test_an_operator_sets_a_contract_and_the_tenant_sees_it(
    running: Stack, tmp_path: Path
) -> None:
    tenant = "contract-tenant"
    await tunery(running, "tenant", "create", tenant)
    file = tmp_path / "terms.json"
    terms = {
        "taxes": [{"name": "VAT", "rate_ppm": 190_000}],
        "discounts": [{"reference": "K-1", "rate_ppm": 125_000, "first_month": "2026-11"}],
        "commitment": {"reference": "K-2", "amount_micro": 5_000_000},
    }
    file.write_text(json.dumps(terms))
    shown = await as_json(running, "tenant", "billing", tenant, str(file))
    assert await as_json(running, "invoice", "terms", tenant) == shown
    assert "12.5 % from 2026-11" in await tunery(running, "invoice", "terms", tenant)
    prepay = ("tenant", "prepaid", tenant, "--reference", "P-1", "--amount")
    credit = await as_json(running, *prepay, "500.00", "--last-month", "2999-12")
    assert await as_json(running, *prepay, "500.00", "--last-month", "2999-12") == credit
    assert credit in await as_json(running, "invoice", "prepaid", tenant)
    refused = await tunery(running, *prepay, "400.00", code=1)
    assert "used for another prepaid credit" in " ".join(refused.split())
    month = f"{datetime.now(UTC):%Y-%m}"
    page = await tunery(running, "invoice", "show", tenant, "--period", month)
    assert "commitment: K-2" in page
    assert "5.950000" in page
    file.write_text(json.dumps({"discounts": [{"reference": "K-1", "rate_ppm": -1}]}))
    assert "discounts" in await tunery(running, "tenant", "billing", tenant, str(file), code=1)
