"""The dashboards: each panel with its queries, all of metrics of the catalogue."""

from typing import Final

from tests.infra.panels import (
    Board,
    Panel,
    Query,
    counts,
    curves,
    gpu_hours,
    number,
    or_zero,
    quantiles,
    rates,
    share,
    total,
)

POOL: Final = '{pool=~"$pool"}'
CHAT: Final = '{route="/v1/chat/completions"}'
OBJECTIVE: Final = "0.001"  # share of answers that may be 5xx, as in rules.yml
_OLDEST: Final = f"tunery_pool_oldest_submitted_timestamp_seconds{POOL}"
_LEASED: Final = 'tunery_pool_slots{state="leased",pool=~"$pool"}'
_OFFERED: Final = 'tunery_pool_slots{state="offered",pool=~"$pool"}'

FLEET: Final = Board(
    "fleet",
    "fleet",
    "Nodes, their GPUs, what runs on them and what is wrong with them.",
    (
        number("Nodes", "short", total("tunery_pool_nodes", where=POOL)),
        number("GPUs offered", "short", total(_OFFERED)),
        number("GPUs leased", "short", total(_LEASED)),
        number("GPUs in use", "percentunit", f"{total(_LEASED)} / {total(_OFFERED)}"),
        curves(
            "Nodes by state", "short", total("tunery_pool_nodes", "state", where=POOL), "{{state}}"
        ),
        curves(
            "GPUs by pool",
            "short",
            total("tunery_pool_slots", "pool", "state", where=POOL),
            "{{pool}} {{state}}",
        ),
        curves(
            "Leases by state",
            "short",
            total("tunery_pool_leases", "state", where=POOL),
            "{{state}}",
        ),
        curves(
            "Faulty devices",
            "short",
            total("tunery_pool_devices_faulty", "pool", "cause", where=POOL),
            "{{pool}} {{cause}}",
            "Devices of nodes that are up and get no new leases. Empty if there are none.",
        ),
        curves(
            "Ends of attempts in an hour",
            "short",
            counts("tunery_attempts_ended_total", "outcome", "cause"),
            "{{outcome}} {{cause}}",
        ),
        curves(
            "Confined processes",
            "short",
            "min by (instance) (tunery_confined)",
            "{{instance}}",
            "0: a wall around what tenants upload is missing on this machine.",
        ),
    ),
    has_pools=True,
)

QUEUE: Final = Board(
    "queue",
    "queue",
    "Who waits for GPUs, for how long, and whether GPUs are free meanwhile.",
    (
        number("Waiting", "short", or_zero(total("tunery_pool_waiting", where=POOL))),
        number("GPUs free", "short", f"{total(_OFFERED)} - {total(_LEASED)}"),
        curves(
            "Waiting by lane", "short", total("tunery_pool_waiting", "lane", where=POOL), "{{lane}}"
        ),
        curves(
            "GPUs lacking",
            "short",
            total("tunery_pool_slots_lacking", "lane", "device_kind", where=POOL),
            "{{lane}} {{device_kind}}",
            "Slots that placements in the queue ask for.",
        ),
        curves(
            "Longest wait",
            "s",
            f"time() - min by (pool, lane) ({_OLDEST})",
            "{{pool}} {{lane}}",
            "Since the submission of the job that waits longest. Empty if nothing waits.",
        ),
        quantiles("Time in the queue", "tunery_pool_wait_seconds", "lane"),
        curves("Wait, p95 of an hour", "s", "tunery:pool_wait_seconds:p95_rate1h", "{{lane}}"),
        curves(
            "Grants in an hour",
            "short",
            counts("tunery_pool_wait_seconds_count", "lane"),
            "{{lane}}",
        ),
        curves(
            "Free GPUs while jobs wait",
            "short",
            f"({total(_OFFERED, 'pool')} - {total(_LEASED, 'pool')}) "
            f"and {total('tunery_pool_waiting', 'pool', where=POOL)} > 0",
            "{{pool}}",
        ),
    ),
    has_pools=True,
)

JOBS: Final = Board(
    "jobs",
    "jobs",
    "Jobs by phase and outcome, and why attempts end.",
    (
        number("Open", "short", or_zero(total("tunery_jobs_open"))),
        number(
            "Succeeded, of those that ended in a day",
            "percentunit",
            share("tunery_jobs_ended_total", 'outcome="succeeded"', over="1d"),
        ),
        curves("Open by phase", "short", total("tunery_jobs_open", "phase"), "{{phase}}"),
        curves(
            "Ends of jobs in an hour",
            "short",
            counts("tunery_jobs_ended_total", "outcome"),
            "{{outcome}}",
        ),
        curves(
            "Ends of attempts in an hour",
            "short",
            counts("tunery_attempts_ended_total", "outcome", "cause"),
            "{{outcome}} {{cause}}",
        ),
        curves(
            "Decisions about jobs",
            "ops",
            rates("tunery_decisions_total", "result", where='{stream="job"}'),
            "{{result}}",
        ),
        curves(
            "Refused",
            "ops",
            rates("tunery_rejections_total", "code", where='{stream="job"}'),
            "{{code}}",
            "Codes of docs/reference/codes.md.",
        ),
    ),
)

TRAINING: Final = Board(
    "training",
    "training",
    "How trainings get on: steps, checkpoints, speed, and the devices that they have.",
    (
        number("Trainings", "short", total("tunery_trainings_running")),
        number("Tokens a second", "short", rates("tunery_training_tokens_total")),
        curves(
            "Trainings by node",
            "short",
            total("tunery_trainings_running", "instance"),
            "{{instance}}",
        ),
        quantiles("From step to step", "tunery_training_step_seconds"),
        curves(
            "Since the last step",
            "s",
            "time() - tunery_training_last_step_timestamp_seconds",
            "{{instance}}",
            "Of the training of a node that is silent for longest. Empty if none runs.",
        ),
        curves(
            "Since the last stored checkpoint",
            "s",
            "time() - tunery_training_last_checkpoint_timestamp_seconds",
            "{{instance}}",
            "What the node's training with the oldest one would lose with it.",
        ),
        quantiles("Time to store a checkpoint", "tunery_checkpoint_store_seconds"),
        curves("Sessions", "short", total("tunery_sessions_open", "state"), "{{state}}"),
        curves(
            "Commands of sessions a second",
            "ops",
            rates("tunery_session_commands_total", "kind", "outcome"),
            "{{kind}} {{outcome}}",
        ),
        curves(
            "Commands of sessions without an answer",
            "short",
            total("tunery_session_commands_waiting"),
            "commands",
            "Also those of sessions that wait for their slot.",
        ),
        quantiles("Time of a session's command", "tunery_session_command_seconds"),
        curves(
            "Losses that jumped, in an hour",
            "short",
            counts("tunery_training_loss_spikes_total", "instance"),
            "{{instance}}",
        ),
        curves(
            "Anomalies of jobs, in an hour",
            "short",
            counts("tunery_anomalies_total", "kind"),
            "{{kind}}",
            "What the watcher has sent to jobs; some twice, after a kill.",
        ),
        curves("Jobs that are watched", "short", "sum(tunery_watched_jobs)", "jobs"),
        curves(
            "Watched jobs that were forgotten for want of space, in an hour",
            "short",
            counts("tunery_watches_evicted_total"),
            "jobs",
        ),
        curves(
            "Speed, as a share of what is usual",
            "percentunit",
            "tunery_training_speed_ratio",
            "{{instance}}",
            "Of the slowest training of a node, compared with its own earlier steps.",
        ),
        curves(
            "Slowest rank, as a multiple of what is usual",
            "short",
            "tunery_training_slowest_rank_ratio",
            "{{instance}}",
            "Time of a micro-batch, compared with the other ranks. Empty where trainings have one.",
        ),
        curves(
            "Devices at work",
            "percentunit",
            "tunery_device_busy_ratio",
            "{{instance}} {{device}}",
            "Share of the time in which a device computes. Empty on processors.",
        ),
        curves(
            "Memory of devices",
            "bytes",
            "tunery_device_memory_used_bytes",
            "{{instance}} {{device}}",
        ),
        curves(
            "Devices that idle in a training",
            "short",
            "tunery_device_busy_ratio < 0.05 and on (instance, device) tunery_device_training == 1",
            "{{instance}} {{device}}",
        ),
    ),
)

TENANTS: Final = Board(
    "tenants",
    "tenants and money",
    "All tenants together: no metric names a tenant, so that a thousand make no more series than "
    "one. What one of them uses and spends is in `tunery usage` and its invoices.",
    (
        number("Active", "short", total("tunery_tenants", where='{state="active"}')),
        number(
            "GPU-hours billed in a day",
            "short",
            gpu_hours(counts("tunery_billed_gpu_seconds_total", over="1d")),
        ),
        number(
            "Given back, of what a day billed",
            "percentunit",
            f"{counts('tunery_credited_gpu_seconds_total', over='1d')} / "
            f"{counts('tunery_billed_gpu_seconds_total', over='1d')}",
        ),
        number("Invoices to be made", "short", total("tunery_months_closing")),
        curves("Tenants", "short", total("tunery_tenants", "state"), "{{state}}"),
        curves(
            "GPU-hours held for open jobs",
            "short",
            gpu_hours(total("tunery_held_gpu_seconds")),
            "held",
            "Holds less what jobs have used of them.",
        ),
        curves(
            "Budgets that reached a share, in a day",
            "short",
            counts("tunery_budget_thresholds_total", "percent", over="1d"),
            "{{percent}} %",
        ),
        Panel(
            "GPU-hours in an hour",
            "short",
            (
                Query(gpu_hours(counts("tunery_billed_gpu_seconds_total")), "billed"),
                Query(
                    gpu_hours(counts("tunery_credited_gpu_seconds_total", "cause")),
                    "credited: {{cause}}",
                ),
            ),
        ),
        Panel(
            "Limits",
            "reqps",
            (
                Query(rates("tunery_http_requests_total", where='{status="429"}'), "answered 429"),
                Query(
                    rates("tunery_rates_total", where='{result="alone"}'),
                    "rate limit counted by one gateway alone",
                ),
            ),
        ),
    ),
    window="7d",
)

CORE: Final = Board(
    "core",
    "event core",
    "Deciders, projections, effects, and the hosts that run them.",
    (
        number(
            "Partitions stopped",
            "short",
            "sum(tunery_partition_stopped)",
            "Needs an operator above 0.",
        ),
        number("Hosts that do not run", "short", "sum(1 - tunery_host_running)"),
        quantiles("Command until its decision", "tunery_command_lag_seconds", "stream"),
        quantiles("Time to decide", "tunery_decision_seconds", "stream"),
        curves(
            "Decisions",
            "ops",
            rates("tunery_decisions_total", "stream", "result"),
            "{{stream}} {{result}}",
        ),
        curves(
            "Rejections",
            "ops",
            rates("tunery_rejections_total", "stream", "code"),
            "{{stream}} {{code}}",
        ),
        curves(
            "Stopped partitions",
            "short",
            "max by (host, stream, partition) (tunery_partition_stopped)",
            "{{host}} {{stream}}/{{partition}}",
        ),
        Panel(
            "Owners of partitions",
            "short",
            (
                Query(counts("tunery_owner_claims_total", "stream"), "{{stream}} claimed"),
                Query(counts("tunery_owner_stand_downs_total", "stream"), "{{stream}} gave way"),
            ),
            "In an hour.",
        ),
        curves(
            "Projections behind",
            "s",
            "max by (projection, stream) (tunery_projection_lag_seconds)",
            "{{projection}} {{stream}}",
            "Grows only while entries arrive.",
        ),
        curves(
            "Entries projected",
            "ops",
            rates("tunery_projected_entries_total", "projection", "stream"),
            "{{projection}} {{stream}}",
        ),
        quantiles("Commit of a projection", "tunery_projection_commit_seconds", "projection"),
        curves(
            "Commits of projections",
            "ops",
            rates("tunery_projection_commits_total", "projection", "result"),
            "{{projection}} {{result}}",
        ),
        curves("Effects running", "short", total("tunery_effects_running", "kind"), "{{kind}}"),
        curves(
            "Effects ended in an hour",
            "short",
            counts("tunery_effects_ended_total", "kind", "outcome"),
            "{{kind}} {{outcome}}",
        ),
        curves(
            "Time left of certificates",
            "s",
            "min by (instance, setting) (tunery_certificate_end_timestamp_seconds) - time()",
            "{{instance}} {{setting}}",
            "Those that processes are given as files.",
        ),
        Panel(
            "Restarts in an hour",
            "short",
            (
                Query(counts("tunery_host_restarts_total", "host"), "{{host}} restarted"),
                Query(counts("tunery_host_hangs_total", "host"), "{{host}} hung"),
                Query(counts("tunery_stray_cancellations_total", "task"), "{{task}} cancelled"),
            ),
        ),
    ),
    window="1h",
)

_DATA_WORK: Final = '{kind=~"validate|prepare|erase"}'
DATA: Final = Board(
    "data",
    "data",
    "Files that tenants upload, their checks, and the object storage.",
    (
        number("Uploaded in a day", "bytes", counts("tunery_upload_bytes_total", over="1d")),
        number(
            "Checks running", "short", total("tunery_effects_running", where='{kind="validate"}')
        ),
        curves("Uploads", "Bps", rates("tunery_upload_bytes_total"), "uploaded"),
        curves(
            "Object storage", "Bps", rates("tunery_blob_bytes_total", "direction"), "{{direction}}"
        ),
        curves(
            "Checks, preparations, erasures running",
            "short",
            total("tunery_effects_running", "kind", where=_DATA_WORK),
            "{{kind}}",
        ),
        curves(
            "Ended in an hour",
            "short",
            counts("tunery_effects_ended_total", "kind", "outcome", where=_DATA_WORK),
            "{{kind}} {{outcome}}",
        ),
        curves(
            "Decisions about data",
            "ops",
            rates("tunery_decisions_total", "result", where='{stream="dataset"}'),
            "{{result}}",
        ),
    ),
)

SERVING: Final = Board(
    "serving",
    "serving",
    "Answers of models over /v1/chat/completions.",
    (
        number("Answers a second", "reqps", rates("tunery_http_requests_total", where=CHAT)),
        number(
            "Failed in an hour",
            "percentunit",
            share("tunery_http_requests_total", 'status=~"5.."', CHAT),
        ),
        curves(
            "Answers by status",
            "reqps",
            rates("tunery_http_requests_total", "status", where=CHAT),
            "{{status}}",
        ),
        quantiles("Time of an answer", "tunery_http_request_seconds", where=CHAT),
        curves(
            "Decisions about models",
            "ops",
            rates("tunery_decisions_total", "result", where='{stream="model"}'),
            "{{result}}",
        ),
    ),
    window="1h",
)

WEBHOOKS: Final = Board(
    "webhooks",
    "webhooks and mail",
    "Deliveries to tenants' endpoints and addresses; runs on their MLflow servers.",
    (
        number("Open", "short", total("tunery_deliveries_open")),
        number(
            "Given up, of those that ended in a day",
            "percentunit",
            share("tunery_deliveries_ended_total", 'outcome="gave_up"', over="1d"),
        ),
        curves("Open deliveries", "short", total("tunery_deliveries_open"), "open"),
        curves(
            "Ended in an hour",
            "short",
            counts("tunery_deliveries_ended_total", "outcome"),
            "{{outcome}}",
        ),
        curves(
            "Tries in an hour",
            "short",
            counts("tunery_effects_ended_total", "outcome", where='{kind="deliver"}'),
            "{{outcome}}",
        ),
        curves(
            "Runs in MLflow that ended in an hour",
            "short",
            counts("tunery_mirrors_ended_total", "outcome"),
            "{{outcome}}",
        ),
        curves(
            "Failed tries to write to MLflow in an hour",
            "short",
            counts("tunery_mirror_failures_total", "cause"),
            "{{cause}}",
        ),
    ),
)

_FAILED_30D: Final = counts("tunery_http_requests_total", where='{status=~"5.."}', over="30d")
_ALL_30D: Final = counts("tunery_http_requests_total", over="30d")
SLOS: Final = Board(
    "slos",
    "objectives",
    "What is promised: 99.9 % of answers of 30 days without a 5xx, and short waits.",
    (
        number(
            "Error budget left, of 30 days",
            "percentunit",
            f"1 - ({_FAILED_30D} or vector(0)) / {_ALL_30D} / {OBJECTIVE}",
            "Below 0 the promise is broken. Prometheus must keep 30 days (it keeps 15 by default).",
        ),
        number(
            "Alerts firing",
            "short",
            or_zero('count(ALERTS{alertstate="firing"})'),
        ),
        number("Processes that do not answer", "short", 'sum(1 - up{job="tunery"})'),
        number(
            "Audit entries lost", "short", counts("tunery_audit_lost_total", over="1d"), "In a day."
        ),
        Panel(
            "Burn of the error budget",
            "short",
            tuple(
                Query(f"tunery:http_failures:ratio_rate{window} / {OBJECTIVE}", window)
                for window in ("5m", "30m", "1h", "6h")
            ),
            "1: the budget lasts exactly 30 days. 14.4 for an hour pages.",
        ),
        curves(
            "Answers by status",
            "reqps",
            rates("tunery_http_requests_total", "status"),
            "{{status}}",
        ),
        curves(
            "Slowest routes, p99",
            "s",
            "topk(10, histogram_quantile(0.99, sum by (method, route, le) "
            "(rate(tunery_http_request_seconds_bucket[$__rate_interval]))))",
            "{{method}} {{route}}",
        ),
        curves("Decisions, p99", "s", "tunery:command_lag_seconds:p99_rate5m", "{{stream}}"),
        curves("Wait for GPUs, p95", "s", "tunery:pool_wait_seconds:p95_rate1h", "{{lane}}"),
        curves(
            "Alerts",
            "short",
            'count by (alertname, severity) (ALERTS{alertstate="firing"})',
            "{{severity}} {{alertname}}",
        ),
    ),
    window="24h",
)

DASHBOARDS: Final = (FLEET, QUEUE, JOBS, TRAINING, TENANTS, CORE, DATA, SERVING, WEBHOOKS, SLOS)
