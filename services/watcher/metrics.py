"""Metrics of the watcher."""

from typing import Final

from tunery.runtime.telemetry.catalogue import computed, counter

ANOMALIES: Final = counter(
    "tunery_anomalies_total",
    "Recorded anomalies by kind, as loss_spike or stuck. A kill may count some again",
    ("kind",),
)
WATCHED: Final = computed("tunery_watched_jobs", "Jobs that the watcher remembers something of")
EVICTED: Final = counter(
    "tunery_watches_evicted_total",
    "Jobs that were forgotten because the watcher knew too many (TUNERY_WATCHER_JOBS_MAX)",
)
