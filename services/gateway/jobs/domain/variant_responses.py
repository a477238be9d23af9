"""Configurations that take turns in one job, as responses."""

from collections.abc import Sequence
from typing import Any, Final

from schemas.training import HyperParameters
from services.gateway.views.tables.jobs import JobRow
from services.gateway.web.domain.responses import Response
from tunery.plan.hyperparameters import request_of

MICRO: Final = 1_000_000


class VariantResponse(Response):
    """A configuration that a job trains in turn with others. `variant`: its number, by which steps
    name it. `values`: of the hyper-parameters that are not the same in all of them.
    `validation_loss`: the last one of its training, in nats per token; null: its training has not
    ended, or it diverged. `chosen`: it is the one that the job has left.
    """

    variant: int
    values: dict[str, Any]
    validation_loss: float | None
    chosen: bool


def variant_responses(row: JobRow) -> list[VariantResponse]:
    """The configurations of a job; none where it has one."""
    values = differing_values([variant.hyper for variant in row.spec.variants])
    return [
        VariantResponse(
            variant=number,
            values=own,
            validation_loss=loss_of_variant(row, number),
            chosen=row.variant == number,
        )
        for number, own in enumerate(values)
    ]


def differing_values(hypers: Sequence[HyperParameters]) -> list[dict[str, Any]]:
    """Return the hyper-parameters of each configuration that are not the same in all of them."""
    requests = [request_of(hyper) for hyper in hypers]
    first = requests[0] if requests else {}
    differing = [name for name in first if any(r.get(name) != first[name] for r in requests)]
    return [{name: request.get(name) for name in differing} for request in requests]


def loss_of_variant(row: JobRow, number: int) -> float | None:
    """In nats per token; None: it is not known, or it diverged."""
    return loss_of(row.losses_ppm[number] if row.losses_ppm else None)


def loss_of(loss_ppm: int | None) -> float | None:
    """In nats per token, of millionths; None: there is none."""
    return None if loss_ppm is None or loss_ppm < 0 else loss_ppm / MICRO
