"""Everything that is folded from the log, by service: what a replay has to rebuild."""

from collections.abc import Mapping
from typing import Any, Final

from services.billing import app as billing
from services.eval import app as evaluation
from services.gateway import app as gateway
from services.ingest import app as ingest
from services.notifier import app as notifier
from services.registry import app as registry
from services.scheduler import app as scheduler
from tunery.runtime.verbs import Aggregate
from tunery.runtime.work.projector import Projection

AGGREGATES: Final[Mapping[str, tuple[Aggregate[Any], ...]]] = {
    "billing": (billing.ACCOUNTS,),
    "ingest": (ingest.DATASETS,),
    "registry": (registry.MODELS,),
    "scheduler": (scheduler.JOBS, scheduler.POOLS),
}
PROJECTIONS: Final[Mapping[str, tuple[Projection, ...]]] = {
    "billing": (billing.LEDGER, billing.TENANTS),
    "eval": (evaluation.TODOS,),
    "gateway": (gateway.VIEWS_PROJECTION,),
    "ingest": (ingest.TODOS,),
    "notifier": (notifier.DELIVERIES,),
    "registry": (registry.TODOS,),
}
