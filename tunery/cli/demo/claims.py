"""What the demo claims. A claim that was never reached counts as broken."""

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
    "webhook_received_and_verified",
    "bill_within_hold",
    "lost_work_credited",
    "invoice_equals_ledger",
    "replay_equal_to_the_unit",
)


@dataclass
class Told:
    """Claims as they are checked, and figures as they are measured."""

    held: dict[str, bool] = field(default_factory=lambda: dict.fromkeys(CLAIMS, False))
    figures: dict[str, float | int | str] = field(default_factory=dict)
    trouble: str | None = None

    def check(self, claim: str, holds: bool) -> bool:
        if claim not in self.held:
            raise KeyError(f"{claim} is not a claim of the demo")
        self.held[claim] = holds
        return holds

    @property
    def all_held(self) -> bool:
        return self.trouble is None and all(self.held.values())
