"""The aggregates and projections of every service, which a replay rebuilds."""

from collections.abc import Mapping
from typing import Any, Final

from services.billing import app as billing
from services.eval import app as evaluation
from services.gateway.views import host as gateway
from services.gateway.views.todos import (
    BATCH_FILES,
    BATCH_ROWS,
    IMPORT_KEY,
    IMPORT_RUN,
    MIRROR_FILES,
    REFUSED_SENDER,
    RESULTS,
)
from services.ingest import app as ingest
from services.ingest.project import ERASE as ERASE_BLOBS
from services.ingest.project import ERASE_TENANT
from services.notifier import app as notifier
from services.registry import app as registry
from services.registry.project import ERASE as ERASE_VERSIONS
from services.registry.project import ERASE_WORK
from services.scheduler import app as scheduler
from tunery.runtime.hosts.projector import Projection
from tunery.runtime.verbs import Aggregate

#: kinds of `unrecorded` effects: their rows end without an event
UNRECORDED: Final = tuple(
    sorted(
        {ERASE_BLOBS, ERASE_TENANT, ERASE_VERSIONS, ERASE_WORK, REFUSED_SENDER, RESULTS}
        | {BATCH_ROWS, BATCH_FILES, IMPORT_RUN, IMPORT_KEY}
        | MIRROR_FILES.keys()
    )
)
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
