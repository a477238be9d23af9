"""After the training: gate, registry, answers, webhook, bill, replay."""

import asyncio
import json
import sys
import tempfile
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from standardwebhooks.webhooks import Webhook, WebhookVerificationError

from tunery.cli.demo.context import Scene
from tunery.cli.demo.polling import POLL_S, Late
from tunery.client import Refused
from tunery.local.paths import base_model_dir
from tunery.local.settings import TENANT

ITEMS_MIN: Final = 200
WEBHOOK_S_MAX: Final = 30
COMMAND_S_MAX: Final = 180
ANSWERS_SHOWN: Final = 4
TEXT_SHOWN: Final = 150


async def gate(scene: Scene) -> None:
    scene.view.chapter("The gate")
    found = scene.job["gate"]
    base, adapter = found["base"], found["adapter"]
    scene.view.table(
        ("", "base", "adapter"),
        [
            (f"{found['items']} capability items", _percent(base), _percent(adapter)),
            ("loss on validation rows", _figure(base["loss"]), _figure(adapter["loss"])),
            ("exact match", _figure(base["exact_match"]), _figure(adapter["exact_match"])),
        ],
    )
    verdict = found["verdict"]
    holds = verdict in ("pass", "inconclusive", "block") and found["items"] >= ITEMS_MIN
    scene.told.figures["gate_verdict"] = verdict
    scene.check("gate_decided_on_paired_items", holds, f"{verdict}: {'; '.join(found['reasons'])}")


def _figure(value: float | None) -> str:
    return "not measured" if value is None else f"{value:.3f}"


async def registry(scene: Scene) -> None:
    scene.view.chapter("Registry")
    scene.model_id = scene.job["fine_tuned_model"]
    model = await scene.api.model(scene.model_id)
    lineage = model["lineage"]
    scene.view.line(scene.model_id)
    scene.view.line(f"base {lineage['base_sha256'][:12]}…  data {lineage['dataset_version'][:12]}…")
    complete = all(
        lineage[name] for name in ("base_sha256", "dataset_version", "config_sha256", "job_id")
    )
    scene.check("version_registered_with_lineage", complete, "registered with its whole lineage")
    promoted = await scene.api.promote(scene.model_id, "staging", None)
    stage = promoted["stage"]
    scene.check("promoted_to_staging", stage == "staging", f"stage {stage}, by compare-and-swap")
    with tempfile.TemporaryDirectory(prefix="tunery-adapter-") as folder:
        await _download_and_load(scene, Path(folder))


async def answers(scene: Scene) -> None:
    scene.view.chapter("The same prompts, before and after")
    found = await scene.api.answers(scene.job_id)
    for one in found["data"][:ANSWERS_SHOWN]:
        scene.view.answers(one["prompt"], _short(one["base"]), _short(one["adapter"]))
    changed = sum(one["base"] != one["adapter"] for one in found["data"])
    text = f"{changed} of {len(found['data'])} answers changed"
    scene.check("answers_changed_visibly", changed >= 1, text)


async def webhook(scene: Scene) -> None:
    scene.view.chapter("Webhook")
    for _ in range(int(WEBHOOK_S_MAX / POLL_S)):
        if scene.receiver.received:
            break
        await asyncio.sleep(POLL_S)
    else:
        raise Late(f"no webhook came within {WEBHOOK_S_MAX} s")
    one = scene.receiver.received[0]
    try:
        event = Webhook(scene.secret).verify(one.body.decode(), one.headers)
    except WebhookVerificationError as error:
        event = {"type": f"not verified: {error}", "data": {"id": None}}
    holds = event["type"] == "fine_tuning.job.succeeded" and event["data"]["id"] == scene.job_id
    scene.check("webhook_received_and_verified", holds, f"{event['type']}, signature verified")


async def bill(scene: Scene) -> None:
    scene.view.chapter("The bill")
    period = datetime.now(UTC).strftime("%Y-%m")
    text = await _tunery(scene, "invoice", "show", TENANT, "--period", period, "--json")
    made = json.loads(text)
    scene.view.table(
        ("what", "GPU-ms", f"{made['currency']}"),
        [
            (line["description"], str(line["gpu_ms"]), f"{line['amount_micro'] / 1e6:.6f}")
            for line in made["lines"]
        ]
        + [("total", str(made["gpu_ms"]), f"{made['amount_micro'] / 1e6:.6f}")],
    )
    held = scene.estimate
    scene.told.figures |= {
        "billed_gpu_ms": made["gpu_ms"],
        "credited_gpu_ms": made["credited_gpu_ms"],
        "billed_micro": made["amount_micro"],
    }
    within = 0 < made["gpu_ms"] <= held["hold_gpu_ms"]
    scene.check("bill_within_hold", within, f"within the hold of {held['hold_gpu_ms']} GPU-ms")
    lost = sum(-line["gpu_ms"] for line in made["lines"] if line["kind"] == "credit")
    text = f"{lost} GPU-ms between the last checkpoint and the kill: credited on a line of its own"
    scene.check("lost_work_credited", lost > 0, text)
    cost = await scene.api.cost(scene.job_id)
    sums = (
        sum(line["gpu_ms"] for line in made["lines"]),
        sum(line["amount_micro"] for line in made["lines"]),
    )
    equal = sums == (made["gpu_ms"], made["amount_micro"])
    equal = equal and cost["net_gpu_ms"] == made["gpu_ms"]
    scene.check("invoice_equals_ledger", equal, "invoice, ledger and the job's own cost agree")


async def replay(scene: Scene) -> None:
    scene.view.chapter("Everything again, from offset 0")
    found = json.loads(await _tunery(scene, "replay", "--verify", "--json", codes=(0, 1)))
    for part in found["parts"]:
        if part["difference"] is not None:
            scene.view.line(f"{part['name']}: {part['difference']}")
    text = (
        f"{found['records']} records folded again: jobs, quota, leases, data sets, models, ledger "
        "and every read model equal, to the unit"
    )
    scene.told.figures["replayed_records"] = found["records"]
    scene.check("replay_equal_to_the_unit", found["equal"], text)


async def _download_and_load(scene: Scene, folder: Path) -> None:
    listed = await scene.api.adapter(scene.model_id)
    try:
        for file in listed["files"]:
            await scene.api.fetch(file, folder / file["name"])
        whole = True
    except Refused as refusal:
        scene.view.line(refusal.message)
        whole = False
    status, said = await _run(
        (sys.executable, "-m", "tunery.ml.adapters", "verify", str(folder), str(base_model_dir()))
    )
    names = ", ".join(file["name"] for file in listed["files"])
    text = f"downloaded ({names}), hashes right, PeftModel.from_pretrained loads it"
    if status != 0:
        scene.view.line(said.strip()[-500:])
    scene.check("downloaded_adapter_loads_in_peft", whole and status == 0, text)


async def _tunery(scene: Scene, *words: str, codes: Sequence[int] = (0,)) -> str:
    """A command as a person would type it; what it printed. Raises Late."""
    folder = str(scene.stack.folders.root)
    status, said = await _run(
        (sys.executable, "-m", "tunery.cli.main", *words, "--data-dir", folder)
    )
    if status not in codes:
        raise Late(f"`tunery {' '.join(words)}` ended with {status}: {said[-800:]}")
    return said


async def _run(argv: Sequence[str]) -> tuple[int, str]:
    process = await asyncio.create_subprocess_exec(
        *argv, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    out, errors = await asyncio.wait_for(process.communicate(), COMMAND_S_MAX)
    status = process.returncode or 0
    return status, (out if status == 0 or out.strip() else errors).decode("utf-8", "replace")


def _percent(side: dict[str, Any]) -> str:
    return f"{100 * side['accuracy']:.1f} %"


def _short(text: str) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= TEXT_SHOWN else f"{flat[:TEXT_SHOWN]}…"
