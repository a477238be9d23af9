"""Every metric of the runtime: name, labels, meaning. Services add their own files beside theirs.

Metrics describe one process and start at zero with it; nothing is ever decided from them.
"""

from typing import Final

from prometheus_client import Counter, Gauge, Histogram

_FAST: Final = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)

PROJECTED: Final = Counter(
    "tunery_projected_entries_total",
    "Accepted journal entries that a projection has taken in",
    ("projection", "stream"),
)
PROJECTION_COMMITS: Final = Counter(
    "tunery_projection_commits_total",
    "Commits of a projection by result: committed, or stale when another process was first",
    ("projection", "result"),
)
PROJECTION_COMMIT_SECONDS: Final = Histogram(
    "tunery_projection_commit_seconds",
    "Time of one commit of rows and position in PostgreSQL",
    ("projection",),
    buckets=_FAST,
)
PROJECTION_LAG_MS: Final = Gauge(
    "tunery_projection_lag_ms",
    "Wall clock minus `at` of the newest entry committed; grows only while entries arrive",
    ("projection", "stream"),
)
EFFECTS_RUNNING: Final = Gauge(
    "tunery_effects_running", "To-do rows that this process is working on", ("kind",)
)
EFFECTS_ENDED: Final = Counter(
    "tunery_effects_ended_total",
    "Runs of effects by outcome: sent, nothing, retried, exhausted, lost (the lease of the row)",
    ("kind", "outcome"),
)
HOST_RESTARTS: Final = Counter(
    "tunery_host_restarts_total", "Restarts of a host inside its process", ("host",)
)
HOST_RUNNING: Final = Gauge(
    "tunery_host_running",
    "1: the host runs; 0: it ended or hung and is to run again. Alert on 0 for a minute",
    ("host",),
)
CONFINED: Final = Gauge(
    "tunery_confined",
    "1: processes that read what tenants upload are confined by all there is; 0: a wall is missing",
)
HOST_HANGS: Final = Counter(
    "tunery_host_hangs_total",
    "Hosts restarted because one of their loops reported neither work nor waiting for too long",
    ("host",),
)
STRAY_CANCELLATIONS: Final = Counter(
    "tunery_stray_cancellations_total",
    "Tasks that ended as cancelled though nothing asked them to stop, and were run again",
    ("task",),
)
PARTITION_STOPPED: Final = Gauge(
    "tunery_partition_stopped",
    "1: the host stopped at a record that it cannot decode, or that contradicts the log. Alert on "
    "any; its log line says where to look",
    ("host", "stream", "partition"),
)
BLOB_BYTES: Final = Counter(
    "tunery_blob_bytes_total", "Bytes moved to (put) or from (get) object storage", ("direction",)
)
