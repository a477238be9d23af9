"""Metrics of the notifier."""

from typing import Final

from tunery.runtime.telemetry.catalogue import counter

DELIVERIES_ENDED: Final = counter(
    "tunery_deliveries_ended_total",
    "Webhooks and e-mails by outcome: delivered, gave_up, gone, refused. Told again after a kill",
    ("outcome",),
)
