"""Sentences of the API for the codes with which commands are refused."""

from collections.abc import Mapping
from typing import Final

from schemas.account import EVENT_TYPES, KEYS_SCOPE, LANES
from schemas.pool import ROLES
from schemas.reasons import RefusalCode
from schemas.streams import GLOBAL
from tunery.plan.time import FIRST_HOLD_MS_MIN, HOLD_MS_MIN, MINUTE_MS

LEAST_HELD: Final = (
    f"the smallest job holds {HOLD_MS_MIN // MINUTE_MS} minutes of each slot for its training and "
    f"as much for its evaluation, the first ones of a pool {FIRST_HOLD_MS_MIN // MINUTE_MS}."
)
REFUSALS: Final[Mapping[RefusalCode, str]] = {
    # any stream
    "idempotency_key_reused": (
        "This idempotency key was used with another body. Choose a new key."
    ),
    "envelope_unreadable": "The command cannot be read: {path} is missing or has a wrong type.",
    "body_unreadable": "The command cannot be read: {path} is missing or has a wrong type.",
    "key_length": "The key of a command must have 1 to {limit} characters.",
    "tenant_not_global": f"A command with the key {GLOBAL} must have the tenant {GLOBAL}.",
    "partition_wrong": "The key of the command belongs to another partition.",
    "tenant_not_key": "The tenant of the command is not its key.",
    "sender_unproven": (
        "The command has no signature, or a wrong one. Nothing was changed; tell the operator."
    ),
    "sender_not_permitted": "{sender} may not send {command}. Nothing was changed.",
    "sender_of_reaction": "{sender} may not react to {stream}. Nothing was changed.",
    "sender_not_node": "{sender} may not speak for the node {node_id!r}. Nothing was changed.",
    "sender_withdrawn": "The key of {sender} is withdrawn. Nothing was changed.",
    "operator_refused": ("The command could not be decided, and {operator} has refused it: {why}"),
    "record_too_large": (
        "The record of this command would have more than {limit_bytes} bytes. Send less at once."
    ),
    "level_too_low": (
        "This needs level {needed} of the log, which is at {level} until the operator has finished "
        "an upgrade. Nothing was changed; send it again later."
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
    "tenant_erased": "Tenant {tenant!r} was erased. Its id is not used again.",
    "tenant_of_operators": (
        "Tenant {tenant!r} has keys of operators, and who erases it could do nothing more. Revoke "
        "those keys first, with a key of another tenant."
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
    "batch_missing": "No such Batch object: {batch_id}",
    "batch_closing": "The batch {batch_id} takes no more answers.",
    "batch_exists": "The batch {batch_id} exists already.",
    "batch_rows_answered": "Row {row} of the batch {batch_id} has its answer.",
    "batches_at_most": "A tenant has at most {limit} open batches. Wait until one has ended.",
    "import_missing": "No such Import object, or it has ended: {import_id}",
    "imports_at_most": "A tenant has at most {limit} open imports. Wait until one has ended.",
    "keys_at_most": "A tenant has at most {limit} keys. Revoke one first.",
    "scopes_missing": "A key needs at least one scope.",
    "endpoint_exists": "Webhook endpoint {endpoint_id!r} exists already.",
    "endpoint_missing": "No webhook endpoint {endpoint_id!r}.",
    "endpoints_at_most": "A tenant has at most {limit} webhook endpoints. Delete one first.",
    "endpoint_unconfirmed": (
        "The address of webhook endpoint {endpoint_id!r} is not confirmed. Confirm it with the "
        "code that was mailed to it."
    ),
    "confirmations_at_most": (
        "A tenant has at most {limit} codes a day mailed to addresses. Wait until tomorrow."
    ),
    "confirmation_wrong": "This is not the code that was mailed to the endpoint's address.",
    "confirmation_late": (
        "A code is accepted for {hours} hours. Set the endpoint's URL again: it is mailed anew."
    ),
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
    "month_over": "{period} is closed, or is being closed: its terms are final.",
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
    "prices_not_here": (
        "The price book {version!r} is still on its way to this tenant. Try again in some seconds."
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
    "terms_in_another_currency": (
        "Prices are in {own} from {period} on, and the {term} of the billing terms is in "
        "{currency}. End it before that: set the terms of {period} without it, then change the "
        "plan, then agree on an amount in {own}."
    ),
    "terms_months_at_most": "Billing terms change at most {limit} times in open months.",
    "currency_of_another": "The currency {currency!r} is not that of the tenant's prices, {own!r}.",
    # files
    "file_exists": "File {file_id!r} exists already.",
    "file_missing": "No such File object: {file_id}",
    "file_used_by_jobs": (
        "File {file_id} is in use by {jobs}. Cancel the job, or wait until it has ended."
    ),
    "file_used_by_models": (
        "File {file_id} is in the lineage of {models}{others}. Delete the models first: "
        "DELETE /v1/models/{model}?erase=true. Without erase=true a model can be restored for 30 "
        "days, and keeps its files."
    ),
    "files_at_most": "Your plan allows {limit} files (`files_max`). Delete some first.",
    "bytes_at_most": (
        "Your plan allows {limit} bytes of files and pending uploads (`storage_bytes_max`). "
        "{used_bytes} are in use, these are {size_bytes}. Delete files first."
    ),
    "datasets_at_most": (
        "A tenant has at most {limit} dataset names. Use an existing name, or no name."
    ),
    "upload_exists": "Upload {upload_id} exists already.",
    "upload_not_pending": (
        "Upload {upload_id} is not pending. It was completed, was cancelled, has expired, or never "
        "existed."
    ),
    "uploads_at_most": (
        "Your plan allows {limit} pending uploads (`uploads_max`). Complete or cancel one first."
    ),
    "part_exists": "Part {part_id} exists already.",
    "parts_at_most": "An upload has at most {limit} parts. Send larger ones (up to 64 MB).",
    "parts_wrong": "part_ids must name parts of this upload, each once.",
    "parts_above_declared": (
        "The parts would have {size_bytes} bytes, {declared_bytes} were declared, and each part "
        "may be sent twice at most. Create an upload with the size of the file."
    ),
    "parts_size": "The parts have {size_bytes} bytes, {declared_bytes} were declared.",
    # jobs
    "limits_missing": "This tenant does not exist, or has no limits yet.",
    "job_exists": "Job {job_id} exists already.",
    "job_missing": "Job {job_id} does not exist.",
    "job_ended": "You cannot {change} a job that has {outcome} already.",
    "job_change": "You cannot {change} a job that is {phase}, wanted: {wanted}.",
    "jobs_at_most": ("{limit} jobs are running or waiting already. Pause or cancel one, or wait."),
    "slots_below_one": "slots must be 1 or more.",
    "prices_changed": (
        "Prices have changed since this was estimated. Look at the estimate again, and submit anew "
        "what you agree to. A serving pool goes on when its replicas are set again."
    ),
    "plan_changed": (
        "The plan has changed since this was estimated: it was priced for the lane {lane}, "
        "and the tenant's lane is {plan} now. Look at the estimate again."
    ),
    "file_rejected": (
        "The training file did not pass validation. Read its report, correct the rows it names, "
        "upload it again."
    ),
    "hard_limit": (
        "The job may need {hold_gpu_ms} GPU-hours, and {left_gpu_ms} of this month's "
        "{limit_gpu_ms} are neither used nor held. Train on fewer rows or epochs, wait for "
        "running jobs to release theirs, or ask for a higher limit."
    ),
    "key_cap": (
        "The job may cost {price_max_micro} {currency}, and the API key has {left_micro} left of "
        "the {limit_micro} it may spend this month. Use another key, or ask for a higher cap: "
        f"{LEAST_HELD}"
    ),
    "key_cap_currency": (
        "The job is priced in {currency}, and what the API key may spend is in {limit_currency}. "
        "Use a key that was created since the tenant is billed in {currency}."
    ),
    "budget_gpu_hours": (
        "The job may need up to {hold_gpu_ms} GPU-hours, which is held until it ends, and its "
        "budget is {budget_gpu_ms}. Raise the budget, or train on fewer rows "
        f"or epochs: {LEAST_HELD}"
    ),
    "budget_amount": (
        "The job may need up to {price_max_micro} {currency}, which is held until it ends, and its "
        "budget is {budget_micro}. Raise the budget, or train on fewer rows "
        f"or epochs: {LEAST_HELD}"
    ),
    "month_budget_gpu_hours": (
        "The job may need {hold_gpu_ms} GPU-hours. The budget {budget!r} allows {limit_gpu_ms} in "
        "{month}: {used_gpu_ms} are used, {held_gpu_ms} are held by open jobs. Train "
        "on fewer rows or epochs, wait for open jobs to release theirs, or raise the budget "
        "(`tunery budget set`)."
    ),
    "month_budget_amount": (
        "The job may cost {price_max_micro} {currency}. The budget {budget!r} allows {limit_micro} "
        "in {month}: {used_micro} are used, {held_micro} are held by open jobs. Train "
        "on fewer rows or epochs, wait for open jobs to release theirs, or raise the budget "
        "(`tunery budget set`)."
    ),
    "month_budget_currency": (
        "The job is priced in {currency}, and the budget {budget!r} is in {limit_currency}. Set "
        "the budget again (`tunery budget set`), or remove it."
    ),
    "budget_missing": "No budget {budget_id!r}.",
    "sweep_missing": "No open sweep {sweep_id!r}.",
    "sweep_exists": "Sweep {sweep_id!r} exists already.",
    "sweep_empty": "A sweep needs one job at least, and the same number of rungs for each.",
    "sweeps_at_most": "A tenant has at most {limit} sweeps at once. Cancel one, or wait.",
    "serving_pool_missing": "No serving pool {serving_pool_id!r}.",
    "serving_pool_fixed": (
        "The replicas of serving pool {serving_pool_id!r} cannot become others. Create another "
        "serving pool, and remove this one."
    ),
    "serving_pools_at_most": "A tenant has at most {limit} serving pools. Remove one.",
    "replicas_out_of_range": "All serving pools of a tenant have at most {limit} replicas.",
    "term_out_of_range": "A term of a replica takes {least_ms} to {most_ms} milliseconds.",
    "sweep_budget_gpu_hours": (
        "The job may need {hold_gpu_ms} GPU-hours. The budget of its sweep allows {limit_gpu_ms}: "
        "{used_gpu_ms} are used, {held_gpu_ms} are held by its open jobs. Raise the budget, or "
        "train on fewer rows, epochs or steps."
    ),
    "sweep_budget_amount": (
        "The job may cost {price_max_micro} {currency}. The budget of its sweep allows "
        "{limit_micro}: {used_micro} are used, {held_micro} are held by its open jobs. Raise the "
        "budget, or train on fewer rows, epochs or steps."
    ),
    "budget_empty": "A budget needs max_gpu_hours or max_amount_micro, each above 0.",
    "budgets_at_most": "A tenant has at most {limit} budgets. Remove one first.",
    # pools
    "work_hash": "Work {work_id} of job {job_id} has another hash.",
    "incarnation_former": "Node {node_id} runs a newer incarnation already.",
    "node_not_elastic": "Node {node_id} is a machine, and not the quota of a cluster.",
    "slots_at_most": "A node has at most {limit} slots.",
    "nodes_of_agent_at_most": "An agent has at most {limit} nodes.",
    "node_in_service": "Node {node_id} is in service. Drain it and stop its agent first.",
    "node_missing": "There is no node {node_id}.",
    "node_id_malformed": "The id of a node has 1 to 128 letters, digits, '.', '_' and '-'; "
    "one of a cluster also ':' and at most 63 of them for its flavor.",
    "node_id_reserved": "A node cannot be called {node_id}: a service or an operator is. Choose "
    "another id, for example node-{node_id}.",
    "invitation_unknown": "Node {node_id} has no invitation with this token. `tunery node enrol` "
    "makes one.",
    "invitation_expired": "The invitation of node {node_id} has ended. `tunery node enrol` makes "
    "another one.",
    "invitation_used": "The token of node {node_id} was used before, with another key. If it was "
    "not you: `tunery node withdraw`, then `tunery node enrol`.",
    "invitation_used_up": "The token for nodes named {node_id}-… was used by {limit} nodes, as "
    "often as it may be. `tunery node enrol` makes another.",
    "invitation_missing": "Nobody is invited under the name {node_id}.",
    "node_id_taken": "There is a node {node_id} already, which joined in another way. Choose "
    "another TUNERY_NODE_ID.",
    "invitation_uses_out_of_range": "A token may be used by 1 to {limit} nodes.",
    "invitations_at_most": "At most {limit} nodes are invited at a time. Wait until an invitation "
    "ends.",
    "invitation_out_of_range": "An invitation is valid for 1 to {limit_ms} milliseconds.",
    "public_key_malformed": "The public key is not one of X25519: 64 hexadecimal digits.",
    "incarnation_unknown": "Node {node_id} is not registered in this incarnation.",
    "lease_not_open": (
        "Lease {lease} is not open for this agent. Stop what runs under it and free its slots."
    ),
    "lease_work_unknown": "The work of lease {lease} is not known any more. Free its slots.",
    "lease_not_training": "Lease {lease} is not training attempt {attempt}.",
    "lease_of_other_files": "Lease {lease} may not name object {blob}: it is not its tenant's.",
    "member_unknown": "Lease {lease} is not on node {node_id} in this incarnation.",
    # models
    # sessions
    "session_missing": "There is no session {session_id!r}.",
    "session_over": "The session {session_id!r} is ending and takes no more commands.",
    "session_seq_used": (
        "The number {seq} was used for another request. Each request of a model has its own."
    ),
    "session_hole": (
        "The request {seq} comes too early: number {missing} has not come. At most {limit} may be "
        "sent before it."
    ),
    "session_tokens": (
        "This needs {tokens} tokens, and the session has {left} of its {limit} left. "
        "`tunery session raise` gives it more."
    ),
    "session_seq_below_one": "The numbers of requests begin with 1.",
    "session_lowered": (
        "The session may use {max_tokens} tokens and {max_ms} milliseconds. Both can be raised, "
        "not lowered."
    ),
    "session_commands_at_most": (
        "A session has at most {limit} requests that are not answered. Wait for some answers."
    ),
    "command_missing": "The session has no request {name!r}.",
    "base_not_global": f"Base models are global: their key must be {GLOBAL}.",
    "benchmark_not_global": f"Benchmarks are global: their key must be {GLOBAL}.",
    "benchmark_in_policy": (
        "The policy {base_id!r} names benchmark {name!r}. Set that policy without it first."
    ),
    "benchmark_bytes": (
        "Benchmark {name!r} has SHA-256 {known_sha256}, not {sha256}. What is asked under a name "
        "never changes: choose another name."
    ),
    "benchmarks_full": "There are {limit} benchmarks already, which is the limit.",
    "base_bytes": (
        "Base model {base_id!r} is registered with SHA-256 {known_sha256}, not {sha256}. Changed "
        "weights need a new id."
    ),
    "model_missing": "The model '{model_id}' does not exist.",
    "model_publishing": "Model {model_id!r} is still being published. Try again shortly.",
    "model_quarantined": (
        "Model {model_id!r} is quarantined: the gate blocked it, because it answers worse than its "
        "base, or a person did. It can be downloaded or archived, not promoted. With a reason and "
        "a name it can be released: POST /v1/models/{{id}}/quarantine."
    ),
    "model_archived": (
        "Model {model_id!r} is archived, and archived versions are not deployed. Promote it to dev "
        "first."
    ),
    "model_unusable": (
        "Model {model_id!r} stays in quarantine: its scores were infinite or not a number, so that "
        "it cannot be computed with. Train it again with a lower learning rate."
    ),
    "policies_at_most": "A tenant has at most {limit} policies of the gate; remove one first.",
    "model_in_stage": (
        "Model {model_id!r} holds {stage}. Promote another version, or move this one to archived, "
        "first."
    ),
    "model_deployed": (
        "Model {model_id!r} answers a share of {stage}. Deploy the version that holds {stage} "
        "without it first."
    ),
    "deployment_same": "The versions of a deployment must be different ones.",
    "deployment_share": "The share of {model_id!r} must be from 1 to {limit} in 10,000.",
    "model_referenced": (
        "{descendant} was trained from {model_id!r}, and its lineage leads to it. Delete "
        "{descendant} first."
    ),
    "model_kept": ("{jobs} begins with {model_id!r}. Cancel the job, or wait until it has ended."),
    "model_start_deleted": (
        "{model_id!r} was trained from {start!r}, which is deleted too. Restore that one first: "
        "POST /v1/models/{{id}}/restore."
    ),
    "models_at_most": "A tenant has at most {limit} versions. Delete some first.",
    "deleted_at_most": (
        "{limit} deleted versions can be restored already. Erase some of them, or this one at "
        "once: DELETE /v1/models/{{id}}?erase=true."
    ),
    "base_drifted": (
        "Model {model_id!r} is stale: the files of its base model {base_id!r} are not those that "
        "the gate judged it with. The operator must restore them; POST /v1/bases/{{id}}/check says "
        "when they are."
    ),
    "approvals_missing": (
        "Model {model_id!r} needs approvals for {stage}, by keys other than its author's: "
        "{missing} more. POST /v1/models/{{id}}/approve."
    ),
    "approvals_at_most": "A version has at most {limit} approvals.",
    "approval_own": (
        "Model {model_id!r} was trained by a job of this key. Approve it with the key of somebody "
        "else."
    ),
    "approval_not_asked": (
        "Approvals for {stage} count from certain keys, and this is none of them: GET "
        "/v1/approval_rules lists them."
    ),
    "approvers_at_most": "A rule has at most {limit} approvers, and asks for 0 to {limit}.",
    "approvers_too_few": "{required} approvals cannot come from {approvers} approvers.",
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
    "stage_not_held": (
        "{expected} does not hold {stage}, so there is nothing to roll back. Roll back the version "
        "that holds it: the list of models shows each one's stage."
    ),
    "stage_permanent": "Only staging and production can be rolled back.",
    "stage_without_former": "No former version of {stage} is left to roll back to.",
    "permission_missing": "The permission '{permission_id}' does not exist.",
    "permissions_at_most": "A tenant gives at most {limit} permissions. Delete some first.",
}
