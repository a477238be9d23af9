"""Metrics of the notifier."""

from typing import Final

from tunery.runtime.telemetry.catalogue import counter

DELIVERIES_ENDED: Final = counter(
    "tunery_deliveries_ended_total",
    "Webhooks and e-mails by outcome: delivered, gave_up, gone, refused. Told again after a kill",
    ("outcome",),
)
MIRRORS_ENDED: Final = counter(
    "tunery_mirrors_ended_total",
    "Jobs that were to go to MLflow by outcome: written, gave_up. Told again after a kill",
    ("outcome",),
)
MIRROR_FAILURES: Final = counter(
    "tunery_mirror_failures_total",
    "Failed tries to write a job to MLflow, by cause",
    ("cause",),
)
