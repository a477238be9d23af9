"""Bodies of requests about serving pools."""

from typing import Annotated, Final

from pydantic import Field, StrictInt

from services.gateway.web.domain.bodies import Body, Id

REPLICAS_MAX: Final = 32  # of a tenant
Replicas = Annotated[StrictInt, Field(ge=0, le=REPLICAS_MAX)]


class ServingPoolRequest(Body):
    """Replicas that are wanted: of which base model, how many, and what each of them holds."""

    model: Id = Field(description="the base model, whose versions they answer with, too")
    replicas: Replicas = 1
    slots: Annotated[StrictInt, Field(ge=1, le=64)] = Field(
        default=1, description="of a node, that each replica holds"
    )
    term_minutes: Annotated[StrictInt, Field(ge=2, le=1_440)] = Field(
        default=60, description="after which a replica is replaced by one with a new hold"
    )


class ReplicasRequest(Body):
    """Another number of replicas; 0: none, and the serving pool stays."""

    replicas: Replicas
