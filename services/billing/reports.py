"""Views of billing's rows for readers: dashboards, accountants.

Hours are the ledger's: what is billed in an hour is less what is credited for it. Amounts are those
of closed months alone, since lines are made of prices by code and not by SQL.
"""

from typing import Final

from tunery.platform.store.reports import views_ddl

LEDGER_VIEWS: Final = views_ddl(
    "billing",
    {
        "usage_by_hour": """
            SELECT tenant, to_timestamp(hour_utc * 3600.0) AS hour, lane, role, device,
                accelerator, spot, price_version,
                sum(gpu_ms) FILTER (WHERE kind = 'usage') / 3600000.0 AS billed_gpu_hours,
                coalesce(-sum(gpu_ms) FILTER (WHERE kind = 'credit'), 0) / 3600000.0
                    AS credited_gpu_hours,
                sum(gpu_ms) / 3600000.0 AS net_gpu_hours, sum(tokens) AS tokens
            FROM ledger
            GROUP BY tenant, hour_utc, lane, role, device, accelerator, spot, price_version""",
    },
)
STORAGE_VIEWS: Final = views_ddl(
    "billing",
    {
        "storage": """
            SELECT tenant, count(*) AS objects, sum(bytes) AS bytes
            FROM storage WHERE until = 4611686018427387904 GROUP BY tenant""",
    },
)
TENANTS_VIEWS: Final = views_ddl(
    "billing",
    {
        "tenants": """
            SELECT tenant, plan, price_version, soft_gpu_ms / 3600000.0 AS soft_gpu_hours,
                hard_gpu_ms / 3600000.0 AS hard_gpu_hours, concurrency
            FROM tenants""",
        "invoices": """
            SELECT tenant, period, to_timestamp(closed_at / 1000.0) AS closed_at,
                bill ->> 'number' AS number, bill ->> 'currency' AS currency,
                (bill ->> 'net_micro')::numeric / 1000000 AS net,
                (bill ->> 'total_micro')::numeric / 1000000 AS total,
                (bill ->> 'gpu_ms')::numeric / 3600000 AS gpu_hours
            FROM statements, jsonb_array_elements(statement -> 'bills') AS bill""",
        "adjustments": """
            SELECT tenant, period, reference, reason, currency, amount_micro / 1000000.0 AS amount,
                to_timestamp(at / 1000.0) AS adjusted_at
            FROM adjustments""",
        "answers_by_hour": """
            SELECT tenant, to_timestamp(hour_utc * 3600.0) AS hour,
                sum(prompt_tokens) AS prompt_tokens, sum(cached_tokens) AS cached_tokens,
                sum(completion_tokens) AS completion_tokens
            FROM answers GROUP BY tenant, hour_utc""",
    },
)
