"""Every metric of the runtime. Services declare theirs in files of their own.

Metrics describe one process and start at zero with it; nothing is ever decided from them.
"""

from typing import Final

from tunery.runtime.telemetry.catalogue import counter, gauge, histogram

_FAST: Final = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)

PROJECTED: Final = counter(
    "tunery_projected_entries_total",
    "Accepted journal entries that a projection has taken in",
    ("projection", "stream"),
)
PROJECTION_COMMITS: Final = counter(
    "tunery_projection_commits_total",
    "Commits of a projection by result: committed, or stale when another process was first",
    ("projection", "result"),
)
PROJECTION_COMMIT_SECONDS: Final = histogram(
    "tunery_projection_commit_seconds",
    "Time of one commit of rows and position in PostgreSQL",
    ("projection",),
    _FAST,
)
PROJECTION_LAG_SECONDS: Final = gauge(
    "tunery_projection_lag_seconds",
    "Wall clock minus `at` of the newest entry committed; grows only while entries arrive",
    ("projection", "stream"),
    "seconds",
)
EFFECTS_RUNNING: Final = gauge(
    "tunery_effects_running", "To-do rows that this process is working on", ("kind",)
)
EFFECTS_ENDED: Final = counter(
    "tunery_effects_ended_total",
    "Runs of effects by outcome: sent, known (it is on the log already), nothing, retried, "
    "exhausted, lost (the lease of the row)",
    ("kind", "outcome"),
)
HOST_RESTARTS: Final = counter(
    "tunery_host_restarts_total", "Restarts of a host inside its process", ("host",)
)
HOST_RUNNING: Final = gauge(
    "tunery_host_running",
    "1: the host runs; 0: it ended or hung and is to run again. Alert on 0 for a minute",
    ("host",),
)
CONFINED: Final = gauge(
    "tunery_confined",
    "1: processes that read what tenants upload are confined by all there is; 0: a wall is missing",
)
HOST_HANGS: Final = counter(
    "tunery_host_hangs_total",
    "Hosts restarted because one of their loops reported neither work nor waiting for too long",
    ("host",),
)
STRAY_CANCELLATIONS: Final = counter(
    "tunery_stray_cancellations_total",
    "Tasks that ended as cancelled though nothing asked them to stop, and were run again",
    ("task",),
)
PARTITION_STOPPED: Final = gauge(
    "tunery_partition_stopped",
    "1: the host stopped at a record that it cannot decode, or that contradicts the log. Alert on "
    "any; its log line says where to look",
    ("host", "stream", "partition"),
)
BLOB_BYTES: Final = counter(
    "tunery_blob_bytes_total",
    "Bytes moved to (put) or from (get) object storage",
    ("direction",),
    "bytes",
)
DECISIONS: Final = counter(
    "tunery_decisions_total",
    "Commands decided and read back, by result: accepted, rejected, repeated",
    ("stream", "result"),
)
REJECTIONS: Final = counter(
    "tunery_rejections_total",
    "Commands refused by deciders, and telemetry, by code",
    ("stream", "code"),
)
DECISION_SECONDS: Final = histogram(
    "tunery_decision_seconds",
    "Time to decide one command: decode, decide, encode, fold; without the append",
    ("stream",),
    (0.00005, 0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.05, 0.25, 1.0),
)
COMMAND_LAG_SECONDS: Final = histogram(
    "tunery_command_lag_seconds",
    "Time of a command between its append to the log and its decision, by the clock of its owner",
    ("stream",),
    _FAST,
)
CLAIMS: Final = counter(
    "tunery_owner_claims_total",
    "Partitions claimed by this process: at starts, takeovers, and after each doubt",
    ("stream",),
)
STAND_DOWNS: Final = counter(
    "tunery_owner_stand_downs_total",
    "Terms ended because another process may own the partition",
    ("stream",),
)
