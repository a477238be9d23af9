"""Read model of deployments."""

from typing import Final

from schemas.deployments import ArmTraffic, Deployment
from schemas.units import Ms
from services.gateway.views.table import Table, TableRow


class DeploymentRow(TableRow):
    """How a stage is answered, as long as the deployment's first version holds it."""

    tenant: str
    since: Ms
    deployment: Deployment
    # counts of each version since `since`; None: nothing was counted yet
    traffic: tuple[ArmTraffic, ...] | None = None


DEPLOYMENTS: Final = Table("deployments", DeploymentRow, key=("tenant", "id"), order="id")


def deployment_key(series: str, stage: str) -> str:
    """Id of a row."""
    return f"{stage}/{series}"
