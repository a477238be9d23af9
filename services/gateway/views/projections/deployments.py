"""`model` → deployments."""

from typing import Any

from schemas.deployments import Deployed, TrafficCounted
from schemas.envelope import Header
from schemas.model import StageMoved
from services.gateway.views.tables.deployments import DEPLOYMENTS, deployment_key
from tunery.runtime.verbs import Change


def project_deployment(header: Header, event: Any) -> tuple[Change, ...]:
    """Rows of deployments that follow from one event of `model`."""
    match event:
        case Deployed(deployment=deployment):
            row = deployment_key(deployment.series, deployment.stage)
            key = {"tenant": header.key, "id": row}
            begun = DEPLOYMENTS.update(key, since=header.at, deployment=deployment, traffic=None)
            return (begun,)
        case TrafficCounted():
            key = {"tenant": header.key, "id": deployment_key(event.series, event.stage)}
            return (DEPLOYMENTS.update(key, traffic=event.arms),)
        case StageMoved():
            # another version holds it: versions deployed with the former one answer no more
            key = {"tenant": header.key, "id": deployment_key(event.series, event.stage)}
            return (DEPLOYMENTS.delete(key),)
        case _:
            return ()
