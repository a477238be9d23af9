"""Views of the gateway's rows for readers: jobs and budgets of tenants, without texts of theirs.

A list price is that of `cost_summary`, for jobs whose price has rates and for those without. It is
none until something was billed.
"""

from typing import Final

from tunery.platform.store.reports import views_ddl

VIEWS: Final = views_ddl(
    "gateway",
    {
        "jobs": """
            SELECT tenant, id AS job_id, lane, phase, outcome, failure ->> 'code' AS failure,
                spec -> 'base' ->> 'base_id' AS base, (spec ->> 'slots')::integer AS slots,
                to_timestamp(created_at / 1000.0) AS created_at,
                to_timestamp(started_at / 1000.0) AS started_at,
                to_timestamp(finished_at / 1000.0) AS finished_at,
                (started_at - created_at) / 1000.0 AS wait_s,
                (billable_gpu_ms - lost_gpu_ms) / 3600000.0 AS net_gpu_hours,
                lost_gpu_ms / 3600000.0 AS credited_gpu_hours,
                spec -> 'price' ->> 'currency' AS currency,
                (round(greatest(0, coalesce(micro_gpu_ms, (billable_gpu_ms - lost_gpu_ms)
                    * (spec #>> '{price,gpu_hour_micro}')::numeric)) / 3600000.0)
                    + round(coalesce(billed_tokens
                    * (spec #>> '{price,token_micro_per_million}')::numeric, 0) / 1000000))
                    / 1000000 AS list_price
            FROM jobs WHERE created_at IS NOT NULL""",
        "budgets": """
            SELECT tenant, id AS budget_id, month, currency,
                (use ->> 'used_micro')::numeric / 1000000 AS used,
                (use ->> 'held_micro')::numeric / 1000000 AS held,
                max_amount_micro / 1000000.0 AS amount_limit,
                (use ->> 'used_gpu_ms')::numeric / 3600000 AS used_gpu_hours,
                (use ->> 'held_gpu_ms')::numeric / 3600000 AS held_gpu_hours,
                max_gpu_ms / 3600000.0 AS gpu_hours_limit,
                coalesce((alert ->> 'percent')::integer, 0) AS reached_percent
            FROM budgets WHERE set_at IS NOT NULL""",
    },
)
