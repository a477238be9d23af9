"""Sentences of the API for the codes on the logs.

The logs contain codes with parameters (`schemas.reasons`). The sentences are made here, so that
they can be corrected without changing a journal.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from schemas.account import EVENT_TYPES, KEYS_SCOPE, LANES
from schemas.envelope import Reason
from schemas.model import GLOBAL, ScoreSummary, Verdict
from schemas.pool import ROLES
from schemas.reasons import (
    CordonCode,
    Failure,
    FailureCode,
    FileCode,
    RefusalCode,
    SkipCode,
    VerdictCode,
    WaitCode,
)
from schemas.units import HOUR_MS, PPM, divide_up
from tunery.data.findings.codes import CATALOGUE
from tunery.plan.hyperparameters import ParameterCode

WAITS: Final[Mapping[WaitCode, str]] = {
    "file_validation": "The training file is being validated.",
    "inputs_preparation": "The dataset is being prepared and the base model pinned.",
    "inputs_not_ready": "The file, the dataset or the base model is not ready yet.",
    "placement": "Waiting for slots of the pool.",
    "paused": "Paused. Resume the job to go on.",
    "node_preparation": "A node is fetching the inputs.",
    "draining": "The job was told to stop: it finishes its step and writes a checkpoint.",
    "scoring": "The base model and the adapter are being scored.",
    "judging": "The scores are being judged.",
    "publishing": "The adapter is being published.",
    "no_node_up": "No node of the pool is up.",
    "no_capacity": "Waiting for {slots}: every node that fits is busy.",
    "gang_too_large": "No node of the pool has {slots}. The job waits until one is added.",
    "no_device": "No node of the pool has slots of kind {device} with {memory_bytes} of memory.",
    "no_accelerator": "No node of the pool has {accelerator} devices{accelerators}.",
    "no_domain": "No node that fits is in the domain {domain}{domains}.",
    "domain_busy": "Slots are free, but not in the domain {domain}.",
    "tainted": "Nodes that fit are kept for jobs that tolerate {taints}.",
    "memory_short": "No node of the pool has memory for {slots} of {memory_bytes} each.",
    "excluded_nodes": "Every node that fits has failed under this job.",
    "lane_order": "Waiting behind {ahead} in its lane or in a higher one.",
    "lane_cap": "Premium jobs hold so much of the pool that jobs of other lanes go first.",
    "reservation": "Free slots are reserved for a job before it.",
    "topology": "There are {slots} free, but not on one node.",
    "memory_taken": "Slots are free, but what runs beside them leaves less than {memory_bytes}.",
    "slots_being_freed": "Other jobs write a checkpoint and free {slots} for it.",
    "next_decision": "It fits now, and starts with the pool's next decision.",
    "price_class": "Only slots of another price class are free.",
    "quota": (
        "Paused. It cannot be resumed yet: the tenant has as many jobs as it may have at the same "
        "time ({limit})."
    ),
    "budget": "The budget is used up until the next period.",
}
# what lets a job go on
UNBLOCKS: Final[Mapping[WaitCode, str]] = {
    "file_validation": "The end of the validation; `tunery file show` has its findings.",
    "inputs_preparation": "The end of the preparation, which takes seconds to minutes.",
    "inputs_not_ready": "The end of the preparation, which takes seconds to minutes.",
    "placement": "The pool's next decision.",
    "paused": "You: resume the job.",
    "node_preparation": "The node has the base model and the data; it keeps them for later jobs.",
    "no_node_up": "An operator starts a node, or uncordons one (`tunery node list`).",
    "no_capacity": "A running job that ends or is stopped.",
    "gang_too_large": "An operator adds a node with {slots}.",
    "no_device": "An operator adds a node with such a device.",
    "no_accelerator": "An operator adds a node with {accelerator} devices.",
    "no_domain": "A node in {domain}, or the wait for that domain is over.",
    "domain_busy": "A job in {domain} ends, or the wait for that domain is over.",
    "tainted": "A node without these taints; or submit it with placement.tolerations.",
    "memory_short": "An operator adds a node with more memory.",
    "excluded_nodes": "The end of the back-off of at most 15 minutes, or another node.",
    "lane_order": "The jobs before it start, and slots become free.",
    "lane_cap": "A premium job ends, or the jobs of other lanes that wait start.",
    "reservation": "The job with the reservation starts; a shorter job could start before it.",
    "topology": "Running jobs end until one node has {slots} free.",
    "memory_taken": "A running job ends on a node that has such slots.",
    "slots_being_freed": "The other jobs' checkpoints, within minutes.",
    "next_decision": "The pool's next decision.",
    "price_class": "A node of its price class becomes free.",
    "quota": "A job of the tenant ends, or its limit is raised. Then resume the job.",
    "budget": "The next period, or a higher budget.",
}
SKIPS: Final[Mapping[SkipCode, str]] = {
    "blob_missing": "a file of it is not in object storage",
    "blob_corrupt": "a file of it has another hash than its name says",
    "unusable": "the training process could not load it",
}
CORDONS: Final[Mapping[CordonCode, str]] = {
    "operator": "An operator took it out of service.",
    "jobs_failed": (
        "{jobs} different jobs in a row failed on it. Look at its agent's log, repair it, and "
        "uncordon it."
    ),
}
ALLOWED: Final = ("limit_", "left_", "budget_")  # names of what there is; the rest is needed
REFUSALS: Final[Mapping[RefusalCode, str]] = {
    # any stream
    "idempotency_key_reused": "This idempotency key was used with another body. Use a new one.",
    "envelope_unreadable": "The command cannot be read: {path} is missing or has a wrong type.",
    "body_unreadable": "The command cannot be read: {path} is missing or has a wrong type.",
    "key_length": "The key of a command must have 1 to {limit} characters.",
    "tenant_not_global": f"A command with the key {GLOBAL} must have the tenant {GLOBAL}.",
    "partition_wrong": "The key of the command belongs to another partition.",
    "tenant_not_key": "The tenant of the command is not its key.",
    "record_too_large": (
        "The record of this command would have more than {limit_bytes} bytes. Send less at once."
    ),
    "decision_failed": (
        "This command could not be decided ({error}). Nothing was changed; tell the operator."
    ),
    # tenants and what is theirs
    "tenant_missing": "Tenant {tenant!r} does not exist. Create it first.",
    "tenant_exists": "Tenant {tenant!r} exists already.",
    "tenant_suspended": (
        "This tenant is suspended: it cannot submit or resume jobs. Jobs that it has submitted go "
        "on. Ask an operator to resume the tenant."
    ),
    "concurrency_below_one": "limits.concurrency must be at least 1.",
    "limits_out_of_order": "Limits must satisfy 0 <= soft_gpu_ms <= hard_gpu_ms.",
    "key_exists": "Key {key_id!r} exists already.",
    "key_missing": "No key {key_id!r}.",
    "key_revoked": "Key {key_id!r} was revoked. Create a new one.",
    "key_rotated_by_another": (
        "A key can be rotated only with its own newest secret, or by an operator, because the "
        "response contains the new secret. You can revoke other keys of yours."
    ),
    "key_revoked_by_another": (
        f"To revoke another key, use a key with the scope {KEYS_SCOPE}, or ask an operator. Keys "
        "of operators can be revoked by operators only."
    ),
    "keys_at_most": "A tenant has at most {limit} keys. Revoke one first.",
    "scopes_missing": "A key needs at least one scope.",
    "endpoint_exists": "Webhook endpoint {endpoint_id!r} exists already.",
    "endpoint_missing": "No webhook endpoint {endpoint_id!r}.",
    "endpoints_at_most": "A tenant has at most {limit} webhook endpoints. Delete one first.",
    "event_types_missing": f"No event types. Choose from: {', '.join(EVENT_TYPES)}.",
    "event_types_unknown": (
        f"Unknown event types: {{types}}. Choose from: {', '.join(EVENT_TYPES)}."
    ),
    "deliveries_at_most": "{limit} deliveries are open already. Wait until some have ended.",
    "adjustment_exists": (
        "{reference!r} is on the bill of {period} already; use another reference."
    ),
    "adjustments_at_most": (
        "A tenant has at most {limit} adjustments a month. Sum them up, or wait for the next month."
    ),
    "amount_out_of_range": "amount_micro must not be 0, and at most {limit} either way.",
    "currency_malformed": "The currency must be three capital letters of ISO 4217, like EUR.",
    "month_malformed": "The month must be written like 2026-11.",
    "month_not_begun": "{period} has not begun. Adjust the current month, or an earlier one.",
    "month_being_closed": "{period} is being closed. Try again in a few minutes.",
    "invoice_missing": "There is no invoice of {period} in {currency}.",
    "credit_out_of_range": (
        "A closed invoice can only be credited. Invoice {number} has {left_micro} millionths left, "
        "net; the amount must be below 0, at least one minor unit of the currency, and not more."
    ),
    "prices_not_global": f"Price books are global: their key must be {GLOBAL}.",
    "prices_changed_content": (
        "The price book {version!r} was imported with other prices. Give the new prices a new "
        "version: what was priced stays priced."
    ),
    "prices_currency": (
        "The currency of the price book {version!r} must be three capital letters of ISO 4217."
    ),
    "prices_date": (
        "The price book {version!r} needs its first day as effective_from, like 2026-11-01."
    ),
    "prices_lanes": f"The price book {{version!r}} must have prices of lanes: {', '.join(LANES)}.",
    "prices_out_of_range": (
        "The prices of the book {version!r} must be between 0 and {limit} millionths."
    ),
    "prices_rate_lane": (
        "A rate of the price book {version!r} is of a lane that has no price in gpu_hour_micro."
    ),
    "prices_rate_role": (
        f"The role of a rate of the price book {{version!r}} must be one of {', '.join(ROLES)}, or "
        "left out for both."
    ),
    "prices_rate_device": (
        "The device of a rate of the price book {version!r} must be cpu, cuda, or an accelerator "
        "as nodes name it, like h200: small letters, digits, dots and hyphens."
    ),
    "prices_rate_twice": (
        "Two rates of the price book {version!r} are of the same lane, role, device and spot. "
        "Remove one."
    ),
    "prices_tiers_at_most": "A rate of the price book {version!r} has at most {limit} tiers.",
    "prices_tier_order": (
        "The quantities of the tiers of the price book {version!r} must rise, from above 0 to at "
        "most {limit}: the smallest first, none twice."
    ),
    "prices_tier_rises": (
        "The prices of the tiers of the price book {version!r} must fall: each below the one "
        "before, the first below the rate's own price, none below 0."
    ),
    "prices_overlap": (
        "The price book {version!r} begins on the day on which {other!r} of the same currency "
        "begins. Give it another first day."
    ),
    "taxes_at_most": "An invoice has at most {limit} taxes.",
    "tax_out_of_range": "The rate of a tax must be between 0 and 1,000,000 millionths.",
    "due_days_out_of_range": "due_days must be between 0 and {limit}.",
    "discounts_at_most": "A tenant has at most {limit} discounts.",
    "discount_references": "Each discount needs a reference of its own.",
    "discount_out_of_range": (
        "The rate of the discount {reference!r} must be between 1 and 1,000,000 millionths."
    ),
    "discounts_above_all": (
        "In a month, the discounts of lane {lane} are more than its price. Together they may be at "
        "most 1,000,000 millionths."
    ),
    "months_malformed": (
        "The months of {reference!r} must be like 2026-11, the last not before the first."
    ),
    "overage_out_of_range": (
        "Overage has either a surcharge between 1 and {limit} millionths, or a price of a GPU-hour "
        "of 0 or more."
    ),
    "commitment_out_of_range": "A commitment must be between 1 and {limit} millionths.",
    "prepaid_exists": (
        "The reference {reference!r} was used for another prepaid credit. Each payment needs a "
        "reference of its own."
    ),
    "prepaid_at_most": "A tenant has at most {limit} prepaid credits. Some must expire first.",
    "prepaid_missing": "There is no prepaid credit {reference!r}.",
    "prepaid_reserved": "The reference {reference!r} begins like those of invoices below zero.",
    "prepaid_out_of_range": (
        "A prepaid credit must be above 0, at most {limit} millionths, and whole minor units of "
        "its currency ({unit_micro} millionths)."
    ),
    "prepaid_expired": "{period} is over: a credit that expires then can pay no invoice.",
    "currency_of_another": "The currency {currency!r} is not that of the tenant's prices, {own!r}.",
    # files
    "file_exists": "File {file_id!r} exists already.",
    "file_missing": "No such File object: {file_id}",
    "file_used_by_jobs": (
        "File {file_id} is in use by {jobs}. Cancel the job, or wait until it has ended."
    ),
    "file_used_by_models": (
        "File {file_id} is in the lineage of {models}{others}. Delete the models first: "
        "DELETE /v1/models/{model}"
    ),
    "files_at_most": "A tenant has at most {limit} files. Delete some first.",
    "datasets_at_most": (
        "A tenant has at most {limit} dataset names. Use an existing name, or no name."
    ),
    "upload_exists": "Upload {upload_id} exists already.",
    "upload_not_pending": (
        "Upload {upload_id} is not pending. It was completed, was cancelled, has expired, or never "
        "existed."
    ),
    "uploads_at_most": "{limit} uploads are pending. Complete or cancel one first.",
    "part_exists": "Part {part_id} exists already.",
    "parts_at_most": "An upload has at most {limit} parts. Send larger ones (up to 64 MB).",
    "parts_wrong": "part_ids must name parts of this upload, each once.",
    "parts_size": "The parts have {size_bytes} bytes, {declared_bytes} were declared.",
    # jobs
    "limits_missing": "This tenant does not exist, or has no limits yet.",
    "job_exists": "Job {job_id} exists already.",
    "job_missing": "Job {job_id} does not exist.",
    "job_ended": "You cannot {change} a job that has {outcome}.",
    "job_change": "You cannot {change} a job that is {phase}, wanted: {wanted}.",
    "jobs_at_most": ("{limit} jobs are running or waiting already. Pause or cancel one, or wait."),
    "slots_below_one": "slots must be 1 or more.",
    "prices_changed": "Prices changed during the submission. Look at the estimate again.",
    "plan_changed": (
        "The plan changed while the job was being submitted: it was priced for the lane {lane}, "
        "and the tenant's lane is {plan} now. Look at the estimate again."
    ),
    "file_rejected": (
        "The training file did not pass validation. Read its report, correct the rows it names, "
        "upload it again."
    ),
    "hard_limit": (
        "The job may need {hold_gpu_ms} GPU-hours, and {left_gpu_ms} of this month's "
        "{limit_gpu_ms} are neither used nor held. Lower n_epochs, wait for running jobs to "
        "release theirs, or ask for a higher limit."
    ),
    "key_cap": (
        "The job may cost {price_max_micro} {currency}, and the API key has {left_micro} left of "
        "the {limit_micro} it may spend this month. Use another key, or ask for a higher cap."
    ),
    "key_cap_currency": (
        "The job is priced in {currency}, and what the API key may spend is in {limit_currency}. "
        "Use a key that was created since the tenant is billed in {currency}."
    ),
    "budget_gpu_hours": (
        "The job may need up to {hold_gpu_ms} GPU-hours, which is held until it ends, and its "
        "budget is {budget_gpu_ms}. Raise the budget, or lower n_epochs."
    ),
    "budget_amount": (
        "The job may need up to {price_max_micro} {currency}, which is held until it ends, and its "
        "budget is {budget_micro}. Raise the budget, or lower n_epochs."
    ),
    "month_budget_gpu_hours": (
        "The job may need {hold_gpu_ms} GPU-hours. The budget {budget!r} allows {limit_gpu_ms} in "
        "{month}: {used_gpu_ms} are used, {held_gpu_ms} are held by open jobs. Lower n_epochs, "
        "wait for open jobs to release theirs, or raise the budget (`tunery budget set`)."
    ),
    "month_budget_amount": (
        "The job may cost {price_max_micro} {currency}. The budget {budget!r} allows {limit_micro} "
        "in {month}: {used_micro} are used, {held_micro} are held by open jobs. Lower n_epochs, "
        "wait for open jobs to release theirs, or raise the budget (`tunery budget set`)."
    ),
    "month_budget_currency": (
        "The job is priced in {currency}, and the budget {budget!r} is in {limit_currency}. Set "
        "the budget again (`tunery budget set`), or remove it."
    ),
    "budget_missing": "No budget {budget_id!r}.",
    "budget_empty": "A budget needs max_gpu_hours or max_amount_micro, each above 0.",
    "budgets_at_most": "A tenant has at most {limit} budgets. Remove one first.",
    # pools
    "work_hash": "Work {work_id} of job {job_id} has another hash.",
    "incarnation_former": "Node {node_id} runs a newer incarnation already.",
    "slots_at_most": "A node has at most {limit} slots.",
    "node_in_service": "Node {node_id} is in service. Drain it and stop its agent first.",
    "node_missing": "There is no node {node_id}.",
    "incarnation_unknown": "Node {node_id} is not registered in this incarnation.",
    "lease_not_open": (
        "Lease {lease} is not open for this agent. Stop what runs under it and free its slots."
    ),
    "lease_not_training": "Lease {lease} is not training attempt {attempt}.",
    "member_unknown": "Lease {lease} is not on node {node_id} in this incarnation.",
    # models
    "base_not_global": f"Base models are global: their key must be {GLOBAL}.",
    "base_bytes": (
        "Base model {base_id!r} is registered with SHA-256 {known_sha256}, not {sha256}. Changed "
        "weights need a new id."
    ),
    "model_missing": "The model '{model_id}' does not exist.",
    "model_publishing": "Model {model_id!r} is still being published. Try again shortly.",
    "model_quarantined": (
        "Model {model_id!r} is quarantined: the gate blocked it, because it answers worse than its "
        "base. It can be downloaded or archived, not promoted."
    ),
    "model_in_stage": (
        "Model {model_id!r} holds {stage}. Promote another version, or move this one to archived, "
        "first."
    ),
    "stage_free": (
        "{stage} is held by no version, not by {expected}. Read the stage again, and send "
        "expected=null to replace its holder."
    ),
    "stage_taken": (
        "{stage} is held by {holder}, not by no version. Read the stage again, and send "
        "expected={holder} to replace its holder."
    ),
    "stage_moved": (
        "{stage} is held by {holder}, not by {expected}. Read the stage again, and send "
        "expected={holder} to replace its holder."
    ),
    "stage_permanent": "Only staging and production can be rolled back.",
    "stage_without_former": "No former version of {stage} is left to roll back to.",
    "permission_missing": "The permission '{permission_id}' does not exist.",
    "permissions_at_most": "A tenant gives at most {limit} permissions. Delete some first.",
}

FILES: Final[Mapping[FileCode, str]] = {
    "rows_too_many": (
        "Training file has more than {limit} example(s), which is the most allowed here."
    ),
    "rows_too_few": "Training file has {rows} example(s), but must have at least {limit} examples.",
    "row_invalid": "Invalid file format. Example {row}: {finding}.{errors}",
    "file_invalid": "Invalid file format. {finding}.{errors}",
}
FAILURES: Final[Mapping[FailureCode, str]] = {
    # files and datasets
    "file_unchecked": "The file could not be checked. Upload it again to retry.",
    "file_deleted": "The file was deleted.",
    "file_gone": "File {file_id} does not exist any more.",
    "file_unaccepted": (
        "File {file_id} was rejected. GET /v1/files/{file_id}/validation lists every problem."
    ),
    "rows_unpreparable": (
        "Rows of the training file cannot be prepared. Correct them, upload the file again and "
        "submit again."
    ),
    "preparation_failed": "The dataset could not be prepared. Submit the job again.",
    "base_unregistered": (
        "Base model {base_id!r} with SHA-256 {sha256} is not registered (any more). Submit the job "
        "again."
    ),
    # models
    "base_missing": "The model '{base_id}' does not exist.",
    "base_differs": (
        "Base model {base_id!r} has SHA-256 {sha256} now, the job was submitted for {job_sha256}. "
        "Submit it again."
    ),
    "base_changed": "The base model changed between submission and start. Submit the job again.",
    "version_exists": (
        "The adapter could not be published: model {model_id!r} exists already, from job {job_id}."
    ),
    "versions_at_most": (
        "The adapter could not be published: a tenant has at most {limit} model versions. Delete "
        "some first."
    ),
    "adapter_empty": "The adapter could not be published: it has no files.",
    "adapter_unpublishable": (
        "The adapter could not be published: its files are not as they must be."
    ),
    "publishing_failed": "The adapter could not be published. Ask the operator to look at it.",
    # jobs
    "attempts_lost": (
        "Given up: {attempts} attempts in a row were lost before a checkpoint. Ask the operator to "
        "look at it."
    ),
    "nodes_failed": (
        "Given up: nodes failed under {attempts} attempts in a row. Ask the operator to look at it."
    ),
    "platform_errors": (
        "Given up: {attempts} platform errors in a row. Ask the operator to look at it."
    ),
    "attempts_failed": (
        "Given up: {attempts} attempts of this training failed, although it got further between "
        "them. Ask the operator to look at it."
    ),
    "loss_diverged": (
        "The loss became infinite or not a number. Lower the learning rate, lengthen the warm-up, "
        "or look for rows that are empty or garbled."
    ),
    "row_untrainable": "A row could not be trained on. Correct the file and upload it again.",
    "slots_above_largest": (
        "It needs {slots}, and the largest node of the pool has {largest}. Submit it with fewer, "
        "or ask the operator for a larger node."
    ),
    "request_wrong": "Correct what the message names and submit again.",
    "memory_exceeded": (
        "It does not fit into memory. Lower batch_size, max_length or rank, or ask for a larger "
        "pool."
    ),
    "hold_used_up": (
        "The job has used all that was held for it. Train fewer epochs or fewer tokens, or submit "
        "it again: a new estimate takes a new hold."
    ),
    "scores_unjudged": (
        "The scores of the evaluation could not be judged; the adapter is kept with the job's "
        "result. Ask the operator to look at it."
    ),
}
VERDICTS: Final[Mapping[VerdictCode, str]] = {
    "items_too_few": "{items} items scored, {limit} are needed to tell",
    "drop_excluded": "{change_ppm} points on {items} items, one-sided p of a drop = {p_ppm}",
    "drop_shown": (
        "{change_ppm} points on {items} items, one-sided p of a drop = {p_ppm}: a drop of more "
        "than {drop_max_ppm} points"
    ),
    "drop_undecided": (
        "{change_ppm} points on {items} items, one-sided p of a drop = {p_ppm}: neither a drop nor "
        "its absence is shown"
    ),
    "validation_loss_rose": "loss on the validation rows is higher than the base model's",
    "scores_not_finite": "scores are infinite or not a number: {sides}",
}
ADVICE: Final[Mapping[Verdict, str]] = {
    "block": (
        "The adapter lost general abilities. Train fewer epochs, lower the learning rate, or mix "
        "general examples into the training file."
    ),
    "inconclusive": (
        "Add capability items, or compare the two on your own tasks before promoting it."
    ),
}
NOT_FINITE: Final = (
    "The adapter's weights have grown beyond what can be computed with. Lower the learning rate or "
    "lengthen the warm-up."
)
OVERFITTED: Final = (
    "Train fewer epochs or add rows: the validation loss rose above the base model's."
)
PARAMETERS: Final[Mapping[ParameterCode, str]] = {
    "unknown": "unknown hyper-parameter; known: {known}",
    "not_a_choice": "{name} must be one of {known}",
    "not_a_pattern": (
        "{name} must be an object of up to {most} names of layers with whole numbers from {low} to "
        "{high}"
    ),
    "not_layers": '{name} must be "all-linear", or 1 to {most} names of layers, like "q_proj"',
    "does_not_divide": "accumulation must divide batch_size, which is {batch_size}",
    "two_learning_rates": "give learning_rate or learning_rate_multiplier, not both",
    "not_whole_in_range": (
        '{name} must be a whole number from {low} to {high}, or "auto"; it is {value}'
    ),
    "not_in_range": '{name} must be a number from {low} to {high}, or "auto"; it is {value}',
}

#: parameters that are shown in a form of their own
FORMS: Final[Mapping[str, Callable[[Any], str]]] = {
    "slots": lambda slots: f"{slots} slot" + ("" if slots == 1 else "s"),
    "ahead": lambda jobs: "1 job" if jobs == 1 else f"{jobs} jobs",
    "others": lambda others: f" and {others} more" if others else "",
    "memory_bytes": lambda size: f"{size / 1e9:.1f} GB",
    "domains": lambda names: f"; there are {names}" if names else "",
    "accelerators": lambda models: f"; there are {models}" if models else "",
    "finding": lambda code: f"{CATALOGUE[code].meaning} ({code})" if code in CATALOGUE else code,
    "errors": lambda errors: f" {errors} errors in all." if errors > 1 else "",
    "change_ppm": lambda ppm: f"{100 * ppm / PPM:+.1f}",
    "drop_max_ppm": lambda ppm: f"{100 * ppm / PPM:g}",
    "p_ppm": lambda ppm: f"{ppm / PPM:.4f}",
}


def wait_words(reason: Reason | None) -> str | None:
    """Why a job waits, or what it does, as a sentence."""
    return None if reason is None else _fill(WAITS, reason)


def unblock_words(reason: Reason | None) -> str | None:
    """What lets a waiting job go on, as a sentence; None: nothing has to happen."""
    return None if reason is None or reason.code not in UNBLOCKS else _fill(UNBLOCKS, reason)


def skip_words(reason: Reason) -> str:
    """Why a checkpoint was passed over, as a clause."""
    return _fill(SKIPS, reason)


def cordon_words(reason: Reason) -> str:
    """Why a node gets no new jobs, and what to do."""
    return _fill(CORDONS, reason)


def refusal_words(reason: Reason) -> str:
    """Why a command is refused, and what to do."""
    return _fill(REFUSALS, reason)


def file_words(reason: Reason) -> str:
    """Why a file is not accepted, as OpenAI words it."""
    return _fill(FILES, reason)


def failure_words(failure: Failure) -> str:
    """Why something failed, and what to do. What its process said (`detail`) is not in it."""
    reason = failure.reason
    if reason.code not in FILES:
        return _fill({**FAILURES, **REFUSALS}, reason)
    listed = f"GET /v1/files/{reason.params.get('file_id', '{id}')}/validation lists every problem."
    return f"The job failed due to an invalid training file. {file_words(reason)} {listed}"


def verdict_words(reason: Reason) -> str:
    """What a verdict rests on, as a clause."""
    return _fill(VERDICTS, reason)


def advice_words(summary: ScoreSummary) -> str | None:
    """What to do after a verdict; None: nothing."""
    codes = {reason.code for reason in summary.reasons}
    if "scores_not_finite" in codes:
        return NOT_FINITE
    return ADVICE.get(summary.verdict, OVERFITTED if "validation_loss_rose" in codes else None)


def parameter_words(reason: Reason) -> str:
    """What is wrong with a hyper-parameter, as a clause."""
    return _fill(PARAMETERS, reason)


def hours(gpu_ms: int, *, down: bool = False) -> str:
    """Hundredths of an hour, rounded up, or down where it says so."""
    return _hundredths(gpu_ms * 100, HOUR_MS, down)


def money(micro: int, *, down: bool = False) -> str:
    """Hundredths of the currency, rounded up, or down where it says so."""
    return _hundredths(micro, 10_000, down)


def _hundredths(value: int, unit: int, down: bool) -> str:
    count = value // unit if down else divide_up(value, unit)
    return f"{count // 100}.{count % 100:02}"


def _fill(catalogue: Mapping[Any, str], reason: Reason) -> str:
    """A code without words is shown as it is: it comes from a newer writer."""
    params = {name: _show(name, value) for name, value in reason.params.items()}
    try:
        return catalogue[reason.code].format_map(params)
    except KeyError:
        return reason.code


def _show(name: str, value: str | int) -> str:
    """A parameter as people read it; the unit ends its name."""
    form = FORMS.get(name)
    if form is not None:
        return form(value)
    if isinstance(value, str):
        return value
    # needed and allowed never look equal where they are not
    down = name.startswith(ALLOWED)
    if name.endswith("_gpu_ms"):
        return hours(value, down=down)
    return money(value, down=down) if name.endswith("_micro") else str(value)
