"""What the demo claims, and what became of each claim. A claim never checked counts as broken."""

from dataclasses import dataclass, field
from typing import Final

CLAIMS: Final = (
    "servers_and_services_ready",
    "every_planted_error_named",
    "good_file_accepted",
    "estimate_given_before_launch",
    "two_submissions_one_job",
    "waiting_was_explained",
    "loss_fell",
    "trained_what_was_estimated",
    "agent_killed_about_half_way",
    "lease_expired_and_other_node_took_over",
    "resumed_from_last_checkpoint",
    "gate_decided_on_paired_items",
    "version_registered_with_lineage",
    "promoted_to_staging",
    "downloaded_adapter_loads_in_peft",
    "answers_changed_visibly",
    "model_answered_through_openai_sdk",
    "signature_verified",
    "flipped_bit_named",
    "webhook_received_and_verified",
    "bill_within_hold",
    "lost_work_credited",
    "invoice_equals_ledger",
    "callers_kept_their_version",
    "sample_ratio_as_shared",
    "replay_equal_to_the_unit",
)

TAKEN_OVER: Final = "lease_expired_and_other_node_took_over"
TAKEN_OVER_BY_A_POD: Final = "agent_came_back_and_other_pod_took_over"
#: of `tunery demo --kubernetes`
CLAIMS_IN_PODS: Final = tuple(
    TAKEN_OVER_BY_A_POD if claim == TAKEN_OVER else claim for claim in CLAIMS
)

#: of `tunery demo --from-openai`
CLAIMS_OF_A_MOVE: Final = (
    "servers_and_services_ready",
    "account_read",
    "recipe_written_with_reasons",
    "old_model_answered_within_its_budget",
    "each_question_asked_once",
    "submitted_once",
    "trained_and_gated",
    "report_compares_both",
    "moved_model_answered",
)


@dataclass
class DemoResult:
    """Results of the demo so far."""

    # whether each claim was checked and is true
    held: dict[str, bool] = field(default_factory=lambda: dict.fromkeys(CLAIMS, False))
    # measured values by name, as `--json` prints them
    figures: dict[str, float | int | str] = field(default_factory=dict)
    failure: str | None = None  # why the demo stopped early; None while it has not

    def check(self, claim: str, holds: bool) -> bool:
        """Record whether `claim` holds, and return it. Raises KeyError for an unknown claim."""
        if claim not in self.held:
            raise KeyError(f"{claim} is not a claim of the demo")
        self.held[claim] = holds
        return holds

    @property
    def all_held(self) -> bool:
        return self.failure is None and all(self.held.values())
