"""After the training: gate, registry, webhook, bill, replay."""

import asyncio
import json
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from standardwebhooks.webhooks import Webhook, WebhookVerificationError

from tunery.cli.demo.commands import run, tunery
from tunery.cli.demo.context import DemoContext
from tunery.cli.demo.polling import POLL_S, DeadlineExceeded
from tunery.client import ApiRefusal
from tunery.local.paths import base_model_dir
from tunery.local.settings import TENANT

ITEMS_MIN: Final = 200
WEBHOOK_S_MAX: Final = 30
BILLING_TERMS: Final = {"taxes": [{"name": "VAT", "rate_ppm": 190_000}], "due_days": 14}


async def gate(context: DemoContext) -> None:
    """Show the verdict about the adapter, and what base and adapter scored."""
    context.display.step("The gate")
    verdict = context.job["gate"]
    base, adapter = verdict["base"], verdict["adapter"]
    context.display.table(
        ("", "base", "adapter"),
        [
            (f"{verdict['items']} capability items", _percent(base), _percent(adapter)),
            ("loss on validation rows", _figure(base["loss"]), _figure(adapter["loss"])),
            ("exact match", _figure(base["exact_match"]), _figure(adapter["exact_match"])),
        ],
    )
    decision = verdict["verdict"]
    holds = decision in ("pass", "inconclusive", "block") and verdict["items"] >= ITEMS_MIN
    context.result.figures["gate_verdict"] = decision
    text = f"{decision}: {'; '.join(verdict['reasons'])}"
    context.check("gate_decided_on_paired_items", holds, text)


def _figure(value: float | None) -> str:
    return "not measured" if value is None else f"{value:.3f}"


async def registry(context: DemoContext) -> None:
    """Show the registered version, promote it, download it and load it with PEFT."""
    context.display.step("Registry")
    context.model_id = context.job["fine_tuned_model"]
    model = await context.api.model(context.model_id)
    lineage = model["lineage"]
    context.display.line(context.model_id)
    context.display.line(
        f"base {lineage['base_sha256'][:12]}…  data {lineage['dataset_version'][:12]}…"
    )
    complete = all(
        lineage[name] for name in ("base_sha256", "dataset_version", "config_sha256", "job_id")
    )
    context.check(
        "version_registered_with_lineage", complete, "registered with its complete lineage"
    )
    promoted = await context.api.promote(context.model_id, "staging", None)
    stage = promoted["stage"]
    context.check(
        "promoted_to_staging", stage == "staging", f"promoted to {stage} by compare-and-swap"
    )
    with tempfile.TemporaryDirectory(prefix="tunery-adapter-") as folder:
        await _download_and_load(context, Path(folder))


async def webhook(context: DemoContext) -> None:
    """Verify the webhook that the receiver got. Raises DeadlineExceeded when none arrives."""
    context.display.step("Webhook")
    for _ in range(int(WEBHOOK_S_MAX / POLL_S)):
        if context.receiver.received:
            break
        await asyncio.sleep(POLL_S)
    else:
        raise DeadlineExceeded(f"no webhook arrived within {WEBHOOK_S_MAX} s")
    request = context.receiver.received[0]
    try:
        event = Webhook(context.webhook_secret).verify(request.body.decode(), request.headers)
    except WebhookVerificationError as error:
        event = {"type": f"not verified: {error}", "data": {"id": None}}
    holds = event["type"] == "fine_tuning.job.succeeded" and event["data"]["id"] == context.job_id
    context.check("webhook_received_and_verified", holds, f"{event['type']}, signature verified")


async def bill(context: DemoContext) -> None:
    """Show the invoice and compare it with the hold, the lost work and the job's own cost."""
    context.display.step("The bill")
    period = datetime.now(UTC).strftime("%Y-%m")
    await context.api.set_billing_terms(TENANT, BILLING_TERMS)
    text = await tunery(context, "invoice", "show", TENANT, "--period", period, "--json")
    invoice = json.loads(text)
    context.display.table(
        ("what", "GPU-ms", f"{invoice['currency']}"),
        [
            (_line_words(line), str(line["gpu_ms"]), f"{line['amount_micro'] / 1e6:.6f}")
            for line in invoice["lines"]
        ]
        + [("total", str(invoice["gpu_ms"]), f"{invoice['total_micro'] / 1e6:.6f}")],
    )
    number = invoice["number"] or f"{TENANT}-0001 once the month is closed"
    context.display.line(f"invoice {invoice['id']}, {invoice['status']}; number: {number}")
    held = context.estimate
    context.result.figures |= {
        "billed_gpu_ms": invoice["gpu_ms"],
        "credited_gpu_ms": invoice["credited_gpu_ms"],
        "billed_micro": invoice["amount_micro"],
    }
    within = 0 < invoice["gpu_ms"] <= held["hold_gpu_ms"]
    context.check("bill_within_hold", within, f"within the hold of {held['hold_gpu_ms']} GPU-ms")
    lost = sum(-line["gpu_ms"] for line in invoice["lines"] if line["kind"] == "credit")
    text = (
        f"{lost} GPU-ms used between the last checkpoint and the kill are credited "
        "on a line of their own"
    )
    context.check("lost_work_credited", lost > 0, text)
    cost = await context.api.cost(context.job_id)
    sums = (
        sum(line["gpu_ms"] for line in invoice["lines"]),
        sum(line["amount_micro"] for line in invoice["lines"]),
    )
    equal = sums == (invoice["gpu_ms"], invoice["total_micro"])
    equal = equal and cost["net_gpu_ms"] == invoice["gpu_ms"]
    context.check("invoice_equals_ledger", equal, "invoice, ledger and the job's own cost agree")


def _line_words(line: dict[str, Any]) -> str:
    """Return an invoice line's description, preceded by its hour for usage and credits."""
    if line["hour_start"] is None:
        return str(line["description"])
    hour = datetime.fromtimestamp(line["hour_start"], UTC)
    return f"{hour:%d %B %H:%M} UTC, {line['description']}"


async def replay(context: DemoContext) -> None:
    """Rebuild all state from offset 0 of the log and compare it with the live state."""
    context.display.step("Everything rebuilt from offset 0 of the log")
    comparison = json.loads(await tunery(context, "replay", "--verify", "--json", codes=(0, 1)))
    for part in comparison["parts"]:
        if part["difference"] is not None:
            context.display.line(f"{part['name']}: {part['difference']}")
    text = (
        f"{comparison['records']} records folded again: jobs, quota, leases, datasets, models, "
        "ledger and every read model are equal to the unit"
    )
    context.result.figures["replayed_records"] = comparison["records"]
    context.check("replay_equal_to_the_unit", comparison["equal"], text)


async def _download_and_load(context: DemoContext, folder: Path) -> None:
    listed = await context.api.adapter(context.model_id)
    try:
        for file in listed["files"]:
            await context.api.fetch(file, folder / file["name"])
        whole = True
    except ApiRefusal as refusal:
        context.display.line(refusal.message)
        whole = False
    status, output = await run(
        (sys.executable, "-m", "tunery.ml.adapters", "verify", str(folder), str(base_model_dir()))
    )
    names = ", ".join(file["name"] for file in listed["files"])
    text = f"downloaded ({names}), hashes match, PeftModel.from_pretrained loads it"
    if status != 0:
        context.display.line(output.strip()[-500:])
    context.check("downloaded_adapter_loads_in_peft", whole and status == 0, text)


def _percent(side: dict[str, Any]) -> str:
    return f"{100 * side['accuracy']:.1f} %"
