"""Dashboards of what tenants use and pay: SQL on the views that readers may read in PostgreSQL.

Prometheus has no label of a tenant, since there may be thousands. `tests/observe` runs each query
on a stack that has trained.
"""

import re
from typing import Final, Literal, NamedTuple, TypeAlias

Shown: TypeAlias = Literal["curves", "table"]
SqlUnit: TypeAlias = Literal["short", "h", "s", "bytes", "percent"]


class SqlPanel(NamedTuple):
    """sql: with Grafana's macros. Curves need columns `time`, and `metric` for their names."""

    title: str
    unit: SqlUnit
    sql: str
    shown: Shown = "curves"
    meaning: str = ""


class SqlBoard(NamedTuple):
    """of_tenant: the panels are of one tenant, which is chosen."""

    name: str
    title: str
    meaning: str
    panels: tuple[SqlPanel, ...]
    of_tenant: bool = False
    window: str = "30d"


TENANTS: Final = "SELECT tenant FROM billing_reports.tenants ORDER BY tenant"
MONEY: Final = SqlBoard(
    "money",
    "use and money of all tenants",
    "Who uses what, what it costs at list price, budgets, closed months.",
    (
        SqlPanel(
            "GPU-hours billed, by lane",
            "h",
            "SELECT $__timeGroupAlias(hour, '1h'), lane AS metric, sum(billed_gpu_hours) AS value "
            "FROM billing_reports.usage_by_hour WHERE $__timeFilter(hour) GROUP BY 1, 2 ORDER BY 1",
        ),
        SqlPanel(
            "GPU-hours credited, by tenant",
            "h",
            "SELECT $__timeGroupAlias(hour, '1h'), tenant AS metric, "
            "sum(credited_gpu_hours) AS value FROM billing_reports.usage_by_hour "
            "WHERE $__timeFilter(hour) GROUP BY 1, 2 ORDER BY 1",
            meaning="What was lost with nodes and is not paid.",
        ),
        SqlPanel(
            "Tenants by GPU-hours",
            "h",
            "SELECT tenant, sum(net_gpu_hours) AS gpu_hours, sum(credited_gpu_hours) AS credited, "
            "sum(tokens) AS tokens FROM billing_reports.usage_by_hour WHERE $__timeFilter(hour) "
            "GROUP BY tenant ORDER BY gpu_hours DESC LIMIT 100",
            "table",
        ),
        SqlPanel(
            "Tenants by list price of ended jobs",
            "short",
            "SELECT tenant, currency, count(*) AS jobs, sum(list_price) AS list_price "
            "FROM gateway_reports.jobs WHERE $__timeFilter(finished_at) "
            "GROUP BY tenant, currency ORDER BY list_price DESC NULLS LAST LIMIT 100",
            "table",
            "Before discounts, commitments and taxes, which the invoice of the month has.",
        ),
        SqlPanel(
            "Budgets",
            "short",
            "SELECT tenant, budget_id, month, currency, used, held, amount_limit, used_gpu_hours, "
            "gpu_hours_limit, reached_percent FROM gateway_reports.budgets "
            "ORDER BY reached_percent DESC, tenant LIMIT 100",
            "table",
        ),
        SqlPanel(
            "Invoices of closed months",
            "short",
            "SELECT period, tenant, number, currency, gpu_hours, net, total, closed_at "
            "FROM billing_reports.invoices WHERE $__timeFilter(closed_at) "
            "ORDER BY period DESC, total DESC LIMIT 1000",
            "table",
        ),
        SqlPanel(
            "Tokens of answers",
            "short",
            "SELECT $__timeGroupAlias(hour, '1h'), sum(prompt_tokens) AS read, "
            "sum(completion_tokens) AS written FROM billing_reports.answers_by_hour "
            "WHERE $__timeFilter(hour) GROUP BY 1 ORDER BY 1",
        ),
        SqlPanel(
            "Kept files and models",
            "bytes",
            "SELECT tenant, objects, bytes FROM billing_reports.storage "
            "ORDER BY bytes DESC LIMIT 100",
            "table",
        ),
    ),
)
TENANT: Final = SqlBoard(
    "tenant",
    "one tenant",
    "What one tenant uses, what is left of its budgets, how long its jobs wait and how they end.",
    (
        SqlPanel(
            "GPU-hours, by role",
            "h",
            "SELECT $__timeGroupAlias(hour, '1h'), role AS metric, sum(net_gpu_hours) AS value "
            "FROM billing_reports.usage_by_hour WHERE $__timeFilter(hour) AND tenant = $tenant "
            "GROUP BY 1, 2 ORDER BY 1",
        ),
        SqlPanel(
            "List price of ended jobs, by day",
            "short",
            "SELECT $__timeGroupAlias(finished_at, '1d'), currency AS metric, "
            "sum(list_price) AS value FROM gateway_reports.jobs "
            "WHERE $__timeFilter(finished_at) AND tenant = $tenant GROUP BY 1, 2 ORDER BY 1",
        ),
        SqlPanel(
            "Budgets",
            "short",
            "SELECT budget_id, month, currency, used, held, amount_limit, used_gpu_hours, "
            "held_gpu_hours, gpu_hours_limit, reached_percent FROM gateway_reports.budgets "
            "WHERE tenant = $tenant ORDER BY budget_id",
            "table",
        ),
        SqlPanel(
            "Wait of jobs that have begun",
            "s",
            "SELECT $__timeGroupAlias(created_at, '1h'), "
            "percentile_cont(0.5) WITHIN GROUP (ORDER BY wait_s) AS median, "
            "max(wait_s) AS longest FROM gateway_reports.jobs "
            "WHERE $__timeFilter(created_at) AND wait_s IS NOT NULL AND tenant = $tenant "
            "GROUP BY 1 ORDER BY 1",
            meaning="From the submission, and so with validation of the file, to the first step.",
        ),
        SqlPanel(
            "Ends of jobs, by day",
            "short",
            "SELECT $__timeGroupAlias(finished_at, '1d'), outcome AS metric, count(*) AS value "
            "FROM gateway_reports.jobs WHERE $__timeFilter(finished_at) AND tenant = $tenant "
            "GROUP BY 1, 2 ORDER BY 1",
        ),
        SqlPanel(
            "Success of ended jobs",
            "percent",
            "SELECT 100.0 * count(*) FILTER (WHERE outcome = 'succeeded') / nullif(count(*) "
            "FILTER (WHERE outcome <> 'cancelled'), 0) AS succeeded, count(*) AS ended "
            "FROM gateway_reports.jobs WHERE $__timeFilter(finished_at) AND tenant = $tenant",
            "table",
            "Cancelled ones do not count.",
        ),
        SqlPanel(
            "Newest jobs",
            "short",
            "SELECT created_at, job_id, base, lane, slots, phase, outcome, failure, wait_s, "
            "net_gpu_hours, list_price, currency FROM gateway_reports.jobs "
            "WHERE $__timeFilter(created_at) AND tenant = $tenant "
            "ORDER BY created_at DESC LIMIT 100",
            "table",
        ),
        SqlPanel(
            "Invoices",
            "short",
            "SELECT period, number, currency, gpu_hours, net, total, closed_at "
            "FROM billing_reports.invoices WHERE tenant = $tenant ORDER BY period DESC",
            "table",
        ),
        SqlPanel(
            "Tokens of answers",
            "short",
            "SELECT $__timeGroupAlias(hour, '1h'), sum(prompt_tokens) AS read, "
            "sum(completion_tokens) AS written FROM billing_reports.answers_by_hour "
            "WHERE $__timeFilter(hour) AND tenant = $tenant GROUP BY 1 ORDER BY 1",
        ),
    ),
    of_tenant=True,
)
SQL_DASHBOARDS: Final = (MONEY, TENANT)


def in_grafana(sql: str) -> str:
    """With the chosen tenant quoted by Grafana."""
    return sql.replace("$tenant", "${tenant:sqlstring}")


def in_postgres(sql: str, tenant: str) -> str:
    """Query as Grafana sends it for all time: with a tenant, and its macros replaced."""
    hour = r"floor(extract(epoch FROM \1) / 3600) * 3600 AS time"
    plain = re.sub(r"\$__timeGroupAlias\((\w+), '1[hd]'\)", hour, sql)
    plain = re.sub(r"\$__timeFilter\((\w+)\)", r"\1 BETWEEN '2020-01-01' AND '2100-01-01'", plain)
    return plain.replace("$tenant", f"'{tenant}'")
