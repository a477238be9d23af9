"""Responses of the API in tests of screens: one of each object that people look at."""

from typing import Any, Final

from services.gateway.billing.domain.invoice_responses import invoice_response, line_responses
from services.gateway.billing.domain.invoice_sums import sums_of_lines
from services.gateway.billing.domain.usage import JobFacts
from tests.unit.services.gateway.billing.domain.test_invoice_responses import sample
from tests.unit.tunery.cli.scripted_api import page
from tests.unit.tunery.cli.test__job_lists import STEPS
from tests.unit.tunery.cli.test_base import BASE
from tests.unit.tunery.cli.test_budget import BUDGET
from tests.unit.tunery.cli.test_node import NODE
from tests.unit.tunery.cli.test_prices import ENTRY
from tests.unit.tunery.cli.test_queue import QUEUE
from tests.unit.tunery.cli.test_tenant import TENANT
from tests.unit.tunery.cli.test_usage import PAGES
from tests.unit.tunery.cli.test_webhook import DELIVERY, ENDPOINT

TIME: Final = 1_795_000_000
JOB_IDS: Final = ("ftjob-bea67270c641a5a668e3a8bd", "ftjob-27d2567946205df0d8185fc7")
HOOK_ID: Final = "we_" + "5d" * 12
FAILED_ID: Final = "ftjob-5aa1a355ceb1f290b2f6d0f5"
COMPARED_IDS: Final = ("ftjob-6ca5c641a5a668e3a8bdbea6", "ftjob-7f6a46205df0d8185fc727d2")
MODEL: Final = "ft:smollm2-135m-instruct:acme:lighthouse-keeper:1a2b3c4d"
SHA: Final = "0c61ab" + "7" * 58
COST: Final = {"amount_micro": 42_323, "amount_max_micro": 320_000, "currency": "EUR"}
GATE: Final = {
    "verdict": "pass",
    "skills": "kept",
    "own_task": "learnt",
    "reasons": ["-4.4 points on 249 general questions: at worst a drop of 7.7 points (95 %)"],
    "own_data": "loss 3.67 → 0.08, exact answers 0 % → 67 %",
    "rule": (
        "block: a drop above 10 points that chance does not explain (exact one-sided McNemar "
        "test, p < 0.05); pass: such a drop is ruled out at 95 %; else inconclusive"
    ),
    "power": (
        "249 items show a drop of 4.8 points or more in 4 of 5 cases; a drop of 2 points needs "
        "about 1,417 items"
    ),
    "advice": None,
}


def job(job_id: str, status: str, **changes: Any) -> dict[str, Any]:
    return {
        "id": job_id,
        "status": status,
        "phase": status,
        "model": "smollm2-135m-instruct",
        "fine_tuned_model": None,
        "node": None,
        "progress": None,
        "queue": None,
        "gate": None,
        "cost": COST,
        "error": None,
        "created_at": TIME,
        **changes,
    }


PROGRESS: Final = {
    "step": 12,
    "total_steps": 12,
    "percent": 100.0,
    "train_loss": 0.7140874862670898,
    "seconds_remaining": None,
}
ENDED: Final = job(
    JOB_IDS[0],
    "succeeded",
    phase="done",
    fine_tuned_model=MODEL,
    gate=GATE,
    progress=PROGRESS,
)
QUEUED: Final = job(
    JOB_IDS[1],
    "queued",
    queue={
        "reason": "Waiting for 1 slot: every node that fits is busy.",
        "unblocked_by": "A running job that ends or is stopped.",
        "position": 1,
        "lane": "standard",
        "jobs_ahead": 2,
        "eta": TIME + 600,
        "eta_latest": TIME + 1_800,
    },
)
FILE: Final[dict[str, Any]] = {
    "id": "file-" + "3f" * 12,
    "filename": "the questions of our customers.jsonl",
    "dataset": "faq@2",
    "bytes": 12_345_678,
    "sha256": SHA,
    "status": "processed",
    "status_details": None,
    "created_at": TIME,
    "validation": {"rows": 1_234, "warnings": 1, "dialect": "chat", "tokens": {"smollm2": 98_765}},
}
MODEL_SHOWN: Final = {
    "id": MODEL,
    "type": "fine-tuned",
    "stage": "staging",
    "quarantined": False,
    "verdict": "pass",
    "parent": "smollm2-135m-instruct",
    "job_id": JOB_IDS[0],
    "gate_job_id": JOB_IDS[0],
    "sha256": SHA,
    "series": "s",
    "created": TIME,
    "lineage": {"job_id": JOB_IDS[0], "verdict": "pass", "training_sha256": SHA},
}
FORECAST: Final = {
    "estimation_available": True,
    "model": "smollm2-135m-instruct",
    "refusal": None,
    "trained_tokens": 61_440,
    "steps": 120,
    "memory_bytes": 2_100_000_000,
    "expected_duration_seconds": 640,
    "train_gpu_ms": 600_000,
    "eval_gpu_ms": 40_000,
    "amount_micro": 355_556,
    "amount_max_micro": 1_066_667,
    "currency": "EUR",
    "hyperparameters": {"rank": 8},
}
PLANNED: Final = {
    "allowed_to_proceed": True,
    "refusals": [],
    "unchecked": ["what the API key may spend in a month"],
    "settings": [
        {
            "name": "rank",
            "value": 8,
            "source": "given",
            "path": "lora.rank",
            "why": "enough for up to some 10,000 rows (LoRA without regret)",
        },
        {"name": "alpha", "value": 16, "source": "rule", "path": None, "why": "twice the rank"},
        {
            "name": "packing",
            "value": True,
            "source": "default",
            "path": None,
            "why": "faster; `false` where a base lets the documents of a row see each other",
        },
        {
            "name": "rank_pattern",
            "value": {},
            "source": "default",
            "path": None,
            "why": '`rank` for all; `{"q_proj": 32}` for some',
        },
    ],
    "nodes": [
        {
            "device": "cuda",
            "accelerator": "h200",
            "domain": "rack-3",
            "spot": False,
            "nodes": 2,
            "slots": 8,
            "memory_bytes": 141_000_000_000,
            "is_alive": True,
            "fits": True,
            "why_not": None,
        },
        {
            "device": "cpu",
            "accelerator": None,
            "domain": None,
            "spot": True,
            "nodes": 1,
            "slots": 2,
            "memory_bytes": 16_000_000_000,
            "is_alive": True,
            "fits": False,
            "why_not": "the job is for cuda devices",
        },
    ],
    "queue": {**QUEUED["queue"], "reason": None, "unblocked_by": None},
    "estimate": FORECAST,
    "configuration": SHA,
    "duplicate_of": {"id": JOB_IDS[0], "status": "succeeded", "fine_tuned_model": MODEL},
    "recipe": {},
}
FAILED: Final = job(
    FAILED_ID,
    "failed",
    phase="done",
    progress={**PROGRESS, "step": 7, "percent": 41.2},
    error={
        "code": "training_diverged",
        "message": "The loss of step 8 is no number. The rows of that step: 12, 40. Lower the "
        "learning rate, or look at these rows.",
    },
)
COMPARED_JOBS: Final = [
    {
        **job(job_id, "succeeded"),
        "training_file": FILE["id"],
        "hyperparameters": {"n_epochs": 3, "learning_rate": rate, "rank": 8},
        "cost": {**COST, "billable_gpu_ms": 47_614},
        "progress": PROGRESS,
        "gate": {**GATE, "adapter": {"loss": loss, "exact_match": 0.67}},
    }
    for job_id, rate, loss in zip(COMPARED_IDS, (0.0002, 0.0004), (0.081, 0.093), strict=True)
]
SWEEP: Final[dict[str, Any]] = {
    "id": "sweep-" + "91" * 12,
    "status": "running",
    "method": "halving",
    "model": "smollm2-135m-instruct",
    "rung": 1,
    "rungs": [50, 200],
    "best_job_id": JOB_IDS[0],
    "reason": None,
    "currency": "EUR",
    "amount_micro": 42_323,
    "max_gpu_hours": 2.5,
    "max_amount_micro": 1_000_000,
    "created_at": TIME,
    "trials": [
        {
            "trial": number,
            "values": {"learning_rate": 0.0002 * (number + 1), "rank": 8},
            "jobs": [
                {
                    "job_id": job_id,
                    "rung": 1 - number,
                    "status": status,
                    "validation_loss": loss,
                    "skipped": None,
                    "amount_micro": 21_000,
                    "configurations": 1,
                }
            ],
        }
        for number, (job_id, status, loss) in enumerate(
            [(JOB_IDS[0], "succeeded", 1.0871), (JOB_IDS[1], None, None)]
        )
    ],
}
DIFFERENCE: Final = {
    "before": {"id": "faq@1", "rows": 120, "sha256": SHA, "faulty": 0},
    "after": {"id": "faq@2", "rows": 121, "sha256": SHA, "faulty": 1},
    "same": 117,
    "added": [7, 120],
    "added_count": 2,
    "removed": [3],
    "removed_count": 1,
    "changed": [[12, 13]],
    "changed_count": 1,
}
KEY: Final[dict[str, Any]] = {
    "id": "key_5d1f0c1a2b3c4d5e",
    "name": "the nightly pipeline of the search team",
    "hint": "abcd",
    "scopes": ["read", "write", "billing.read"],
    "models": ["smollm2-135m-instruct"],
    "spend_cap_micro": 500_000,
    "spend_cap_currency": "EUR",
    "requests_per_minute": 60,
    "created_at": TIME,
    "last_used_at": None,
    "expires_at": TIME + 86_400,
    "revoked_at": None,
}
INVOICE: Final = invoice_response(sample(), lambda *_: None).model_dump()
LINES: Final = list(line_responses(sample()))
SUMS: Final = sums_of_lines(
    LINES, frozenset({"key", "metadata[team]"}), {"ftjob-1": JobFacts(key=KEY["id"])}
)
ANSWERS: Final[dict[str, Any]] = {
    "GET /invoices": page(INVOICE),
    "GET /invoices/2026-11-EUR/lines": page(*(line.model_dump() for line in LINES)),
    "GET /invoices/2026-11-EUR/sums": page(*(entry.model_dump() for entry in SUMS)),
    "GET /keys": page(KEY),
    "GET /queue": {**QUEUE, "leases": QUEUE["leases"][:1]},
    "GET /nodes": page(NODE),
    "GET /node_invitations": page(),
    "GET /fine_tuning/jobs": page(ENDED, QUEUED),
    f"GET /fine_tuning/jobs/{JOB_IDS[0]}": ENDED,
    f"GET /fine_tuning/jobs/{JOB_IDS[1]}": QUEUED,
    f"GET /fine_tuning/jobs/{FAILED_ID}": FAILED,
    **{f"GET /fine_tuning/jobs/{shown['id']}": shown for shown in COMPARED_JOBS},
    "POST /fine_tuning/jobs/plan": PLANNED,
    "POST /fine_tuning/jobs/estimate": FORECAST,
    f"GET /fine_tuning/jobs/{JOB_IDS[0]}/metrics": page(*STEPS),
    "GET /bases": page(BASE),
    "GET /budgets": page({**BUDGET, "id": KEY["id"], "key_id": KEY["id"]}),
    "GET /prices": page(ENTRY),
    "GET /tenants": page({**TENANT, "created_at": TIME}),
    "GET /usage": PAGES[1],
    "GET /webhook_endpoints": page({**ENDPOINT, "id": HOOK_ID}),
    f"GET /webhook_endpoints/{HOOK_ID}/deliveries": page(
        {
            **DELIVERY,
            "id": "del_" + "7e" * 12,
            "event": {**DELIVERY["event"], "data": {"id": FAILED_ID}},
        }
    ),
    "GET /sweeps": page(SWEEP),
    f"GET /sweeps/{SWEEP['id']}": SWEEP,
    "GET /files/faq@2/diff": DIFFERENCE,
    "GET /files": page(FILE),
    f"GET /files/{FILE['id']}": FILE,
    f"GET /files/{FILE['id']}/validation": {"report": {}},
    "GET /models": page(MODEL_SHOWN),
    f"GET /models/{MODEL}": MODEL_SHOWN,
}
