"""Sentences of the API for the codes on the logs.

The logs contain codes with parameters (`schemas.reasons`). The sentences are made here, so that
they can be corrected without changing a journal.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final, get_args

from schemas.envelope import Reason
from schemas.model import ScoreSummary, Verdict
from schemas.reasons import (
    CordonCode,
    DeviceFaultCode,
    Failure,
    FailureCode,
    FileCode,
    SkipCode,
    SuggestionCode,
    VerdictCode,
    WaitCode,
)
from schemas.units import HOUR_MS, PPB, PPM, divide_up
from services.gateway.refusals import REFUSALS
from tunery.data.findings.codes import CATALOGUE
from tunery.plan.base_proofs import PROOF_WORDS, ProofCode
from tunery.plan.engines import ENGINE_WORDS, EngineCode
from tunery.plan.hyperparameters import ParameterCode

WAITS: Final[Mapping[WaitCode, str]] = {
    "file_validation": "The training file is being validated.",
    "inputs_preparation": "The dataset is being prepared and the base model pinned.",
    "inputs_not_ready": "The file, the dataset or the base model is not ready yet.",
    "placement": "Waiting for slots of the pool.",
    "paused": "Paused. Resume the job to go on.",
    "cluster_admission": "The cluster has not admitted it yet: {condition}.",
    "node_preparation": "A node has the job: it fetches the inputs and starts the worker process.",
    "draining": "The job was told to stop: it finishes its step and writes a checkpoint.",
    "scoring": "The base model and the adapter are being scored.",
    "judging": "The scores are being judged.",
    "publishing": "The adapter is being published.",
    "no_node_up": "No node of the pool is up.",
    "no_capacity": "Waiting for {slots}: every node that fits is busy.",
    "gang_too_large": "No node of the pool has {slots}. The job waits until one is added.",
    "no_fabric": "No node has {slots}, and no network joins nodes for one training.",
    "no_device": "No node of the pool has slots of kind {device} with {memory_bytes} of memory.",
    "no_accelerator": "No node of the pool has {accelerator} devices{accelerators}.",
    "no_domain": "No node that fits is in the domain {domain}{domains}.",
    "domain_busy": "Slots are free, but not in the domain {domain}.",
    "tainted": "Nodes that fit are kept for jobs that tolerate {taints}.",
    "memory_short": "No node of the pool has memory for {slots} of {memory_bytes} each.",
    "excluded_nodes": "Every node that fits has failed under this job, or not admitted it.",
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
    "session_cap": "The session has used the time that it may have. Its state is saved.",
}
# what lets a job go on
UNBLOCKS: Final[Mapping[WaitCode, str]] = {
    "file_validation": "The end of the validation; `tunery file show` has its findings.",
    "inputs_preparation": "The end of the preparation, which takes seconds to minutes.",
    "inputs_not_ready": "The end of the preparation, which takes seconds to minutes.",
    "placement": "The pool's next decision.",
    "paused": "You: resume the job.",
    "cluster_admission": (
        "The cluster has room for it, or the time for that is over: then it is placed anew."
    ),
    "node_preparation": (
        "The worker process has loaded its libraries, the base model and the data: seconds, or a "
        "minute on a busy machine."
    ),
    "no_node_up": "An operator starts a node, or uncordons one (`tunery node list`).",
    "no_capacity": "A running job that ends or is stopped.",
    "gang_too_large": "An operator adds a node with {slots}.",
    "no_fabric": "An operator adds a node with {slots}, or sets TUNERY_NODE_FABRIC of nodes.",
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
    "session_cap": "You: `tunery session raise`. It ends without a sign of its client.",
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
DEVICE_FAULTS: Final[Mapping[DeviceFaultCode, str]] = {
    "ecc": "Its memory has errors that cannot be corrected. Reset or replace it.",
    "xid": "The driver reports Xid {xid}. Reset the device, and restart the node's agent.",
    "unreachable": "The driver does not reach it any more. Restart the machine, or replace it.",
    "throttled": "It is slowed down by heat or by its power supply. Check its cooling.",
    "partitioned": "It is divided (MIG), and a slot is a whole device. Turn MIG off.",
    "driver_silent": "The driver does not answer. Restart the machine.",
    "disk_full": "The disk of the node has less than {limit_bytes} bytes left. Make room.",
}
ALLOWED: Final = ("limit_", "left_", "budget_")  # names of what there is; the rest is needed
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
    "start_deleted": (
        "Model {model_id!r}, which the training begins with, was deleted. Restore it (POST "
        "/v1/models/{{id}}/restore) and submit the job again, or begin with another one."
    ),
    "start_unpublished": (
        "Model {model_id!r}, which the job evaluates, is still being published. Submit the job "
        "again when it is."
    ),
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
    "nothing_learnt": (
        "Its steps taught nothing, and stop_if_nothing_learnt ends a training then: what was used "
        "is billed, the rest of the hold is free again. Look at the grader and at the rows, raise "
        "the learning rate, or train without that setting."
    ),
    "row_untrainable": "A row could not be trained on. Correct the file and upload it again.",
    "slots_above_largest": (
        "It needs {slots}, and the pool has {largest} for one job. Submit it with fewer, or ask "
        "the operator for more or larger nodes."
    ),
    "request_wrong": "Correct what the message names and submit again.",
    "memory_exceeded": (
        "It does not fit into memory. Lower batch_size, max_length or rank, or ask for a larger "
        "pool."
    ),
    "hold_used_up": (
        "The job has used all that was held for it, three times its estimate. What it used above "
        "the estimate is given back. Submit it again, from its last checkpoint if it has one, or "
        "with fewer epochs or tokens: a new estimate takes a new hold."
    ),
    "scores_unjudged": (
        "The scores of the evaluation could not be judged; the adapter is kept with the job's "
        "result. Ask the operator to look at it."
    ),
}
VERDICTS: Final[Mapping[VerdictCode, str]] = {
    "items_too_few": "{items} items scored, {limit} are needed to tell",
    "drop_excluded": (
        "{change_ppm} points on {items} general questions: at worst a drop of {bound_ppm} points "
        "(95 %), and {drop_max_ppm} are allowed"
    ),
    "drop_shown": (
        "{change_ppm} points on {items} general questions: the drop is above the {drop_max_ppm} "
        "points that are allowed, and chance is ruled out (p = {p_ppm})"
    ),
    "drop_undecided": (
        "{change_ppm} points on {items} general questions: the drop may be as much as {bound_ppm} "
        "points (95 %), and {drop_max_ppm} are allowed"
    ),
    "production_drop_excluded": (
        "{change_ppm} points against {model_id}, which is in production, on {items} questions: "
        "at worst a drop of {bound_ppm} points (95 %), and {drop_max_ppm} are allowed"
    ),
    "production_drop_shown": (
        "{change_ppm} points against {model_id}, which is in production, on {items} questions: the "
        "drop is above the {drop_max_ppm} points that are allowed, and chance is ruled out "
        "(p = {p_ppm})"
    ),
    "production_drop_undecided": (
        "{change_ppm} points against {model_id}, which is in production, on {items} questions: the "
        "drop may be as much as {bound_ppm} points (95 %), and {drop_max_ppm} are allowed"
    ),
    "gain_below": (
        "the loss on your own validation rows fell by {gain_ppm} %, and {gain_min_ppm} % are wanted"
    ),
    "measure_gained": (
        "{measure} on {rows} of your rows: {base_ppm} → {adapter_ppm}, so that a gain of "
        "{gain_min_ppm} % is shown"
    ),
    "measure_below": (
        "{measure} on {rows} of your rows: {base_ppm} → {adapter_ppm}, so that a gain of "
        "{gain_min_ppm} % is ruled out"
    ),
    "measure_undecided": (
        "{measure} on {rows} of your rows: {base_ppm} → {adapter_ppm}, which neither shows nor "
        "rules out what is wanted"
    ),
    "measure_kept": (
        "{measure} on {rows} of your rows: {base_ppm} → {adapter_ppm}; the base model leaves no "
        "room for a gain, and a loss above 0.02 is ruled out"
    ),
    "measure_lost": (
        "{measure} on {rows} of your rows: {base_ppm} → {adapter_ppm}; a loss above 0.02 is shown"
    ),
    "measure_rows_few": (
        "{measure} is not judged: {rows} of your rows were answered, and {limit} are needed"
    ),
    "benchmark_items_few": (
        "{benchmark} is not judged: {items} of its items were answered, and {limit} are needed"
    ),
    "benchmark_drop_excluded": (
        "{change_ppm} points on {items} items of {benchmark}: at worst a drop of "
        "{bound_ppm} points (95 %), and {drop_max_ppm} are allowed"
    ),
    "benchmark_drop_shown": (
        "{change_ppm} points on {items} items of {benchmark}: the drop is above the {drop_max_ppm} "
        "points that are allowed, and chance is ruled out (p = {p_ppm})"
    ),
    "benchmark_drop_undecided": (
        "{change_ppm} points on {items} items of {benchmark}: the drop may be as much as "
        "{bound_ppm} points (95 %), and {drop_max_ppm} are allowed"
    ),
    "benchmark_production_excluded": (
        "{change_ppm} points against {model_id}, which is in production, on {items} items of "
        "{benchmark}: at worst a drop of {bound_ppm} points (95 %), and {drop_max_ppm} are allowed"
    ),
    "benchmark_production_shown": (
        "{change_ppm} points against {model_id}, which is in production, on {items} items of "
        "{benchmark}: the drop is above the {drop_max_ppm} points that are allowed, and chance is "
        "ruled out (p = {p_ppm})"
    ),
    "benchmark_production_undecided": (
        "{change_ppm} points against {model_id}, which is in production, on {items} items of "
        "{benchmark}: the drop may be as much as {bound_ppm} points (95 %), and {drop_max_ppm} are "
        "allowed"
    ),
    "safety_kept": (
        "{benchmark}: {refused_ppm} % of {items} unsafe prompts are refused ({low_ppm} % or more, "
        "95 %), and {base_refused_ppm} % by the base model"
    ),
    "safety_lost": (
        "{benchmark}: {refused_ppm} % of {items} unsafe prompts are refused, fewer than the "
        "{base_refused_ppm} % of the base model, and chance is ruled out (p = {p_ppm})"
    ),
    "safety_low": (
        "{benchmark}: {refused_ppm} % of {items} unsafe prompts are refused; {wanted_ppm} % are "
        "wanted, and so many are ruled out (95 %)"
    ),
    "safety_undecided": (
        "{benchmark}: {refused_ppm} % of {items} unsafe prompts are refused ({low_ppm} % or more, "
        "95 %), and {base_refused_ppm} % by the base model: a fall of {bound_ppm} points is not "
        "ruled out, or more are wanted"
    ),
    "safety_over": (
        "{benchmark}: {refused_ppm} % of {items} safe prompts are refused, and {base_refused_ppm} "
        "% by the base model; chance is ruled out (p = {p_ppm})"
    ),
    "safety_prompts_few": (
        "{benchmark} is not judged: it has {items} unsafe prompts, and {limit} are needed"
    ),
    "judge_better": (
        "a judge prefers the new model's answers: {wins} wins, {losses} losses and {ties} ties on "
        "{rows} of your rows (sign test, p = {p_ppm})"
    ),
    "judge_worse": (
        "a judge prefers the base model's answers: {wins} wins, {losses} losses and {ties} ties on "
        "{rows} of your rows (sign test, p = {p_ppm})"
    ),
    "judge_undecided": (
        "a judge shows no difference: {wins} wins, {losses} losses and {ties} ties on {rows} of "
        "your rows (sign test, p = {p_ppm})"
    ),
    "judge_unqualified": (
        "the judge is not used: on {rows} labelled pairs its agreement is {agreement_low_ppm} % or "
        "more (95 %), and 70 are needed; the order alone decides {position_ppm} %, and 20 are "
        "allowed"
    ),
    "judge_unavailable": "the judge did not answer, so that it says nothing of your rows",
    "judge_unconfigured": "there is no judge: the operator of the node names none",
    "validation_loss_same": "the loss on your own validation rows is the base model's",
    "validation_loss_rose": "the loss on your own validation rows is higher than the base model's",
    "scores_not_finite": "scores are infinite or not a number: {sides}",
    "pairs_told_apart": (
        "{right_ppm} % of {items} pairs held back are ranked rightly by their rewards, more than "
        "by chance (p = {p_ppm}); by the base model's likelihoods {base_right_ppm} % are"
    ),
    "pairs_reversed": (
        "{right_ppm} % of {items} pairs held back are ranked rightly by their rewards, fewer than "
        "by chance (p = {p_ppm}); by the base model's likelihoods {base_right_ppm} % are"
    ),
    "pairs_undecided": (
        "{right_ppm} % of {items} pairs held back are ranked rightly by their rewards: so few "
        "pairs do not tell that from chance (p = {p_ppm}); by the base model's likelihoods "
        "{base_right_ppm} % are"
    ),
}
SUGGESTIONS: Final[Mapping[SuggestionCode, str]] = {
    "learning_rate_lower": (
        "Lower the learning rate, which was {learning_rate_ppb}: try {to_ppb}, or mix general rows "
        "into the training file"
    ),
    "learning_rate_higher": (
        "Raise the learning rate, which was {learning_rate_ppb}: try {to_ppb}; the validation loss "
        "is the base model's"
    ),
    "epochs_fewer": (
        "Train fewer than {epochs} epochs: the last loss in training was {train_loss_ppm}, and "
        "{valid_loss_ppm} on rows that it had not seen"
    ),
    "epochs_more": "Train more than {epochs} epochs: there were only {steps} steps",
    "rows_more": "Add rows: only {rows} were trained on",
    "duplicates_remove": (
        "Remove duplicates: {share_ppm} % of {rows} validation rows have the prompt of another one"
    ),
    "answers_shorten": (
        "Shorten the answers of the rows, or let each one end: {share_ppm} % of {rows} answers "
        "were cut at their greatest length"
    ),
    "classes_balance": (
        "Balance the classes: of {classes} in {rows} validation rows the largest has {share_ppm} %"
    ),
}
# verdicts from before the bound was written with them
UNBOUNDED: Final[Mapping[VerdictCode, str]] = {
    "drop_excluded": "{change_ppm} points on {items} general questions: no drop is shown",
    "drop_undecided": (
        "{change_ppm} points on {items} general questions: neither a drop nor its absence is shown"
    ),
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
PAIRS_ADVICE: Final[Mapping[str, str]] = {
    "pairs_reversed": "Look for pairs that are the wrong way round, or lower the learning rate.",
    "pairs_undecided": "Keep more pairs for validation, or train longer.",
}
NOT_FINITE: Final = (
    "The adapter's weights have grown beyond what can be computed with. Lower the learning rate or "
    "lengthen the warm-up."
)
OVERFITTED: Final = (
    "Train fewer epochs or add rows: the validation loss rose above the base model's."
)
UNTRAINED: Final = (
    "Train more epochs, raise the learning rate, or look at the rows: the adapter answers them as "
    "the base model does."
)
PARAMETERS: Final[Mapping[ParameterCode, str]] = {
    "unknown": "unknown hyper-parameter; known: {known}",
    "not_a_choice": "must be one of {known}",
    "not_a_pattern": (
        "must be an object of up to {most} names of layers with whole numbers from {low} to {high}"
    ),
    "not_names": 'must be up to {most} names of layers, like ["lm_head"]',
    "not_layers": 'must be "all-linear", or 1 to {most} names of layers, like "q_proj"',
    "does_not_divide": "accumulation must divide batch_size, which is {batch_size}",
    "of_other_method": "belongs to the method {methods}, and this job's is {method}",
    "of_an_adapter": (
        '{name} belongs to an adapter, and with adaptation "full" there is none; leave it out, or '
        'set adaptation to "lora"'
    ),
    **{code: PROOF_WORDS[code] for code in get_args(ProofCode)},
    "not_smoothed": "has no effect on the loss {loss_type}; those that it has one on: {known}",
    **{code: ENGINE_WORDS[code] for code in get_args(EngineCode)},
    "needs_smoothing": "exo_pair needs a label_smoothing above 0; its paper takes 0.001",
    "two_learning_rates": "give learning_rate or learning_rate_multiplier, not both",
    "not_whole_in_range": ('must be a whole number from {low} to {high}, or "auto"; it is {value}'),
    "multiplier_not_in_range": (
        "must be a number above 0 and at most {high}, where the learning rate is 0.1, "
        'or "auto"; it is {value}'
    ),
    "not_in_range": 'must be a number from {low} to {high}, or "auto"; it is {value}',
}

#: parameters that are shown in their own form
FORMS: Final[Mapping[str, Callable[[Any], str]]] = {
    "slots": lambda slots: f"{slots} slot" + ("" if slots == 1 else "s"),
    "ahead": lambda jobs: "1 job" if jobs == 1 else f"{jobs} jobs",
    "outcome": lambda outcome: "been cancelled" if outcome == "cancelled" else outcome,
    "others": lambda others: f" and {others} more" if others else "",
    "memory_bytes": lambda size: f"{size / 1e9:.1f} GB",
    "domains": lambda names: f"; there are {names}" if names else "",
    "accelerators": lambda models: f"; there are {models}" if models else "",
    "finding": lambda code: f"{CATALOGUE[code].meaning} ({code})" if code in CATALOGUE else code,
    "errors": lambda errors: f" {errors} errors in all." if errors > 1 else "",
    "change_ppm": lambda ppm: f"{100 * ppm / PPM:+.1f}",
    "drop_max_ppm": lambda ppm: f"{100 * ppm / PPM:g}",
    "bound_ppm": lambda ppm: f"{100 * max(0, ppm) / PPM:.1f}",
    "gain_ppm": lambda ppm: f"{100 * ppm / PPM:.1f}",
    "gain_min_ppm": lambda ppm: f"{100 * ppm / PPM:g}",
    "right_ppm": lambda ppm: f"{100 * ppm / PPM:.0f}",
    "base_right_ppm": lambda ppm: f"{100 * ppm / PPM:.0f}",
    "p_ppm": lambda ppm: f"{ppm / PPM:.4f}",
    "learning_rate_ppb": lambda ppb: f"{ppb / PPB:g}",
    "to_ppb": lambda ppb: f"{ppb / PPB:g}",
    "train_loss_ppm": lambda ppm: f"{ppm / PPM:.2f}",
    "valid_loss_ppm": lambda ppm: f"{ppm / PPM:.2f}",
    "agreement_low_ppm": lambda ppm: f"{100 * ppm / PPM:.0f}",
    "position_ppm": lambda ppm: f"{100 * ppm / PPM:.0f}",
    "share_ppm": lambda ppm: f"{100 * ppm / PPM:.0f}",
    "refused_ppm": lambda ppm: f"{100 * ppm / PPM:.1f}",
    "base_refused_ppm": lambda ppm: f"{100 * ppm / PPM:.1f}",
    "low_ppm": lambda ppm: f"{100 * ppm / PPM:.1f}",
    "wanted_ppm": lambda ppm: f"{100 * ppm / PPM:g}",
    "base_ppm": lambda ppm: f"{ppm / PPM:.2f}",
    "adapter_ppm": lambda ppm: f"{ppm / PPM:.2f}",
}


def wait_words(reason: Reason | None) -> str | None:
    """Why a job waits, or what it does, as a sentence."""
    return None if reason is None else _fill(WAITS, reason)


def unblock_words(reason: Reason | None) -> str | None:
    """Return what lets a waiting job continue, as a sentence; None: nothing is needed."""
    return None if reason is None or reason.code not in UNBLOCKS else _fill(UNBLOCKS, reason)


def skip_words(reason: Reason) -> str:
    """Why a checkpoint was passed over, as a clause."""
    return _fill(SKIPS, reason)


def cordon_words(reason: Reason) -> str:
    """Why a node gets no new jobs, and what to do."""
    return _fill(CORDONS, reason)


def device_fault_words(reason: Reason) -> str:
    """Why a device gets no new jobs, and what to do."""
    return _fill(DEVICE_FAULTS, reason)


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
    """Return a reason of a verdict as a clause."""
    bounded = "bound_ppm" in reason.params or reason.code not in UNBOUNDED
    return _fill(VERDICTS if bounded else UNBOUNDED, reason)


def suggestion_words(reason: Reason) -> str:
    """Return what to change when a result does not pass, as a clause."""
    return _fill(SUGGESTIONS, reason)


def own_data_words(summary: ScoreSummary) -> str | None:
    """Return the results on the tenant's validation rows as a clause; None: there were none."""
    clauses = []
    if summary.base_loss_ppm >= 0 and summary.adapter_loss_ppm >= 0:
        before, after = summary.base_loss_ppm / PPM, summary.adapter_loss_ppm / PPM
        clauses.append(f"loss {before:.2f} → {after:.2f}")
    if summary.base_exact_match_ppm >= 0 and summary.adapter_exact_match_ppm >= 0:
        before, after = summary.base_exact_match_ppm / PPM, summary.adapter_exact_match_ppm / PPM
        clauses.append(f"exact answers {before:.0%} → {after:.0%}".replace("%", " %"))
    return ", ".join(clauses) or None


def advice_words(summary: ScoreSummary) -> str | None:
    """Return what to do after a verdict; None: nothing."""
    codes = {reason.code for reason in summary.reasons}
    if "scores_not_finite" in codes:
        return NOT_FINITE
    if of_pairs := next((PAIRS_ADVICE[code] for code in PAIRS_ADVICE if code in codes), None):
        return of_pairs
    own = {"validation_loss_rose": OVERFITTED, "validation_loss_same": UNTRAINED}
    return ADVICE.get(summary.verdict, next((own[code] for code in own if code in codes), None))


def parameter_words(reason: Reason) -> str:
    """Describe a problem of a hyper-parameter as a clause."""
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
    down = name.startswith(ALLOWED)  # so that needed and allowed never look equal
    if name.endswith("_gpu_ms"):
        return hours(value, down=down)
    return money(value, down=down) if name.endswith("_micro") else str(value)
