"""Bodies of integrations, and how a job shows them."""

from typing import Any

import pytest
from msgspec.structs import replace
from pydantic import ValidationError

from schemas.integrations import Integration
from schemas.sealed import REDACTED, Sealed
from services.gateway.jobs.domain.integrations import (
    IntegrationBody,
    repeated_kind,
    shown_integrations,
)
from tests.unit.services.gateway.jobs.job_events import SPEC

WANDB: dict[str, Any] = {"project": "lamps", "entity": "acme", "tags": ["a"]}


@pytest.mark.parametrize(
    ("body", "settings"),
    [
        ({"type": "wandb", "wandb": WANDB}, WANDB),
        ({"type": "wandb", "wandb": {"project": "a", "name": None}}, {"project": "a"}),
        ({"type": "mlflow"}, {"experiment": "tunery"}),
        ({"type": "mlflow", "mlflow": {"experiment": "lamps"}}, {"experiment": "lamps"}),
        ({"type": "tensorboard"}, {}),
    ],
)
def test_settings_are_those_of_the_type(body: dict[str, Any], settings: dict[str, Any]) -> None:
    assert IntegrationBody.model_validate(body).settings() == settings


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"type": "wandb", "wandb": {}},
        {"type": "wandb", "wandb": {"project": ""}},
        {"type": "wandb", "wandb": {"project": "a" * 129}},
        {"type": "wandb", "wandb": {"project": "a", "tags": ["t" * 65]}},
        {"type": "wandb", "wandb": {"project": "a", "tags": ["t"] * 51}},
        {"type": "mlflow", "mlflow": {"tracking_uri": "https://mlflow.example.com"}},
    ],
)
def test_other_bodies_are_refused(body: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        IntegrationBody.model_validate(body)


def test_a_type_is_asked_for_once() -> None:
    bodies = [IntegrationBody.model_validate({"type": kind}) for kind in ("mlflow", "tensorboard")]
    assert repeated_kind(bodies) is None
    assert repeated_kind([*bodies, bodies[0]]) == "mlflow"


def test_settings_of_an_erased_tenant_are_not_shown() -> None:
    asked = Integration(kind="tensorboard", settings=Sealed("k", b"", b""))
    spec = replace(SPEC, integrations=(asked,))
    assert shown_integrations(spec, lambda *_: "{}") == [{"type": "tensorboard"}]
    assert shown_integrations(spec, lambda *_: REDACTED) == []
