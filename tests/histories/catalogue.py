"""The stories of all recorded journals. A story is recorded once and never changed."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from schemas.streams import GLOBAL
from services.billing.app import ACCOUNTS
from services.ingest.app import DATASETS
from services.registry.app import MODELS
from services.scheduler.app import JOBS, POOLS
from tests.histories.recorder import TENANT, Recorder
from tests.histories.stories import account, dataset, gang, job, model, pool
from tunery.runtime.verbs import Aggregate


@dataclass(frozen=True)
class Story:
    """`tell` sends the story's commands to a recorder, for the partition of `key`."""

    aggregate: Aggregate[Any]
    tell: Callable[[Recorder], None]
    key: str = TENANT

    @property
    def name(self) -> str:
        return f"{self.aggregate.stream.name}.{self.tell.__name__}"


_ALL: Final = (
    Story(ACCOUNTS, account.keys_and_webhooks),
    Story(ACCOUNTS, account.addresses_that_are_confirmed),
    Story(ACCOUNTS, account.owners_and_repeats),
    Story(ACCOUNTS, account.a_month_that_is_closed),
    Story(ACCOUNTS, account.an_invoice_that_is_corrected),
    Story(ACCOUNTS, account.plans_and_suspension),
    Story(ACCOUNTS, account.price_books, GLOBAL),
    Story(ACCOUNTS, account.a_contract_with_prepaid_credits),
    Story(ACCOUNTS, account.terms_of_months),
    Story(ACCOUNTS, account.a_prepaid_credit_that_is_revoked),
    Story(ACCOUNTS, account.answers_that_are_counted),
    Story(ACCOUNTS, account.answers_that_have_a_price),
    Story(ACCOUNTS, account.batches),
    Story(ACCOUNTS, account.imports),
    Story(ACCOUNTS, account.a_tenant_that_is_erased),
    Story(ACCOUNTS, account.a_tracking_server_that_is_removed),
    Story(ACCOUNTS, account.keys_of_a_node_that_are_withdrawn, GLOBAL),
    Story(DATASETS, dataset.files_and_preparations),
    Story(DATASETS, dataset.uploads_that_end),
    Story(DATASETS, dataset.versions_and_what_models_keep),
    Story(DATASETS, dataset.files_of_an_erased_tenant),
    Story(DATASETS, dataset.work_that_is_discarded),
    Story(DATASETS, dataset.objects_that_no_record_names),
    Story(JOBS, job.a_job_that_succeeds),
    Story(JOBS, job.jobs_that_fail),
    Story(JOBS, job.plans_and_suspension),
    Story(JOBS, job.budgets_of_a_month),
    Story(JOBS, job.budgets_that_answers_reach),
    Story(JOBS, job.a_sweep_in_two_rungs),
    Story(JOBS, job.configurations_that_take_turns),
    Story(JOBS, job.a_serving_pool_that_is_renewed),
    Story(JOBS, job.what_waits_for_another_month),
    Story(JOBS, job.jobs_that_only_evaluate),
    Story(JOBS, job.a_verdict_in_two_looks),
    Story(JOBS, job.jobs_of_an_erased_tenant),
    Story(JOBS, job.anomalies_of_an_attempt),
    Story(JOBS, job.a_job_whose_figures_go_to_mlflow),
    Story(MODELS, model.versions_and_stages),
    Story(MODELS, model.checkpoints_that_others_may_fetch),
    Story(MODELS, model.policies_and_quarantine),
    Story(MODELS, model.versions_that_share_a_stage),
    Story(MODELS, model.approvals_and_a_base_model_that_changes),
    Story(MODELS, model.deletions_and_a_return),
    Story(MODELS, model.a_version_that_is_judged_again),
    Story(MODELS, model.benchmarks_of_the_operator),
    Story(MODELS, model.a_benchmark_that_is_removed),
    Story(MODELS, model.models_of_an_erased_tenant),
    Story(POOLS, pool.drained_and_succeeded, pool.POOL),
    Story(POOLS, pool.lost_and_killed, pool.POOL),
    Story(POOLS, pool.nodes_that_fail_and_leave, pool.POOL),
    Story(POOLS, pool.nodes_that_are_forgotten, pool.POOL),
    Story(POOLS, pool.a_machine_that_is_taken_away, pool.POOL),
    Story(POOLS, pool.spot_nodes_that_are_lost, pool.POOL),
    Story(POOLS, pool.spot_nodes_after_four_hours, pool.POOL),
    Story(POOLS, pool.a_device_that_breaks, pool.POOL),
    Story(POOLS, pool.a_domain_that_is_waited_for, pool.POOL),
    Story(POOLS, pool.a_node_whose_keys_are_withdrawn, pool.POOL),
    Story(POOLS, pool.a_node_that_is_invited, pool.POOL),
    Story(POOLS, pool.nodes_that_are_invited_with_one_token, pool.POOL),
    Story(POOLS, pool.a_lease_that_is_given_keys, pool.POOL),
    Story(POOLS, pool.an_attempt_without_keys, pool.POOL),
    Story(POOLS, pool.more_notices_than_one_decision, pool.POOL),
    Story(POOLS, pool.work_that_teaches_how_long_it_takes, pool.POOL),
    Story(POOLS, pool.a_cluster_that_makes_leases_wait, pool.POOL),
    Story(POOLS, gang.a_training_on_two_nodes, pool.POOL),
)
STORIES: Final = {story.name: story for story in _ALL}
