"""Given events of `model`, then rows of base models and versions."""

from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from schemas.deployments import Arm, ArmTraffic, Deployed, Deployment, TrafficCounted
from schemas.model import (
    BaseAdded,
    Event,
    Lineage,
    StageMoved,
    VersionDeleted,
    VersionPublished,
    VersionTerms,
)
from services.gateway.views.projections.journals import project
from services.gateway.views.tables.deployments import DEPLOYMENTS, DeploymentRow, deployment_key
from services.gateway.views.tables.models import BASES, MODELS
from tests.unit.services.gateway.control_plane import BASE
from tests.unit.services.gateway.view_rows import folded, header, only, rows
from tunery.runtime.verbs import Change

PUBLISHED = VersionPublished(
    files=(),
    quarantined=False,
    terms=VersionTerms(
        model_id="m1",
        series="s",
        lineage=Lineage(
            job_id="ftjob-1",
            base_id=BASE.base_id,
            base_sha256=BASE.sha256,
            dataset_version="v",
            training_sha256="ab" * 32,
            config_sha256="ab" * 32,
            steps=1,
            verdict="pass",
            scores_sha256="ab" * 32,
        ),
    ),
)


def test_base_added_in_every_partition_is_one_row() -> None:
    """The row does not depend on the order in which partitions are read."""

    def read(partitions: Iterable[int]) -> list[Change]:
        return [
            change
            for partition in partitions
            for change in project(
                replace(header("model", at=1_000 + partition, key="*"), partition=partition),
                BaseAdded(base=BASE),
            )
        ]

    assert read(range(8)) == read(reversed(range(8)))
    records = folded("model", BaseAdded(base=BASE), key="*")
    assert only(records, BASES).base.sha256 == BASE.sha256


def test_a_replaced_version_returns_to_dev() -> None:
    first = StageMoved(model_id="m1", series="s", stage="production", replaced=None, by="promotion")
    second = replace(first, model_id="m2", replaced="m1")
    terms = (replace(PUBLISHED.terms, model_id=model_id) for model_id in ("m1", "m2"))
    published = [replace(PUBLISHED, terms=version) for version in terms]
    records = folded("model", *published, first, second)
    assert {row.id: row.stage for row in rows(records, MODELS)} == {"m1": "dev", "m2": "production"}
    gone = folded("model", PUBLISHED, first, VersionDeleted(model_id="m1"))
    assert rows(gone, MODELS) == []


SHARED = Deployment(
    series="s", stage="production", model_id="a", second=Arm(model_id="b", buckets=1), salt="x"
)
COUNTED = TrafficCounted(
    series="s", stage="production", arms=(ArmTraffic(model_id="a", role="first", answers=2),)
)


def shown(*events: Event) -> Sequence[DeploymentRow]:
    return rows(folded("model", *events), DEPLOYMENTS)


def test_a_deployment_counts_until_its_shares_change() -> None:
    (row,) = shown(Deployed(deployment=SHARED), COUNTED)
    assert (row.id, row.deployment, row.traffic) == (
        deployment_key("s", "production"),
        SHARED,
        COUNTED.arms,
    )
    (row,) = shown(Deployed(deployment=SHARED), COUNTED, Deployed(deployment=SHARED))
    assert row.traffic is None


def test_it_ends_when_another_version_takes_the_stage() -> None:
    moved = StageMoved(model_id="b", series="s", stage="production", replaced="a", by="promotion")
    assert shown(Deployed(deployment=SHARED), moved) == []
    assert len(shown(moved, Deployed(deployment=SHARED))) == 1
