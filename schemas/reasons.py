"""Codes of the reasons on the logs. The gateway makes words of them; no log holds prose.

A code keeps its meaning for ever; new ones may be added. Each `Reasons` takes the codes of one use,
so that a misspelt code is a type error.
"""

from typing import Generic, Literal, TypeAlias, TypeVar

from schemas.envelope import Part, Reason
from schemas.sealed import Sealed

C = TypeVar("C", bound=str, contravariant=True)

# Why a job or a placement waits, or what it does in its phase.
WaitCode: TypeAlias = Literal[
    "file_validation",  # the training file is being validated
    "inputs_preparation",  # the dataset is being prepared, the base model pinned
    "inputs_not_ready",  # resumed before file, dataset or base model were ready
    "placement",  # the pool is asked for a place
    "paused",  # by its tenant
    # cause, condition: its cluster has not admitted it, in the words of the cluster's queue
    "cluster_admission",
    "node_preparation",  # a node fetches the inputs and starts a process
    "draining",  # asked to stop: finishes its step and writes a checkpoint
    "scoring",  # base model and adapter are being scored
    "judging",  # the scores are being judged
    "publishing",  # the adapter is being published
    "no_node_up",  # no node of the pool is up
    "no_capacity",  # slots: every node that fits is busy
    "gang_too_large",  # slots: more than the pool can ever give
    "no_fabric",  # slots: more than one node has, and the nodes have no network for a training
    "memory_short",  # slots, memory_bytes: no node has memory for these slots with these bytes each
    "no_device",  # device, memory_bytes: no node has slots of this kind with enough memory
    "no_accelerator",  # accelerator: no node is of this model, accelerators: the models there are
    "no_domain",  # domain: no node is in it, domains: those that there are
    "domain_busy",  # domain: slots are free, but not in this one
    "tainted",  # taints: of the nodes that fit, which it does not tolerate
    "excluded_nodes",  # nodes: all that fit have failed under this job
    "lane_order",  # ahead: number of jobs before it in its lane or a higher one
    "lane_cap",  # premium holds its share, so jobs of other lanes go first
    "reservation",  # free slots are reserved for a job before it
    "topology",  # slots: free ones suffice, but not on one node
    "memory_taken",  # memory_bytes: free slots, and too little of the memory that they share
    "slots_being_freed",  # slots: other jobs were asked to free them for it
    "next_decision",  # it fits now: the pool's next decision starts it
    "price_class",  # only slots of another price class are free
    "quota",  # limit: its tenant has this number of jobs, the most at a time
    "budget",  # its budget is used up until the next period
    "session_cap",  # it is a session whose time is used up, until that is raised
]
# Why an attempt was ended, besides who ended it (`EndAuthor`).
EndCode: TypeAlias = Literal[
    "cancelled",  # the tenant cancelled the job
    "paused",  # the tenant paused the job
    "cap_raised",  # the session may use more, and goes on in an attempt with its new cap
    "preempted",  # another job needs the slots
    "cap_reached",  # the use that its hold allows is up
    "exited",  # its process ended by itself
    "withdrawn",  # it left the queue before it had a lease
    "node_lost",  # its node was silent for longer than the TTL
    "node_replaced",  # an agent with a new incarnation registered for its node
    "node_left",  # its node left in order
    "node_withdrawn",  # an operator withdrew the keys of its node
    "node_drained",  # an operator emptied its node
    "node_noticed",  # its machine is taken away by the cloud that it is rented from
    "not_admitted",  # its cluster did not admit it in time
    "start_timeout",  # it did not start in time
    "keys_missing",  # its agent was not given the keys of its work in time
    "exit_unreported",  # it was killed, and its agent did not report the exit in time
    "exit_missing",  # its agent freed the slots without reporting an exit
    "no_progress",  # its process lived and did nothing
    "device_failed",  # device: number of a device of its lease that is broken, fault: its code
    "work_unknown",  # it named a work that was never described
    "slots_above_largest",  # slots, largest: known nodes with such devices have no more for a job
]
# Why a node gets no new leases.
CordonCode: TypeAlias = Literal[
    "operator",  # an operator ordered it
    "jobs_failed",  # jobs: number of different jobs that failed on it in a row
]
# Why a device of a node gets no new leases. The first three end what runs on it.
DeviceFaultCode: TypeAlias = Literal[
    "ecc",  # its memory has errors that cannot be corrected
    "xid",  # xid: the driver's number of a fault of the device
    "unreachable",  # the driver has lost it
    "throttled",  # it has been slowed down by heat or by its power supply for a minute
    "partitioned",  # it is divided into instances (MIG), and a slot is a whole device
    "driver_silent",  # the driver does not answer
    "disk_full",  # limit_bytes: the disk that the node works on has less than that left
]
# Why a checkpoint could not be used.
SkipCode: TypeAlias = Literal[
    "blob_missing",  # a file is not in object storage
    "blob_corrupt",  # a file has another hash than its name says
    "unusable",  # the process could not load it
]
# Why a command is refused. Names after a code are its parameters.
RefusalCode: TypeAlias = Literal[
    # any stream
    "idempotency_key_reused",  # with another body
    "envelope_unreadable",  # path: where its bytes cannot be read
    "body_unreadable",  # path
    "key_length",  # limit: characters that a key has at most
    "tenant_not_global",  # a command with the global key names a tenant
    "partition_wrong",  # its key belongs to another partition
    "tenant_not_key",  # it names another tenant than its key
    "sender_unproven",  # it has no signature, or a wrong one
    "sender_not_permitted",  # sender, command: its type
    "sender_of_reaction",  # sender, stream: only its owner reacts to it
    "sender_not_node",  # sender, node_id: a node speaks for another one
    "sender_withdrawn",  # sender: the key that it has is withdrawn
    "operator_refused",  # operator, why: a command that could not be decided
    "record_too_large",  # limit_bytes
    "level_too_low",  # needed, level: of the log
    "decision_failed",  # error: the exception's type
    # tenants and what is theirs
    "tenant_missing",  # tenant
    "tenant_exists",  # tenant
    "tenant_suspended",
    "tenant_erased",  # tenant
    "tenant_of_operators",  # tenant
    "concurrency_below_one",
    "limits_out_of_order",  # soft above hard, or below 0
    "key_exists",  # key_id
    "batch_missing",  # batch_id
    "batch_closing",  # batch_id
    "batch_exists",  # batch_id
    "batch_rows_answered",  # batch_id, row
    "batches_at_most",  # limit
    "import_missing",  # import_id
    "imports_at_most",  # limit
    "key_missing",  # key_id
    "key_revoked",  # key_id
    "key_rotated_by_another",
    "key_revoked_by_another",
    "keys_at_most",  # limit
    "scopes_missing",
    "endpoint_exists",  # endpoint_id
    "endpoint_missing",  # endpoint_id
    "endpoints_at_most",  # limit
    "endpoint_unconfirmed",  # endpoint_id: of an address
    "confirmations_at_most",  # limit: of codes within a day
    "confirmation_wrong",
    "confirmation_late",  # hours: how long a code is accepted
    "event_types_missing",
    "event_types_unknown",  # types
    "deliveries_at_most",  # limit
    "adjustment_exists",  # reference, period: the bill that it is on
    "adjustments_at_most",  # limit: of one month
    "amount_out_of_range",  # limit: 0 is none, this the most either way
    "currency_malformed",
    "month_malformed",
    "month_not_begun",  # period
    "month_being_closed",  # period
    "month_over",  # period
    "invoice_missing",  # period, currency: nothing was billed
    "credit_out_of_range",  # number: of the invoice, left_micro: what it has
    "taxes_at_most",  # limit
    "prices_not_global",
    "prices_changed_content",  # version: imported already, with other prices
    "prices_currency",  # version
    "prices_date",  # version: no first day
    "prices_lanes",  # version: unknown lane, or none
    "prices_out_of_range",  # version, limit
    "prices_rate_lane",  # version: a rate of a lane that has no price
    "prices_rate_role",  # version
    "prices_rate_device",  # version
    "prices_rate_twice",  # version: two rates of the same use
    "prices_tiers_at_most",  # version, limit: of one rate
    "prices_tier_order",  # version, limit: its quantity is not above the one before, or above this
    "prices_tier_rises",  # version: a price that is not below the one before
    "prices_not_here",  # version: on its way to the tenant's partition
    "prices_overlap",  # version, other: same currency and first day
    "tax_out_of_range",
    "due_days_out_of_range",  # limit
    "discounts_at_most",  # limit
    "discount_references",  # two have the same
    "discount_out_of_range",  # reference
    "discounts_above_all",  # lane: together they are more than its price
    "months_malformed",  # reference: not like 2026-11, or the last before the first
    "overage_out_of_range",  # limit: of the surcharge, in millionths
    "commitment_out_of_range",  # limit
    "currency_of_another",  # currency, own: the tenant's
    "terms_in_another_currency",  # term, currency: of the term, period, own: of its prices then
    "terms_months_at_most",  # limit
    "prepaid_exists",  # reference: with another amount, currency or month
    "prepaid_at_most",  # limit
    "prepaid_missing",  # reference
    "prepaid_reserved",  # reference: it begins like those of invoices below zero
    "prepaid_out_of_range",  # limit, unit_micro: the smallest amount that can be paid
    "prepaid_expired",  # period: its last month
    # files
    "file_exists",  # file_id
    "file_missing",  # file_id
    "file_used_by_jobs",  # file_id, jobs
    "file_used_by_models",  # file_id, models, others: how many more, model: the first
    "files_at_most",  # limit
    "bytes_at_most",  # limit, used_bytes: without this file, size_bytes: of it
    "datasets_at_most",  # limit
    "upload_exists",  # upload_id
    "upload_not_pending",  # upload_id
    "uploads_at_most",  # limit
    "part_exists",  # part_id
    "parts_at_most",  # limit
    "parts_above_declared",  # size_bytes: with this part, declared_bytes: of the upload
    "parts_wrong",  # completion names parts that are not the upload's, or one twice
    "parts_size",  # size_bytes: of the parts, declared_bytes: of the upload
    # jobs
    "limits_missing",  # the tenant has none yet
    "job_exists",  # job_id
    "job_missing",  # job_id
    "job_ended",  # change, outcome
    "job_change",  # change: what cannot be done, phase, wanted: what the job is
    "jobs_at_most",  # limit
    "slots_below_one",
    "prices_changed",  # between estimate and submission
    "plan_changed",  # lane: priced at, plan: the tenant's lane now
    "file_rejected",  # it did not pass validation
    "hard_limit",  # hold_gpu_ms: needed, left_gpu_ms, limit_gpu_ms
    "key_cap",  # price_max_micro: needed, currency, left_micro, limit_micro
    "key_cap_currency",  # currency: of the job, limit_currency: of the cap
    "budget_gpu_hours",  # hold_gpu_ms: needed, budget_gpu_ms
    "budget_amount",  # price_max_micro: needed, currency, budget_micro
    "month_budget_gpu_hours",  # budget, month, hold_gpu_ms, used_gpu_ms, held_gpu_ms, limit_gpu_ms
    "month_budget_amount",  # budget, month, price_max_micro, currency, used_, held_, limit_micro
    "month_budget_currency",  # budget, currency: of the job, limit_currency: of the budget
    "budget_missing",  # budget_id
    "budget_empty",  # it limits nothing, or something to less than 1
    "budgets_at_most",  # limit
    "sweep_missing",  # sweep_id
    "sweep_exists",  # sweep_id
    "sweep_empty",  # it has no runs, or other numbers of them than rungs
    "sweeps_at_most",  # limit
    "sweep_budget_gpu_hours",  # hold_gpu_ms, used_gpu_ms, held_gpu_ms, limit_gpu_ms
    "serving_pool_missing",  # serving_pool_id
    "serving_pool_fixed",  # serving_pool_id: its replicas would be others
    "serving_pools_at_most",  # limit
    "replicas_out_of_range",  # limit: of all serving pools of the tenant
    "term_out_of_range",  # least_ms, most_ms
    "sweep_budget_amount",  # price_max_micro, currency, used_micro, held_micro, limit_micro
    # pools; refused are agents, and reactions of jobs
    "work_hash",  # work_id, job_id: described under the hash of another work
    "incarnation_former",  # node_id
    "incarnation_unknown",  # node_id
    "node_missing",  # node_id
    "node_in_service",  # node_id
    "node_id_malformed",
    "node_id_reserved",  # node_id
    "invitation_unknown",  # node_id: it has none with this token
    "invitation_expired",  # node_id
    "invitation_used",  # node_id: by somebody with another key
    "invitation_used_up",  # node_id: name of the several, limit
    "invitation_missing",  # node_id
    "node_id_taken",  # node_id: of a node that joined in another way
    "invitations_at_most",  # limit
    "invitation_uses_out_of_range",  # limit
    "invitation_out_of_range",  # limit_ms: of how long it is valid
    "public_key_malformed",
    "node_not_elastic",  # node_id
    "slots_at_most",  # limit
    "nodes_of_agent_at_most",  # limit
    "lease_work_unknown",  # lease: its work was never described, or is forgotten
    "lease_not_open",  # lease
    "lease_not_training",  # lease, attempt
    "lease_of_other_files",  # lease, blob: the key of an object that is not the tenant's
    "member_unknown",  # lease, node_id
    # sessions
    "session_missing",  # session_id
    "session_over",  # session_id: it takes no more commands
    "session_seq_used",  # seq: with another body
    "session_hole",  # seq, missing: the first number that has not come, limit: how far ahead
    "session_tokens",  # tokens: of the command, left, limit: of the session
    "session_seq_below_one",
    # max_tokens, max_ms: of the session now, which cannot be lowered
    "session_lowered",
    "session_commands_at_most",  # limit: that are not answered
    "command_missing",  # name
    # models
    "base_not_global",
    "base_bytes",  # base_id, known_sha256, sha256
    "benchmark_not_global",
    "benchmark_in_policy",  # name, base_id: whose policy names it
    "benchmark_bytes",  # name, known_sha256, sha256
    "benchmarks_full",  # limit
    "model_missing",  # model_id
    "model_publishing",  # model_id
    "model_quarantined",  # model_id
    "model_archived",  # model_id
    "model_unusable",  # model_id: its scores were not finite
    "policies_at_most",  # limit
    "model_in_stage",  # model_id, stage
    "model_deployed",  # model_id, stage: it has a share of the stage's traffic
    "deployment_same",  # one version twice
    "deployment_share",  # model_id, limit: buckets below 1 or above this
    "model_kept",  # model_id, jobs: open ones that begin with it
    "model_start_deleted",  # model_id, start: the version that it was trained from
    "models_at_most",  # limit
    "deleted_at_most",  # limit: of versions that can be restored
    "model_referenced",  # model_id, descendant: a version that was trained from it
    "base_drifted",  # model_id, base_id
    "approvals_missing",  # model_id, stage, missing
    "approvals_at_most",  # limit
    "approval_own",  # model_id
    "approval_not_asked",  # stage
    "approvers_at_most",  # limit
    "approvers_too_few",  # required, approvers
    "stage_free",  # stage, expected: no version holds it
    "stage_taken",  # stage, holder: a version holds it, none was expected
    "stage_moved",  # stage, holder, expected
    "stage_not_held",  # stage, expected: the version that should be rolled back
    "stage_permanent",  # only exclusive stages can be rolled back
    "stage_without_former",  # stage
    "permission_missing",  # permission_id
    "permissions_at_most",  # limit
]
# Why a file is not accepted. All have file_id.
FileCode: TypeAlias = Literal[
    "rows_too_many",  # limit
    "rows_too_few",  # rows, limit
    "row_invalid",  # row, finding: code of the first error, errors: how many
    "file_invalid",  # finding, errors
]
# Why something that was begun has failed.
FailureCode: TypeAlias = Literal[
    # files and datasets
    "file_unchecked",  # its validation did not end
    "file_deleted",
    "file_gone",  # file_id: deleted while a job waited for it
    "file_unaccepted",  # file_id: it did not pass validation
    "rows_unpreparable",
    "preparation_failed",
    "base_unregistered",  # base_id, sha256: the dataset cannot be prepared for it
    # models
    "base_missing",  # base_id
    "base_differs",  # base_id, sha256: now, job_sha256: of the job
    "base_changed",  # between submission and start
    "start_deleted",  # model_id: the version that the job begins with
    "start_unpublished",  # model_id: the version that the job evaluates
    "version_exists",  # model_id, job_id: whose it is
    "versions_at_most",  # limit
    "adapter_empty",
    "adapter_unpublishable",
    "publishing_failed",
    # jobs
    "attempts_lost",  # attempts
    "nodes_failed",  # attempts
    "platform_errors",  # attempts
    "attempts_failed",  # attempts: over the whole training, some with checkpoints
    "loss_diverged",
    "nothing_learnt",
    "row_untrainable",
    "request_wrong",
    "slots_above_largest",  # slots, largest: nodes with such devices have no more for a job
    "memory_exceeded",
    "hold_used_up",
    "scores_unjudged",
]
# What a verdict rests on.
VerdictCode: TypeAlias = Literal[
    "items_too_few",  # items, limit
    "drop_excluded",  # as drop_undecided
    "drop_shown",  # change_ppm, items, p_ppm, drop_max_ppm
    "drop_undecided",  # change_ppm: of accuracy, items, p_ppm: of a drop, bound_ppm, drop_max_ppm
    "production_drop_shown",  # model_id: in production, and as drop_shown
    "production_drop_undecided",  # model_id: in production, and as drop_undecided
    "production_drop_excluded",  # the same
    "gain_below",  # gain_ppm: relative fall of the validation loss, gain_min_ppm
    "measure_gained",  # measure: its kind, rows, base_ppm, adapter_ppm: means, gain_min_ppm
    "measure_below",  # the same
    "measure_undecided",  # the same
    "measure_kept",  # the same: as good as a base model that leaves no room for the gain
    "measure_lost",  # the same: worse than such a one
    "measure_rows_few",  # measure, rows, limit
    "benchmark_items_few",  # benchmark, items, limit
    "benchmark_drop_excluded",  # benchmark, and as drop_undecided
    "benchmark_drop_shown",  # benchmark, and as drop_shown
    "benchmark_drop_undecided",  # benchmark, and as drop_undecided
    "benchmark_production_excluded",  # benchmark, model_id: in production, and as drop_undecided
    "benchmark_production_shown",  # the same, and as drop_shown
    "benchmark_production_undecided",  # the same, and as drop_undecided
    "safety_kept",  # benchmark, items, base_refused_ppm, refused_ppm, low_ppm
    "safety_lost",  # the same, p_ppm
    "safety_low",  # the same, wanted_ppm: fewer are refused
    "safety_undecided",  # the same, bound_ppm: the fall that may be
    "safety_over",  # benchmark, items: safe prompts, base_refused_ppm, refused_ppm, p_ppm
    "safety_prompts_few",  # benchmark, items, limit
    "judge_better",  # rows, wins, losses, ties, p_ppm: what a judge said of both answers
    "judge_worse",  # the same
    "judge_undecided",  # the same
    "judge_unqualified",  # rows: labelled ones, agreement_low_ppm, position_ppm
    "judge_unavailable",
    "judge_unconfigured",
    "validation_loss_same",
    "validation_loss_rose",  # above the base model's
    "scores_not_finite",  # sides: "base", "adapter" or both
    "pairs_told_apart",  # items, right_ppm, base_right_ppm: by likelihoods, p_ppm
    "pairs_reversed",  # the same
    "pairs_undecided",  # the same
]


# What the gate suggests to change when a result does not pass.
SuggestionCode: TypeAlias = Literal[
    "learning_rate_lower",  # learning_rate_ppb, to_ppb
    "learning_rate_higher",  # the same
    "epochs_fewer",  # epochs, train_loss_ppm, valid_loss_ppm
    "epochs_more",  # epochs, steps
    "rows_more",  # rows: that were trained on
    "duplicates_remove",  # share_ppm: of rows with the prompt of another one, rows: looked at
    "answers_shorten",  # share_ppm: of answers that were cut, rows: looked at
    "classes_balance",  # share_ppm: of the largest class, classes, rows: looked at
]


class Failure(Part):
    """Why something failed."""

    code: str  # one of `schemas.errors`, which clients rely on
    reason: Reason  # what exactly failed
    param: str | None = None  # the request's field that it is about, as in the API
    detail: Sealed | None = None  # what a process said; it may quote tenant data


class Reasons(Generic[C]):
    """Makes reasons with the codes of one use."""

    def __call__(self, code: C, **params: str | int) -> Reason:
        return Reason(code=code, params=params)


waiting = Reasons[WaitCode]()  # why a job or a placement waits, or what it does in its phase
ending = Reasons[EndCode]()  # why an attempt was ended
cordoning = Reasons[CordonCode]()  # why a node gets no new leases
device_fault = Reasons[DeviceFaultCode]()  # why a device gets no new leases
skipping = Reasons[SkipCode]()  # why a checkpoint could not be used
refusing = Reasons[RefusalCode]()  # why a command is refused
rejecting = Reasons[FileCode]()  # why a file is not accepted
failing = Reasons[FailureCode]()  # why something that was begun has failed
suggesting = Reasons[SuggestionCode]()  # what to change after a result did not pass
judging = Reasons[VerdictCode]()  # on what a verdict is based
